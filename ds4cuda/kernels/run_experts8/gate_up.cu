// Blocks (hidden numbers, slot, token): a warp takes ROWS hidden numbers, rows of the gate and the same ones of `up`.
#include "warp.cuh"
#include "dot8.cuh"
#include "coded_part.cuh"
#include "block_type.cuh"
#include "expert_rows8.cuh"
#include "swiglu.cuh"

extern "C" __global__ void gate_up8(const u8* gate, const u8* up, const uint2* table, const signed char* codes,
                                    const float* scales, const short* code_sums, const int* chosen,
                                    const float* shares, float* hidden) {
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int first = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * ROWS;
    if (first >= EXPERT_WIDTH) {
        return;
    }
    const long long token = blockIdx.z, pair = token * USED + blockIdx.y;
    const long long row = (long long)chosen[pair] * EXPERT_WIDTH, last = row + EXPERT_WIDTH - 1;
    codes += token * WIDTH;
    scales += token * (WIDTH / 256);
    code_sums += token * (WIDTH / 16);
    float of_gate[ROWS] = {}, of_up[ROWS] = {};
    add_row_shares<ROWS>(gate, row + first, last, codes, scales, code_sums, WIDTH, magnitudes, of_gate);
    add_row_shares<ROWS>(up, row + first, last, codes, scales, code_sums, WIDTH, magnitudes, of_up);
    warp_sums<ROWS>(of_gate);
    warp_sums<ROWS>(of_up);
    const int lane = threadIdx.x % WARP, number = first + sum_of_lane<ROWS>(lane);
    if (holds_sum<ROWS>(lane) && number < EXPERT_WIDTH) {
        hidden[pair * EXPERT_WIDTH + number] = clamped_swiglu(of_gate[0], of_up[0]) * shares[pair];
    }
}
