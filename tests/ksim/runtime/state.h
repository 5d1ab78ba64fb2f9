// What the parts of the executor share: one launch, the threadgroup that runs, its fibers.
#pragma once
#include "../include/ksim.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#define KSIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {
constexpr size_t PAGE = 4096, STACK = 256 << 10;
// Unmapped bytes on either side of a buffer: room for any 32-bit index of 16-byte elements.
constexpr size_t GUARD = size_t(64) << 30;
constexpr uint32_t MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS, WARP = 32;

enum State : uint8_t { READY, WAITS_FOR_WARP, WAITS_FOR_BLOCK, FINISHED };
enum LaunchFlag : uint32_t { CUDA = 1, FULL = 2, FLUSHES_SUBNORMALS = 4 };
enum Kind : uint32_t { DEVICE = 0, THREADGROUP = 1 };
enum BufferMode : uint32_t { READ_ONLY = 0, WRITABLE = 1 };

size_t whole_pages(size_t size) { return size ? (size + PAGE - 1) / PAGE * PAGE : PAGE; }
}  // namespace

// Both structures are mirrored by tests/ksim/executor.py.
struct KsimBuffer {
  const void* source;  // copied in; null: filled with 0xFF, and a read before any write is an error in full mode
  size_t size;
  const char* name;
  uint32_t mode, argument;  // which of the arguments points here
  char* data;               // out: where the kernel sees it
  char* host;               // out: the same bytes, always writable
};

struct KsimLaunch {
  void (*entry)(void**);
  void** arguments;
  KsimBuffer* buffers;
  uint32_t buffer_count, flags;
  KsimDim grid, threadgroup;
  uint32_t dynamic_shared, shared_limit;
  uint64_t seed, switch_limit;
  double deadline;  // seconds of CPU time
  uint64_t switches, barriers, warp_collectives, threads, shared;
  uint64_t fail_offset;  // of the failing instruction in the kernel's library
  char error[768];
};

namespace {
// The accesses of one kind to a byte since the last barrier: by whom, as a thread's index + 1, or by several.
struct Record {
  uint32_t epoch, warp_epoch;  // when; 0: never
  uint16_t who;
  uint16_t warp : 15, foreign : 1;  // foreign: other threadgroups did it too
};
struct Shadow {
  Record write, read, atomic_write, atomic_read;
};
struct Region {
  char *span_low, *span_high;  // with slack: all that can be touched without a fault
  char *low, *high;
  Shadow* shadow;  // null for inputs
  Kind kind;
  bool fresh;  // holds nothing yet
  const char* name;
};
struct SharedVariable {
  uint32_t id;
  char* data;
  size_t size;
  const char* name;
};
struct Warp {
  uint32_t live, arrived;
};

struct Executor {
  KsimLaunch* launch = nullptr;
  KsimBlock block{};
  void* scheduler_stack = nullptr;
  KsimFiber* fibers = nullptr;
  char* stacks = nullptr;
  uint32_t capacity = 0;
  std::vector<uint32_t> ready;
  uint32_t ready_head = 0, live = 0, at_barrier = 0;
  const char* barrier_file = nullptr;
  int barrier_line = 0;
  Warp warps[MAX_WARPS];
  char* arena = nullptr;
  size_t arena_used = 0, shared_bytes = 0;
  std::vector<SharedVariable> variables;
  char* dynamic = nullptr;
  std::vector<Region> regions;
  uint32_t epoch[2] = {1, 1}, block_epoch[2] = {1, 1};  // by Kind
  uint64_t random = 0;
  bool failed = false;
  volatile bool late = false;
  void* fail_pc = nullptr;
};

// One launch runs at a time: the caller holds a lock.
Executor& executor = *new Executor;
__thread bool inside_launch __attribute__((tls_model("initial-exec"))) = false;

void fail_at(void* pc, const char* format, ...) __attribute__((format(printf, 2, 3)));
[[noreturn]] void abandon_block();
}  // namespace
