// Blocks (hidden numbers, group): a warp takes one hidden number of a group's pairs, which share an expert, so that each
// weight is unpacked once for all of them.
#include "warp.cuh"
#include "block_type.cuh"
#include "expert_rows.cuh"
#include "swiglu.cuh"

extern "C" __global__ void group_gate_up(const u8* gate, const u8* up, const uint2* table, const float* x,
                                         const int* order, const int* group_expert, const int* group_first,
                                         const int* group_count, const float* shares, float* hidden) {
    const int count = group_count[blockIdx.y];
    if (count == 0) {
        return;
    }
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int number = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (number >= EXPERT_WIDTH) {
        return;
    }
    const int* own = order + group_first[blockIdx.y];
    const long long row = (long long)group_expert[blockIdx.y] * EXPERT_WIDTH + number;
    const float* inputs[GROUP];
    float of_gate[GROUP], of_up[GROUP];
#pragma unroll
    for (int at = 0; at < GROUP; at++) {
        inputs[at] = x + (long long)(own[min(at, count - 1)] / USED) * WIDTH;
        of_gate[at] = of_up[at] = 0.0f;
    }
    add_row_shares<GROUP>(gate, row, inputs, WIDTH, magnitudes, of_gate);
    add_row_shares<GROUP>(up, row, inputs, WIDTH, magnitudes, of_up);
    warp_sums<GROUP>(of_gate);
    warp_sums<GROUP>(of_up);
    const int lane = threadIdx.x % WARP, at = sum_of_lane<GROUP>(lane);
    if (holds_sum<GROUP>(lane) && at < count) {
        const long long pair = own[at];
        hidden[pair * EXPERT_WIDTH + number] = clamped_swiglu(of_gate[0], of_up[0]) * shares[pair];
    }
}
