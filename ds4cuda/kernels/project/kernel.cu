// A warp takes one output of TOKENS tokens. Of several groups, each multiplies its own part of the input.
#include "warp.cuh"
#include "dense.cuh"

extern "C" __global__ void project(const Weight* weights, const u16* scales, const float* x, float* y, int inputs,
                                   int outputs, int groups, int count) {
    const int row = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (row >= outputs) {
        return;
    }
    const int first = blockIdx.y * TOKENS, group = row / (outputs / groups);
    const float* inputs_of[TOKENS];
    for (int token = 0; token < TOKENS; token++) {
        inputs_of[token] = x + ((long long)min(first + token, count - 1) * groups + group) * inputs;
    }
    float dots[TOKENS];
    row_dots<TOKENS>(weights, scales, row, inputs_of, inputs, dots);
    if (threadIdx.x % WARP == 0) {
        for (int token = 0; token < TOKENS && first + token < count; token++) {
            y[(long long)(first + token) * outputs + row] = dots[token];
        }
    }
}
