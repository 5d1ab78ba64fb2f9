// The queue of runnable fibers and the ways a fiber stops running.
#pragma once
#include "context.h"

namespace {
constexpr uint32_t NOBODY = ~0u;

uint64_t next_random() {
  executor.random = executor.random * 6364136223846793005ull + 1442695040888963407ull;
  return executor.random >> 33;
}

void make_ready(KsimFiber* fiber) {
  fiber->state = READY;
  executor.ready.push_back(fiber->linear);
}

// First come, first served; with a seed, any of them.
uint32_t take_ready() {
  Executor& e = executor;
  size_t waiting = e.ready.size() - e.ready_head;
  if (!waiting) return NOBODY;
  if (e.random) {
    size_t pick = e.ready_head + next_random() % waiting;
    std::swap(e.ready[pick], e.ready[e.ready_head]);
  }
  uint32_t taken = e.ready[e.ready_head++];
  if (e.ready_head == e.ready.size()) {
    e.ready.clear();
    e.ready_head = 0;
  }
  return taken;
}

void check_progress() {
  KsimLaunch* launch = executor.launch;
  if (executor.late) ksim_fail("kernel ran for more than %g s of processor time", launch->deadline);
  if (++launch->switches > launch->switch_limit)
    ksim_fail("kernel made more than %llu thread switches", (unsigned long long)launch->switch_limit);
}

// Runs another fiber; returns when this one is ready again and taken.
void let_others_run() {
  check_progress();
  KsimFiber* self = ksim_thread;
  uint32_t next = take_ready();
  if (next == NOBODY) {
    ksim_switch(&self->stack_pointer, executor.scheduler_stack);
    return;
  }
  KsimFiber* other = &executor.fibers[next];
  if (other == self) return;
  ksim_thread = other;
  ksim_switch(&self->stack_pointer, other->stack_pointer);
}

void fiber_main() {
  executor.launch->entry(executor.launch->arguments);
  KsimFiber* self = ksim_thread;
  self->state = FINISHED;
  executor.live--;
  executor.warps[self->warp].live--;
  let_others_run();
  abort();
}

// Leaves every fiber of the threadgroup where it is.
void abandon_block() {
  void* forgotten;
  ksim_switch(&forgotten, executor.scheduler_stack);
  abort();
}

void record_failure(void* pc, const char* format, va_list arguments) {
  KsimLaunch* launch = executor.launch;
  if (!executor.failed) {
    int used = 0;
    if (KsimFiber* self = ksim_thread) {
      KsimDim at = executor.block.position, in = self->position;
      used = snprintf(launch->error, sizeof launch->error,
                      "[threadgroup %u,%u,%u thread %u,%u,%u simdgroup %u lane %u] ", at.x, at.y, at.z, in.x, in.y,
                      in.z, self->warp, self->lane);
    }
    vsnprintf(launch->error + used, sizeof launch->error - used, format, arguments);
    executor.fail_pc = pc;
  }
  executor.failed = true;
}

void fail_at(void* pc, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  record_failure(pc, format, arguments);
  va_end(arguments);
}
}  // namespace

KSIM_EXPORT void ksim_fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  record_failure(nullptr, format, arguments);
  va_end(arguments);
  abandon_block();
}
