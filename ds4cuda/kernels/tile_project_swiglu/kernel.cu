// Blocks (hidden numbers, tokens): TILE_ROWS / 2 rows of the gate, and the rows of `up` as far below them, for TOKENS
// tokens.
#include "warp.cuh"
#include "tensor_cores.cuh"
#include "dense_tile.cuh"
#include "swiglu.cuh"

constexpr int NUMBERS = TILE_ROWS / 2;

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    tile_project_swiglu(const signed char* weights, const u16* scales, const signed char* codes,
                        const float* code_scales, float* hidden, int inputs, int width, int count) {
    __shared__ uint4 shared[SHARED_BYTES / 16];
    const int row = blockIdx.x * NUMBERS;
    const int first = blockIdx.y * TOKENS, tokens = min(TOKENS, count - first);
    const long long start = (long long)first * inputs;
    const Rows rows = {row, width, (long long)width + row, 2LL * width};
    const float* products = tile_products(shared, weights, scales, rows, codes + start, code_scales + start / 32,
                                          inputs, inputs, tokens);
    for (int task = threadIdx.x; task < tokens * NUMBERS; task += THREADS) {
        const int token = task / NUMBERS, number = task % NUMBERS;
        if (row + number < width) {
            const float* own = products + token * ROOM + number;
            hidden[(long long)(first + token) * width + row + number] = clamped_swiglu(own[0], own[NUMBERS]);
        }
    }
}
