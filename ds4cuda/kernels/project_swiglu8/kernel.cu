// A warp takes ROWS hidden numbers of TOKENS tokens: rows of the gate, and the rows of `up` as far below them.
#include "warp.cuh"
#include "dot8.cuh"
#include "dense8.cuh"
#include "swiglu.cuh"

constexpr int SUMS = ROWS * TOKENS;

extern "C" __global__ void project_swiglu8(const signed char* weights, const u16* scales, const signed char* codes,
                                           const float* code_scales, float* hidden, int inputs, int width,
                                           int count) {
    const int row = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * ROWS;
    if (row >= width) {
        return;
    }
    const int first = blockIdx.y * TOKENS;
    const signed char* codes_of[TOKENS];
    const float* scales_of[TOKENS];
#pragma unroll
    for (int token = 0; token < TOKENS; token++) {
        const long long number = min(first + token, count - 1);
        codes_of[token] = codes + number * inputs;
        scales_of[token] = code_scales + number * (inputs / 32);
    }
    float gate[SUMS], up[SUMS];
    row_shares<ROWS, TOKENS>(weights, scales, row, width, codes_of, scales_of, inputs, gate);
    row_shares<ROWS, TOKENS>(weights, scales, (long long)width + row, 2LL * width, codes_of, scales_of, inputs, up);
    warp_sums<SUMS>(gate);
    warp_sums<SUMS>(up);
    const int lane = threadIdx.x % WARP, sum = sum_of_lane<SUMS>(lane);
    const int number = row + sum / TOKENS, token = first + sum % TOKENS;
    if (holds_sum<SUMS>(lane) && number < width && token < count) {
        hidden[(long long)token * width + number] = clamped_swiglu(gate[0], up[0]);
    }
}
