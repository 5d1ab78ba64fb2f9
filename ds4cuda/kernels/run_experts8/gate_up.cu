// Blocks (hidden numbers, slot, token), the first slot being the shared expert's: a warp takes ROWS hidden numbers, rows
// of the gate and the same ones of `up`.
#include "warp.cuh"
#include "dot8.cuh"
#include "dense8.cuh"
#include "coded_part.cuh"
#include "block_type.cuh"
#include "expert_rows8.cuh"
#include "swiglu.cuh"

// ROWS hidden numbers from `first` on, of sums that lanes have shares of.
__device__ __forceinline__ void store_hidden(float* of_gate, float* of_up, float share, int first, float* hidden) {
    warp_sums<ROWS>(of_gate);
    warp_sums<ROWS>(of_up);
    const int lane = threadIdx.x % WARP, number = first + sum_of_lane<ROWS>(lane);
    if (holds_sum<ROWS>(lane) && number < EXPERT_WIDTH) {
        hidden[number] = clamped_swiglu(of_gate[0], of_up[0]) * share;
    }
}

extern "C" __global__ void gate_up8(const u8* gate, const u8* up, const uint2* table, const signed char* codes,
                                    const float* scales, const short* code_sums, const int* chosen,
                                    const float* shares, float* hidden, const signed char* shared_weights,
                                    const u16* shared_scales, const signed char* dense_codes,
                                    const float* dense_scales, float* shared_hidden) {
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int first = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * ROWS;
    if (first >= EXPERT_WIDTH) {
        return;
    }
    const long long token = blockIdx.z;
    float of_gate[ROWS] = {}, of_up[ROWS] = {};
    if (blockIdx.y == 0) {  // takes longest, and so comes first
        const signed char* const codes_of[1] = {dense_codes + token * WIDTH};
        const float* const scales_of[1] = {dense_scales + token * (WIDTH / 32)};
        row_shares<ROWS, 1>(shared_weights, shared_scales, first, EXPERT_WIDTH, codes_of, scales_of, WIDTH, of_gate);
        row_shares<ROWS, 1>(shared_weights, shared_scales, EXPERT_WIDTH + first, 2 * EXPERT_WIDTH, codes_of, scales_of,
                            WIDTH, of_up);
        store_hidden(of_gate, of_up, 1.0f, first, shared_hidden + token * EXPERT_WIDTH);
        return;
    }
    const long long pair = token * USED + blockIdx.y - 1;
    const long long row = (long long)chosen[pair] * EXPERT_WIDTH, last = row + EXPERT_WIDTH - 1;
    codes += token * WIDTH;
    scales += token * (WIDTH / 256);
    code_sums += token * (WIDTH / 16);
    add_row_shares<ROWS>(gate, row + first, last, codes, scales, code_sums, WIDTH, magnitudes, of_gate);
    add_row_shares<ROWS>(up, row + first, last, codes, scales, code_sums, WIDTH, magnitudes, of_up);
    store_hidden(of_gate, of_up, shares[pair], first, hidden + pair * EXPERT_WIDTH);
}
