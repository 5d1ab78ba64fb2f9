// Blocks (hidden numbers, slot, token): a warp takes ROWS hidden numbers, rows of the gate and the same ones of `up`.
#include "warp.cuh"
#include "block_type.cuh"
#include "expert_rows.cuh"
#include "swiglu.cuh"

extern "C" __global__ void gate_up(const u8* gate, const u8* up, const uint2* table, const float* x,
                                   const int* chosen, const float* shares, float* hidden) {
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int first = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * ROWS;
    if (first >= EXPERT_WIDTH) {
        return;
    }
    const long long token = blockIdx.z, pair = token * USED + blockIdx.y;
    const long long rows = (long long)chosen[pair] * EXPERT_WIDTH;
    const float* const input[1] = {x + token * WIDTH};
    float of_gate[ROWS], of_up[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        const long long place = rows + min(first + row, EXPERT_WIDTH - 1);
        of_gate[row] = of_up[row] = 0.0f;
        add_row_shares<1>(gate, place, input, WIDTH, magnitudes, of_gate + row);
        add_row_shares<1>(up, place, input, WIDTH, magnitudes, of_up + row);
    }
    warp_sums<ROWS>(of_gate);
    warp_sums<ROWS>(of_up);
    const int lane = threadIdx.x % WARP, number = first + sum_of_lane<ROWS>(lane);
    if (holds_sum<ROWS>(lane) && number < EXPERT_WIDTH) {
        hidden[pair * EXPERT_WIDTH + number] = clamped_swiglu(of_gate[0], of_up[0]) * shares[pair];
    }
}
