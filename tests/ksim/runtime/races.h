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

struct Checker {
  const Access& access;
  const Region& region;
  uint16_t me, my_warp;
  uint32_t epoch, block_epoch, warp_epoch;

  // Another thread of my simdgroup, before or after a simdgroup barrier.
  bool ordered_in_warp(uint32_t its_warp, uint32_t its_warp_epoch) const {
    return its_warp == my_warp && its_warp_epoch != warp_epoch;
  }
  [[noreturn]] void report(size_t offset, const char* what, uint16_t who) const {
    char thread[32] = "several threads";
    if (who != SEVERAL && who != SEVERAL_OF_ONE_WARP) snprintf(thread, sizeof thread, "thread %d", who - 1);
    fail_at(access.pc, "data race on %s+%zu: %s%s after unsynchronised %s (%s)", region.name, offset,
            access.atomic ? "atomic " : "", word(access), what, thread);
    abandon_block();
  }

  void against_write(const Shadow& byte, size_t offset) const {
    if (!byte.written || (access.atomic && byte.atomic_write)) return;
    bool other_block = region.kind == DEVICE && byte.written < block_epoch;
    if (other_block) report(offset, "write by another threadgroup", byte.writer);
    bool now = byte.written == epoch && byte.writer != me;
    bool ordered = byte.writer != SEVERAL && ordered_in_warp((byte.writer - 1) / WARP, byte.written_warp_epoch);
    if (now && !ordered)
      report(offset, byte.atomic_write ? "atomic write by another" : "write by another", byte.writer);
  }

  void against_reads(const Shadow& byte, size_t offset) const {
    if (!byte.read || (access.atomic && byte.atomic_reads)) return;
    bool other_block = region.kind == DEVICE && (byte.foreign_reads || byte.read < block_epoch);
    bool now = byte.read == epoch && byte.reader != me &&
               (byte.reader == SEVERAL || !ordered_in_warp(byte.reader_warp, byte.read_warp_epoch));
    if (other_block || now)
      report(offset, other_block ? "read by another threadgroup" : "read by another", byte.reader);
  }

  void unwritten(const Shadow& byte, size_t offset) const {
    bool known = region.kind == THREADGROUP ? byte.written >= block_epoch : byte.written || !region.fresh;
    if (known) return;
    const char* memory =
        region.kind == THREADGROUP ? "uninitialised threadgroup memory" : "an output byte nobody wrote";
    fail_at(access.pc, "read of %s, %s+%zu", memory, region.name, offset);
    abandon_block();
  }

  void remember_write(Shadow& byte) const {
    bool shared = access.atomic && byte.atomic_write && byte.written == epoch && byte.writer != me;
    byte.writer = shared ? SEVERAL : me;
    byte.written = epoch;
    byte.written_warp_epoch = warp_epoch;
    byte.atomic_write = access.atomic;
  }

  void remember_read(Shadow& byte) const {
    if (byte.read != epoch) {
      byte.foreign_reads |= byte.read && byte.read < block_epoch;
      byte.reader = me;
      byte.atomic_reads = access.atomic;
    } else {
      if (byte.reader != me && byte.reader != SEVERAL)
        byte.reader = byte.reader_warp == my_warp ? SEVERAL_OF_ONE_WARP : SEVERAL;
      byte.atomic_reads &= access.atomic;
    }
    byte.read = epoch;
    byte.reader_warp = my_warp;
    byte.read_warp_epoch = warp_epoch;
  }

  void run() const {
    size_t first = access.address - region.low;
    for (size_t offset = first; offset < first + access.size; offset++) {
      Shadow& byte = region.shadow[offset];
      against_write(byte, offset);
      if (access.write) {
        against_reads(byte, offset);
        remember_write(byte);
      } else {
        unwritten(byte, offset);
        remember_read(byte);
      }
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
