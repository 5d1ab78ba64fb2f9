// A warp takes ROWS outputs of TOKENS tokens. Of several groups, each multiplies its own part of the codes; a warp's
// rows are of one group.
#include "warp.cuh"
#include "dot8.cuh"
#include "dense8.cuh"

constexpr int SUMS = ROWS * TOKENS;

extern "C" __global__ void project8(const signed char* weights, const u16* scales, const signed char* codes,
                                    const float* code_scales, float* y, int inputs, int outputs, int groups,
                                    int count) {
    const int each = outputs / groups, warps = (each + ROWS - 1) / ROWS;
    const int warp = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, group = warp / warps;
    if (group >= groups) {
        return;
    }
    const int first = blockIdx.y * TOKENS, row = group * each + warp % warps * ROWS, rows = (group + 1) * each;
    const signed char* codes_of[TOKENS];
    const float* scales_of[TOKENS];
#pragma unroll
    for (int token = 0; token < TOKENS; token++) {
        const long long part = (long long)min(first + token, count - 1) * groups + group;
        codes_of[token] = codes + part * inputs;
        scales_of[token] = code_scales + part * (inputs / 32);
    }
    float sums[SUMS];
    row_shares<ROWS, TOKENS>(weights, scales, row, rows, codes_of, scales_of, inputs, sums);
    warp_sums<SUMS>(sums);
    const int lane = threadIdx.x % WARP, sum = sum_of_lane<SUMS>(lane);
    const int output = row + sum / TOKENS, token = first + sum % TOKENS;
    if (holds_sum<SUMS>(lane) && output < rows && token < count) {
        y[(long long)token * outputs + output] = sums[0];
    }
}
