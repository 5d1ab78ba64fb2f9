// Blocks (outputs, group): a warp takes one output of a group's pairs.
#include "warp.cuh"
#include "block_type.cuh"
#include "expert_rows.cuh"

extern "C" __global__ void group_down(const u8* blocks, const uint2* table, const int* order,
                                      const int* group_expert, const int* group_first, const int* group_count,
                                      const float* hidden, float* outputs) {
    const int count = group_count[blockIdx.y];
    if (count == 0) {
        return;
    }
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int output = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (output >= WIDTH) {
        return;
    }
    const int* own = order + group_first[blockIdx.y];
    const long long row = (long long)group_expert[blockIdx.y] * WIDTH + output;
    const float* inputs[GROUP];
    float sums[GROUP];
#pragma unroll
    for (int at = 0; at < GROUP; at++) {
        inputs[at] = hidden + (long long)own[min(at, count - 1)] * EXPERT_WIDTH;
        sums[at] = 0.0f;
    }
    add_row_shares<GROUP>(blocks, row, inputs, EXPERT_WIDTH, magnitudes, sums);
    warp_sums<GROUP>(sums);
    const int lane = threadIdx.x % WARP, at = sum_of_lane<GROUP>(lane);
    if (holds_sum<GROUP>(lane) && at < count) {
        outputs[(long long)own[at] * WIDTH + output] = sums[0];
    }
}
