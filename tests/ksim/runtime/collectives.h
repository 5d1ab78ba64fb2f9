// Barriers and simdgroup operations: who has arrived, who is missing, what to do when nobody can run.
#pragma once
#include "fibers.h"

namespace {
struct WarpView {
  KsimFiber* lanes;
  uint32_t count;
};
WarpView warp_view(uint32_t warp) {
  uint32_t first = warp * WARP, count = executor.block.threads - first;
  return {&executor.fibers[first], count < WARP ? count : WARP};
}

void complete_warp(WarpView warp, uint32_t active, KsimFiber* self) {
  void* arguments[WARP];
  KsimCollective complete = nullptr;
  uint32_t order = KSIM_ORDER_ALL;
  for (uint32_t i = 0; i < warp.count; i++) {
    bool takes_part = active >> i & 1;
    arguments[i] = takes_part ? warp.lanes[i].argument : nullptr;
    if (!takes_part) continue;
    complete = warp.lanes[i].complete;
    order &= warp.lanes[i].order;
  }
  executor.launch->warp_collectives++;
  if (complete) complete(arguments, active);
  for (uint32_t i = 0; i < warp.count; i++) {
    if (!(active >> i & 1)) continue;
    if (order & KSIM_ORDER_DEVICE) warp.lanes[i].warp_epoch[DEVICE]++;
    if (order & KSIM_ORDER_THREADGROUP) warp.lanes[i].warp_epoch[THREADGROUP]++;
    if (&warp.lanes[i] != self) make_ready(&warp.lanes[i]);
  }
}

// An explicit mask pairs operations by kind, as CUDA does; without one the place must agree too.
bool same_operation(const KsimFiber& a, const KsimFiber& b) {
  return a.complete == b.complete && a.mask == b.mask && (a.mask || (a.line == b.line && a.file == b.file));
}

void masked_collective(WarpView warp, KsimFiber* self) {
  uint32_t mask = self->mask, present = warp.count == WARP ? ~0u : (1u << warp.count) - 1, needed = mask & present;
  if (!(mask >> self->lane & 1))
    ksim_fail("warp operation at %s:%d: the calling lane is not in its own mask 0x%08x", self->file, self->line,
              mask);
  for (uint32_t i = 0; i < warp.count; i++) {
    if (!(needed >> i & 1)) continue;
    if (warp.lanes[i].state == FINISHED)
      ksim_fail("warp operation at %s:%d: lane %u in mask 0x%08x has exited", self->file, self->line, i, mask);
    if (warp.lanes[i].state != WAITS_FOR_WARP || !same_operation(warp.lanes[i], *self)) {
      let_others_run();
      return;
    }
  }
  self->state = READY;
  complete_warp(warp, needed, self);
}

void wait_at(KsimCollective complete, void* argument, uint32_t mask, uint32_t order, const char* file, int line,
             State state) {
  KsimFiber* self = ksim_thread;
  self->complete = complete;
  self->argument = argument;
  self->mask = mask;
  self->order = order;
  self->file = file;
  self->line = line;
  self->state = state;
}
}  // namespace

KSIM_EXPORT void ksim_warp_collective(KsimCollective complete, void* argument, uint32_t mask, uint32_t order,
                                      const char* file, int line) {
  KsimFiber* self = ksim_thread;
  WarpView warp = warp_view(self->warp);
  wait_at(complete, argument, mask, order, file, line, WAITS_FOR_WARP);
  if (mask) {
    masked_collective(warp, self);
    return;
  }
  Warp& counts = executor.warps[self->warp];
  if (++counts.arrived < counts.live) {
    let_others_run();
    return;
  }
  uint32_t active = 0;
  bool together = true;
  for (uint32_t i = 0; i < warp.count; i++) {
    if (warp.lanes[i].state != WAITS_FOR_WARP) continue;
    active |= 1u << i;
    together &= same_operation(warp.lanes[i], *self);
  }
  if (!together) {  // settle_stuck_block will find them
    let_others_run();
    return;
  }
  counts.arrived = 0;
  self->state = READY;
  complete_warp(warp, active, self);
}

KSIM_EXPORT uint32_t ksim_active_lanes() {
  WarpView warp = warp_view(ksim_thread->warp);
  uint32_t active = 0;
  for (uint32_t i = 0; i < warp.count; i++)
    if (warp.lanes[i].state != FINISHED) active |= 1u << i;
  return active;
}

namespace {
void release_block(KsimFiber* self) {
  static std::vector<void*>& arguments = *new std::vector<void*>;
  uint32_t count = executor.block.threads, order = KSIM_ORDER_ALL;
  KsimCollective complete = nullptr;
  arguments.assign(count, nullptr);
  for (uint32_t i = 0; i < count; i++) {
    KsimFiber& fiber = executor.fibers[i];
    if (fiber.state != WAITS_FOR_BLOCK && &fiber != self) continue;
    arguments[i] = fiber.argument;
    complete = fiber.complete;
    order &= fiber.order;
  }
  if (complete) complete(arguments.data(), count);
  executor.launch->barriers++;
  if (order & KSIM_ORDER_DEVICE) executor.epoch[DEVICE]++;
  if (order & KSIM_ORDER_THREADGROUP) executor.epoch[THREADGROUP]++;
  executor.at_barrier = 0;
  for (uint32_t i = 0; i < count; i++)
    if (executor.fibers[i].state == WAITS_FOR_BLOCK && &executor.fibers[i] != self) make_ready(&executor.fibers[i]);
}
bool exit_before_barrier_allowed() { return executor.launch->flags & CUDA; }
}  // namespace

KSIM_EXPORT void ksim_block_collective(KsimCollective complete, void* argument, uint32_t order, const char* file,
                                       int line) {
  Executor& e = executor;
  wait_at(complete, argument, 0, order, file, line, WAITS_FOR_BLOCK);
  if (e.at_barrier == 0) {
    e.barrier_file = file;
    e.barrier_line = line;
  } else if (e.barrier_line != line || e.barrier_file != file) {
    ksim_fail("divergent barrier: this thread is at %s:%d, others wait at %s:%d", file, line, e.barrier_file,
              e.barrier_line);
  }
  if (++e.at_barrier < e.live) {
    let_others_run();
    return;
  }
  if (e.live != e.block.threads && !exit_before_barrier_allowed())
    ksim_fail("barrier at %s:%d reached by %u of %u threads (others returned)", file, line, e.live, e.block.threads);
  KsimFiber* self = ksim_thread;
  self->state = READY;
  release_block(self);
}

namespace {
// Lanes of one simdgroup wait at different operations. Metal would take those that are there; no kernel of ours means
// it.
void report_divergent_warp(uint32_t index, uint32_t waiting) {
  WarpView warp = warp_view(index);
  KsimFiber* leader = &warp.lanes[__builtin_ctz(waiting)];
  ksim_thread = leader;
  if (leader->mask)
    return fail_at(nullptr, "deadlock: warp operation at %s:%d with mask 0x%08x: not all named lanes arrive",
                   leader->file, leader->line, leader->mask);
  int elsewhere = 0;
  for (uint32_t i = 0; i < warp.count && !elsewhere; i++) {
    bool with_leader = (waiting >> i & 1) && same_operation(warp.lanes[i], *leader);
    if (!with_leader && warp.lanes[i].state != FINISHED) elsewhere = warp.lanes[i].line;
  }
  fail_at(nullptr, "divergent simdgroup operation at %s:%d (another lane of the simdgroup is at line %d)",
          leader->file, leader->line, elsewhere);
}

// No fiber can run: simdgroups that diverged, or a barrier that not everybody reaches.
bool settle_stuck_block() {
  for (uint32_t index = 0; index < executor.block.warps; index++) {
    WarpView warp = warp_view(index);
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < warp.count; i++)
      if (warp.lanes[i].state == WAITS_FOR_WARP) waiting |= 1u << i;
    if (!waiting) continue;
    report_divergent_warp(index, waiting);
    return false;
  }
  for (uint32_t i = 0; i < executor.block.threads; i++)
    if (executor.fibers[i].state == WAITS_FOR_BLOCK) {
      ksim_thread = &executor.fibers[i];
      break;
    }
  if (!exit_before_barrier_allowed()) {
    fail_at(nullptr, "barrier at %s:%d reached by only %u of %u threads (others returned)", executor.barrier_file,
            executor.barrier_line, executor.at_barrier, executor.block.threads);
    return false;
  }
  release_block(nullptr);
  return true;
}
}  // namespace
