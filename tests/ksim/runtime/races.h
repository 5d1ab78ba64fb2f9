// The race detector: every instrumented access is compared with what its bytes last saw.
//
// Two accesses by different threads, one of them a write, need a barrier between them that orders their kind of
// memory: a threadgroup barrier, or a simdgroup barrier if both threads are in one simdgroup. Atomic accesses need
// none among themselves. Threadgroups are never ordered within a launch.
#pragma once
#include "fibers.h"

namespace {
constexpr uint16_t SEVERAL = 0xFFFF, SEVERAL_OF_ONE_WARP = 0xFFFE;

struct Access {
  char* address;
  size_t size;
  bool write, atomic;
  void* pc;
};

Region* region_of(char* address, size_t size) {
  static size_t last = 0;
  std::vector<Region>& regions = executor.regions;
  if (last < regions.size() && address < regions[last].span_high && address + size > regions[last].span_low)
    return &regions[last];
  for (size_t i = 0; i < regions.size(); i++)
    if (address < regions[i].span_high && address + size > regions[i].span_low) {
      last = i;
      return &regions[i];
    }
  return nullptr;
}

const char* word(const Access& access) { return access.write ? "write" : "read"; }

// Of one kind, plain or atomic, write or read. An earlier access that a simdgroup barrier orders need not be known:
// whoever conflicts with it without a barrier conflicts with the later one too.
void remember(Record& record, uint16_t me, uint16_t warp, uint32_t epoch, uint32_t block_epoch, uint32_t warp_epoch) {
  if (record.epoch != epoch) {
    record.foreign |= record.epoch && record.epoch < block_epoch;
    record.who = me;
  } else if (record.who != me && record.who != SEVERAL) {
    if (record.warp != warp)
      record.who = SEVERAL;
    else
      record.who = record.warp_epoch == warp_epoch ? SEVERAL_OF_ONE_WARP : me;
  }
  record.epoch = epoch;
  record.warp_epoch = warp_epoch;
  record.warp = warp;
}

struct Checker {
  const Access& access;
  const Region& region;
  uint16_t me, my_warp;
  uint32_t epoch, block_epoch, warp_epoch;

  [[noreturn]] void report(const Record& record, size_t offset, const char* what) const {
    char thread[32] = "several threads";
    if (record.who < SEVERAL_OF_ONE_WARP) snprintf(thread, sizeof thread, "thread %d", record.who - 1);
    bool foreign = region.kind == DEVICE && (record.foreign || record.epoch < block_epoch);
    fail_at(access.pc, "data race on %s+%zu: %s%s after unsynchronised %s by another%s (%s)", region.name, offset,
            access.atomic ? "atomic " : "", word(access), what, foreign ? " threadgroup" : "", thread);
    abandon_block();
  }

  void against(const Record& record, size_t offset, const char* what) const {
    if (!record.epoch) return;
    if (region.kind == DEVICE && (record.foreign || record.epoch < block_epoch)) report(record, offset, what);
    if (record.epoch != epoch || record.who == me) return;
    bool ordered = record.who != SEVERAL && record.warp == my_warp && record.warp_epoch != warp_epoch;
    if (!ordered) report(record, offset, what);
  }

  void unwritten(const Shadow& byte, size_t offset) const {
    uint32_t written = byte.write.epoch > byte.atomic_write.epoch ? byte.write.epoch : byte.atomic_write.epoch;
    bool known = region.kind == THREADGROUP ? written >= block_epoch : written || !region.fresh;
    if (known) return;
    const char* memory =
        region.kind == THREADGROUP ? "uninitialised threadgroup memory" : "an output byte nobody wrote";
    fail_at(access.pc, "read of %s, %s+%zu", memory, region.name, offset);
    abandon_block();
  }

  void run() const {
    size_t first = access.address - region.low;
    for (size_t offset = first; offset < first + access.size; offset++) {
      Shadow& byte = region.shadow[offset];
      against(byte.write, offset, "write");
      if (!access.atomic) against(byte.atomic_write, offset, "atomic write");
      if (access.write) {
        against(byte.read, offset, "read");
        if (!access.atomic) against(byte.atomic_read, offset, "atomic read");
      } else {
        unwritten(byte, offset);
      }
      Record& own = access.write ? (access.atomic ? byte.atomic_write : byte.write)
                                 : (access.atomic ? byte.atomic_read : byte.read);
      remember(own, me, my_warp, epoch, block_epoch, warp_epoch);
    }
  }
};

void check_access(const Access& access) {
  Executor& e = executor;
  KsimFiber* self = ksim_thread;
  if (!self || e.regions.empty()) return;
  if (access.address >= e.stacks && access.address < e.stacks + e.capacity * STACK) return;
  Region* region = region_of(access.address, access.size);
  if (!region) return;
  if (access.address < region->low || access.address + access.size > region->high) {
    fail_at(access.pc, "out of bounds %s of %zu bytes at '%s' byte offset %td (size %td)", word(access), access.size,
            region->name, access.address - region->low, region->high - region->low);
    abandon_block();
  }
  if (!region->shadow) return;
  Kind kind = region->kind;
  Checker{access,
          *region,
          uint16_t(self->linear + 1),
          uint16_t(self->warp),
          e.epoch[kind],
          e.block_epoch[kind],
          self->warp_epoch[kind]}
      .run();
}
void check_range(const void* address, size_t size, bool write, bool atomic, void* pc) {
  if (size) check_access({(char*)address, size, write, atomic, pc});
}
}  // namespace

#define KSIM_CALLER __builtin_return_address(0)
KSIM_EXPORT void ksim_access(const void* address, size_t size, int write) {
  check_range(address, size, write, false, KSIM_CALLER);
}
KSIM_EXPORT void ksim_atomic(const volatile void* address, size_t size, int write) {
  check_range((const void*)address, size, write, true, KSIM_CALLER);
}

// The compiler's instrumentation calls these (-fsanitize=thread without its run-time library).
#define KSIM_HOOK(name, size, write) \
  KSIM_EXPORT void name(void* address) { check_range(address, size, write, false, KSIM_CALLER); }
#define KSIM_HOOKS(size)                                              \
  KSIM_HOOK(__tsan_read##size, size, false)                           \
  KSIM_HOOK(__tsan_write##size, size, true)                           \
  KSIM_HOOK(__tsan_unaligned_read##size, size, false)                 \
  KSIM_HOOK(__tsan_unaligned_write##size, size, true)                 \
  KSIM_HOOK(__tsan_volatile_read##size, size, false)                  \
  KSIM_HOOK(__tsan_volatile_write##size, size, true)                  \
  KSIM_EXPORT void __tsan_read_write##size(void* address) {           \
    check_range(address, size, false, false, KSIM_CALLER);            \
    check_range(address, size, true, false, KSIM_CALLER);             \
  }                                                                   \
  KSIM_EXPORT void __tsan_unaligned_read_write##size(void* address) { \
    check_range(address, size, false, false, KSIM_CALLER);            \
    check_range(address, size, true, false, KSIM_CALLER);             \
  }
KSIM_HOOKS(1)
KSIM_HOOKS(2)
KSIM_HOOKS(4)
KSIM_HOOKS(8)
KSIM_HOOKS(16)
KSIM_EXPORT void __tsan_read_range(void* address, size_t size) {
  check_range(address, size, false, false, KSIM_CALLER);
}
KSIM_EXPORT void __tsan_write_range(void* address, size_t size) {
  check_range(address, size, true, false, KSIM_CALLER);
}
KSIM_EXPORT void* __tsan_memcpy(void* to, const void* from, size_t size) {
  check_range(from, size, false, false, KSIM_CALLER);
  check_range(to, size, true, false, KSIM_CALLER);
  return memcpy(to, from, size);
}
KSIM_EXPORT void* __tsan_memmove(void* to, const void* from, size_t size) {
  check_range(from, size, false, false, KSIM_CALLER);
  check_range(to, size, true, false, KSIM_CALLER);
  return memmove(to, from, size);
}
KSIM_EXPORT void* __tsan_memset(void* to, int value, size_t size) {
  check_range(to, size, true, false, KSIM_CALLER);
  return memset(to, value, size);
}
KSIM_EXPORT void __tsan_init() {}
KSIM_EXPORT void __tsan_func_entry(void*) {}
KSIM_EXPORT void __tsan_func_exit() {}
KSIM_EXPORT void __tsan_vptr_update(void*, void*) {}
KSIM_EXPORT void __tsan_vptr_read(void*) {}
