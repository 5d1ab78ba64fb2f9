// One launch: threadgroups in turn, each until its last thread returns.
#pragma once
#include "collectives.h"
#include "faults.h"
#include "races.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {
// Metal's dispatchThreads makes the threadgroups at the edge of the grid partial; CUDA's grid counts whole blocks.
bool counts_threads() { return !(executor.launch->flags & CUDA); }

void place_block(uint32_t index) {
  KsimLaunch* launch = executor.launch;
  KsimBlock& block = executor.block;
  block.position = {index % block.blocks.x, index / block.blocks.x % block.blocks.y,
                    index / block.blocks.x / block.blocks.y};
  block.size = block.nominal_size;
  if (counts_threads()) {
    auto edge = [](uint32_t grid, uint32_t size, uint32_t at) {
      uint32_t rest = grid - at * size;
      return rest < size ? rest : size;
    };
    block.size = {edge(launch->grid.x, block.size.x, block.position.x),
                  edge(launch->grid.y, block.size.y, block.position.y),
                  edge(launch->grid.z, block.size.z, block.position.z)};
  }
  block.threads = block.size.x * block.size.y * block.size.z;
  block.warps = (block.threads + WARP - 1) / WARP;
}

void start_fibers() {
  Executor& e = executor;
  KsimDim size = e.block.size;
  for (uint32_t i = 0; i < e.block.threads; i++) {
    KsimFiber& fiber = e.fibers[i];
    fiber.position = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    fiber.linear = i;
    fiber.lane = i % WARP;
    fiber.warp = i / WARP;
    fiber.warp_epoch[DEVICE] = fiber.warp_epoch[THREADGROUP] = 0;
    fiber.stack_pointer = new_stack(e.stacks + (i + 1) * STACK, fiber_main);
    make_ready(&fiber);
  }
}

void run_block(uint32_t index) {
  Executor& e = executor;
  place_block(index);
  forget_shared_contents();
  for (Kind kind : {DEVICE, THREADGROUP}) e.block_epoch[kind] = ++e.epoch[kind];
  e.live = e.block.threads;
  e.launch->threads += e.live;
  e.at_barrier = 0;
  e.ready.clear();
  e.ready_head = 0;
  for (uint32_t i = 0; i < e.block.warps; i++)
    e.warps[i] = {i + 1 < e.block.warps ? WARP : e.block.threads - i * WARP, 0};
  start_fibers();
  while (e.live && !e.failed) {
    uint32_t next = take_ready();
    if (next == NOBODY) {
      if (!settle_stuck_block()) break;
      continue;
    }
    ksim_thread = &e.fibers[next];
    ksim_switch(&e.scheduler_stack, ksim_thread->stack_pointer);
  }
  ksim_thread = nullptr;
}

// A GPU may take single-precision numbers below 2^-126 for zero.
class Subnormals {
 public:
#if defined(__x86_64__)
  explicit Subnormals(bool flushed) : before_(_mm_getcsr()) {
    constexpr unsigned results_and_operands = 0x8040;
    if (flushed) _mm_setcsr(before_ | results_and_operands);
  }
  ~Subnormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  explicit Subnormals(bool) {}
#endif
};

void make_stacks(uint32_t threads) {
  Executor& e = executor;
  if (e.capacity >= threads) return;
  if (e.stacks) {
    munmap(e.stacks, e.capacity * STACK);
    free(e.fibers);
  }
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  e.capacity = threads;
  e.stacks = (char*)mmap(nullptr, threads * STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
  for (uint32_t i = 0; i < threads; i++) mprotect(e.stacks + i * STACK, PAGE, PROT_NONE);
  e.fibers = (KsimFiber*)calloc(threads, sizeof(KsimFiber));
}

void run_blocks() {
  KsimDim blocks = executor.block.blocks;
  uint64_t total = uint64_t(blocks.x) * blocks.y * blocks.z;
  std::vector<uint32_t> order(total);
  for (uint32_t i = 0; i < total; i++) order[i] = i;
  if (executor.random)
    for (uint64_t i = total; i > 1; i--) std::swap(order[i - 1], order[next_random() % i]);
  for (uint32_t index : order) {
    if (executor.failed) return;
    run_block(index);
  }
}

void prepare(KsimLaunch* launch) {
  Executor& e = executor;
  e.launch = launch;
  e.failed = false;
  e.fail_pc = nullptr;
  e.random = launch->seed;
  KsimDim grid = launch->grid, size = launch->threadgroup;
  if (counts_threads()) {
    auto fit = [](uint32_t threads, uint32_t grid_threads) {
      return threads < grid_threads ? threads : grid_threads;
    };
    size = {fit(size.x, grid.x), fit(size.y, grid.y), fit(size.z, grid.z)};
    e.block.grid_threads = grid;
    e.block.blocks = {(grid.x + size.x - 1) / size.x, (grid.y + size.y - 1) / size.y, (grid.z + size.z - 1) / size.z};
  } else {
    e.block.grid_threads = {grid.x * size.x, grid.y * size.y, grid.z * size.z};
    e.block.blocks = grid;
  }
  e.block.nominal_size = size;
  make_stacks(MAX_THREADS);
  begin_shared_memory();
  if (launch->flags & FULL) track_buffers();
}

void finish(KsimLaunch* launch) {
  Executor& e = executor;
  launch->shared = e.shared_bytes;
  for (Region& region : e.regions) free(region.shadow);
  e.regions.clear();
  Dl_info library;
  if (e.fail_pc && dladdr(e.fail_pc, &library)) {
    Dl_info kernel;
    bool in_kernel = dladdr((void*)launch->entry, &kernel) && kernel.dli_fbase == library.dli_fbase;
    if (in_kernel) launch->fail_offset = (char*)e.fail_pc - (char*)library.dli_fbase;
  }
  for (const TakenBuffer& buffer : taken)
    if (!e.failed && slack_touched(buffer)) fail_at(nullptr, "write just outside buffer '%s'", buffer.name);
}
}  // namespace

// Copies the buffers in, points `arguments` at them, runs; 0 if all went well, else 1 and launch->error.
// Arguments beyond buffer_count are left as they are. ksim_release() must follow.
KSIM_EXPORT int ksim_launch(KsimLaunch* launch) {
  launch->switches = launch->barriers = launch->warp_collectives = launch->threads = 0;
  launch->shared = launch->fail_offset = 0;
  launch->error[0] = 0;
  uint64_t threads = uint64_t(launch->threadgroup.x) * launch->threadgroup.y * launch->threadgroup.z;
  if (threads == 0 || threads > MAX_THREADS) {
    snprintf(launch->error, sizeof launch->error, "threadgroup of %llu threads (limit %u)",
             (unsigned long long)threads, MAX_THREADS);
    return 1;
  }
  for (uint32_t i = 0; i < launch->buffer_count; i++)
    if (!take_buffer(launch->buffers[i])) {
      snprintf(launch->error, sizeof launch->error, "no memory for buffer '%s'", launch->buffers[i].name);
      return 1;
    }
  if (!launch->grid.x || !launch->grid.y || !launch->grid.z) return 0;
  prepare(launch);
  kernel_text = text_of(launch->entry);
  if (!prepare_thread()) {
    fail_at(nullptr, "no timer or stack for signals");
    return 1;
  }
  for (uint32_t i = 0; i < launch->buffer_count; i++)
    launch->arguments[launch->buffers[i].argument] = launch->buffers[i].data;
  catch_faults();
  ksim_block = &executor.block;
  inside_launch = true;
  executor.late = false;
  set_alarm(launch->deadline);
  {
    Subnormals mode(launch->flags & FLUSHES_SUBNORMALS);
    run_blocks();
  }
  stop_alarm();
  inside_launch = false;
  ksim_block = nullptr;
  finish(launch);
  return executor.failed ? 1 : 0;
}
