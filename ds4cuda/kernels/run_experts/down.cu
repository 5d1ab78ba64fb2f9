// Blocks (outputs, token): a warp takes ROWS outputs. A lane adds its shares of the shared expert and of the
// token's slots in order, then lanes are summed.
#include "warp.cuh"
#include "dense.cuh"
#include "block_type.cuh"
#include "expert_rows.cuh"

extern "C" __global__ void down(const u8* blocks, const uint2* table, const int* chosen, const float* hidden,
                                const signed char* shared_codes, const u16* shared_scales,
                                const float* shared_hidden, float* y) {
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int first = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * ROWS;
    if (first >= WIDTH) {
        return;
    }
    const long long token = blockIdx.y;
    const float* const of_token[1] = {shared_hidden + token * EXPERT_WIDTH};
    float sums[ROWS];
    row_shares<ROWS, 1>(shared_codes, shared_scales, first, WIDTH, of_token, EXPERT_WIDTH, sums);
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        const int output = min(first + row, WIDTH - 1);
        for (int slot = 0; slot < USED; slot++) {
            const long long pair = token * USED + slot;
            const float* const input[1] = {hidden + pair * EXPERT_WIDTH};
            const long long place = (long long)chosen[pair] * WIDTH + output;
            add_row_shares<1>(blocks, place, input, EXPERT_WIDTH, magnitudes, sums + row);
        }
    }
    warp_sums<ROWS>(sums);
    const int lane = threadIdx.x % WARP, output = first + sum_of_lane<ROWS>(lane);
    if (holds_sum<ROWS>(lane) && output < WIDTH) {
        y[token * WIDTH + output] = sums[0];
    }
}
