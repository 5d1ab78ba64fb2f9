// What a kernel's [[attributes]] give: positions and sizes from the executor's state.
#pragma once
#include "vectors.h"

namespace metal {
inline uint3 ksim_u3(KsimDim d) { return uint3(d.x, d.y, d.z); }
struct ksim_attr {
  static uint3 thread_position_in_threadgroup() { return ksim_u3(ksim_thread->position); }
  static uint3 threadgroup_position_in_grid() { return ksim_u3(ksim_block->position); }
  static uint3 thread_position_in_grid() {
    return ksim_u3(ksim_block->position) * ksim_u3(ksim_block->nominal_size) + ksim_u3(ksim_thread->position);
  }
  static uint3 threads_per_threadgroup() { return ksim_u3(ksim_block->size); }
  static uint3 dispatch_threads_per_threadgroup() { return ksim_u3(ksim_block->nominal_size); }
  static uint3 threadgroups_per_grid() { return ksim_u3(ksim_block->blocks); }
  static uint3 threads_per_grid() { return ksim_u3(ksim_block->grid_threads); }
  static uint3 grid_size() { return ksim_u3(ksim_block->grid_threads); }
  static uint3 grid_origin() { return uint3(0u); }
  static uint thread_index_in_threadgroup() { return ksim_thread->linear; }
  static uint thread_index_in_simdgroup() { return ksim_thread->lane; }
  static uint simdgroup_index_in_threadgroup() { return ksim_thread->warp; }
  static uint simdgroups_per_threadgroup() { return ksim_block->warps; }
  static uint dispatch_simdgroups_per_threadgroup() {
    KsimDim d = ksim_block->nominal_size;
    return (d.x * d.y * d.z + 31) / 32;
  }
  static uint threads_per_simdgroup() { return 32; }
  static uint thread_execution_width() { return 32; }
  static uint thread_index_in_quadgroup() { return ksim_thread->lane & 3; }
  static uint quadgroup_index_in_threadgroup() { return ksim_thread->linear / 4; }
  static uint quadgroups_per_threadgroup() { return (ksim_block->threads + 3) / 4; }
  static uint dispatch_quadgroups_per_threadgroup() {
    KsimDim d = ksim_block->nominal_size;
    return (d.x * d.y * d.z + 3) / 4;
  }
};
}  // namespace metal
