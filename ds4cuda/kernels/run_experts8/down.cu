// Blocks (outputs, token): a warp takes ROWS outputs. A lane adds its shares of the shared expert and of the token's
// slots in order, then lanes are summed.
#include "warp.cuh"
#include "dot8.cuh"
#include "dense8.cuh"
#include "coded_part.cuh"
#include "block_type.cuh"
#include "expert_rows8.cuh"

extern "C" __global__ void down8(const u8* blocks, const uint2* table, const int* chosen, const signed char* codes,
                                 const float* scales, const short* code_sums, const signed char* shared_weights,
                                 const u16* shared_scales, const signed char* shared_codes,
                                 const float* shared_code_scales, float* y) {
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int first = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * ROWS;
    if (first >= WIDTH) {
        return;
    }
    const long long token = blockIdx.y;
    const signed char* const codes_of[1] = {shared_codes + token * EXPERT_WIDTH};
    const float* const scales_of[1] = {shared_code_scales + token * (EXPERT_WIDTH / 32)};
    float sums[ROWS];
    row_shares<ROWS, 1>(shared_weights, shared_scales, first, WIDTH, codes_of, scales_of, EXPERT_WIDTH, sums);
    for (int slot = 0; slot < USED; slot++) {
        const long long pair = token * USED + slot;
        const long long row = (long long)chosen[pair] * WIDTH, last = row + WIDTH - 1;
        add_row_shares<ROWS>(blocks, row + first, last, codes + pair * EXPERT_WIDTH,
                             scales + pair * (EXPERT_WIDTH / 256), code_sums + pair * (EXPERT_WIDTH / 16),
                             EXPERT_WIDTH, magnitudes, sums);
    }
    warp_sums<ROWS>(sums);
    const int lane = threadIdx.x % WARP, output = first + sum_of_lane<ROWS>(lane);
    if (holds_sum<ROWS>(lane) && output < WIDTH) {
        y[token * WIDTH + output] = sums[0];
    }
}
