// Blocks (outputs, tokens): TILE_ROWS outputs of TOKENS tokens. Of several groups, each multiplies its own part of the
// codes; a block's rows are of one group.
#include "warp.cuh"
#include "tensor_cores.cuh"
#include "dense_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    tile_project(const signed char* weights, const u16* scales, const signed char* codes, const float* code_scales,
                 float* y, int inputs, int outputs, int groups, int count) {
    __shared__ uint4 shared[SHARED_BYTES / 16];
    const int each = outputs / groups, blocks = (each + TILE_ROWS - 1) / TILE_ROWS, group = blockIdx.x / blocks;
    const int row = group * each + blockIdx.x % blocks * TILE_ROWS, end = (group + 1) * each;
    const int first = blockIdx.y * TOKENS, tokens = min(TOKENS, count - first);
    const long long stride = (long long)groups * inputs, start = first * stride + (long long)group * inputs;
    const Rows rows = {row, end, row + TILE_ROWS / 2, end};
    const float* products = tile_products(shared, weights, scales, rows, codes + start, code_scales + start / 32,
                                          stride, inputs, tokens);
    for (int task = threadIdx.x; task < tokens * TILE_ROWS; task += THREADS) {
        const int token = task / TILE_ROWS, output = task % TILE_ROWS;
        if (row + output < end) {
            y[(long long)(first + token) * outputs + row + output] = products[token * ROOM + output];
        }
    }
}
