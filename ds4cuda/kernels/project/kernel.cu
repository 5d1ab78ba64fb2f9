// A warp takes ROWS outputs of TOKENS tokens. Of several groups, each multiplies its own part of the input; a warp's
// rows are of one group.
#include "warp.cuh"
#include "dense.cuh"

constexpr int SUMS = ROWS * TOKENS;

extern "C" __global__ void project(const Weight* weights, const u16* scales, const float* x, float* y, int inputs,
                                   int outputs, int groups, int count) {
    const int each = outputs / groups, warps = (each + ROWS - 1) / ROWS;
    const int warp = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, group = warp / warps;
    if (group >= groups) {
        return;
    }
    const int first = blockIdx.y * TOKENS, row = group * each + warp % warps * ROWS, rows = (group + 1) * each;
    const float* inputs_of[TOKENS];
#pragma unroll
    for (int token = 0; token < TOKENS; token++) {
        inputs_of[token] = x + ((long long)min(first + token, count - 1) * groups + group) * inputs;
    }
    float sums[SUMS];
    row_shares<ROWS, TOKENS>(weights, scales, row, rows, inputs_of, inputs, sums);
    warp_sums<SUMS>(sums);
    const int lane = threadIdx.x % WARP, sum = sum_of_lane<SUMS>(lane);
    const int output = row + sum / TOKENS, token = first + sum % TOKENS;
    if (holds_sum<SUMS>(lane) && output < rows && token < count) {
        y[(long long)token * outputs + output] = sums[0];
    }
}
