// A warp takes one hidden number of TOKENS tokens: a row of the gate and the row of `up` as far below it.
#include "warp.cuh"
#include "dense.cuh"
#include "swiglu.cuh"

extern "C" __global__ void project_swiglu(const Weight* weights, const u16* scales, const float* x, float* hidden,
                                          int inputs, int width, int count) {
    const int row = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (row >= width) {
        return;
    }
    const int first = blockIdx.y * TOKENS;
    const float* inputs_of[TOKENS];
    for (int token = 0; token < TOKENS; token++) {
        inputs_of[token] = x + (long long)min(first + token, count - 1) * inputs;
    }
    float gate[TOKENS], up[TOKENS];
    row_dots<TOKENS>(weights, scales, row, inputs_of, inputs, gate);
    row_dots<TOKENS>(weights, scales, width + row, inputs_of, inputs, up);
    if (threadIdx.x % WARP == 0) {
        for (int token = 0; token < TOKENS && first + token < count; token++) {
            hidden[(long long)(first + token) * width + row] = clamped_swiglu(gate[token], up[token]);
        }
    }
}
