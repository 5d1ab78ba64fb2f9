// Blocks (outputs, token): a warp takes one output, the sum over the token's slots in order and the shared expert.
#include "warp.cuh"
#include "dense.cuh"
#include "block_type.cuh"
#include "expert_rows.cuh"

extern "C" __global__ void down(const u8* blocks, const uint2* table, const int* chosen, const float* hidden,
                                const signed char* shared_codes, const u16* shared_scales,
                                const float* shared_hidden, float* y) {
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int output = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (output >= WIDTH) {
        return;
    }
    const long long token = blockIdx.y;
    float sum = 0.0f;
    for (int slot = 0; slot < USED; slot++) {
        const long long pair = token * USED + slot;
        const long long row = (long long)chosen[pair] * WIDTH + output;
        sum += row_share(blocks, row, hidden + pair * EXPERT_WIDTH, EXPERT_WIDTH, magnitudes);
    }
    sum = warp_sum(sum);
    const float* const of_token[1] = {shared_hidden + token * EXPERT_WIDTH};
    float shared[1];
    row_dots<1>(shared_codes, shared_scales, output, of_token, EXPERT_WIDTH, shared);
    if (threadIdx.x % WARP == 0) {
        y[token * WIDTH + output] = sum + shared[0];
    }
}
