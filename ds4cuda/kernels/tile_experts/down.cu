// Blocks (outputs, group): TILE_ROWS rows times the hidden vectors of a group's pairs.
#include "warp.cuh"
#include "dot8.cuh"
#include "tensor_cores.cuh"
#include "coded_part.cuh"
#include "block_type.cuh"
#include "expert_tile.cuh"

constexpr int ROOM = TILE_ROWS + 4;  // floats from vector to vector: lanes that write meet different banks
static_assert(VECTORS * ROOM * sizeof(float) <= sizeof(Tile), "products fit into the tile");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    tile_down(const u8* down, const uint2* table, const u8* codes, const float* scales, const short* code_sums,
              const int* order, const int* group_expert, const int* group_first, const int* group_count,
              float* outputs) {
    const int count = group_count[blockIdx.y];
    if (count == 0) {
        return;
    }
    extern __shared__ uint4 shared[];
    Tile& tile = *(Tile*)shared;
    const Quantised hidden = {codes, scales, code_sums};
    const int* pairs = order + group_first[blockIdx.y];
    const long long row = (long long)group_expert[blockIdx.y] * WIDTH + blockIdx.x * TILE_ROWS;
    constexpr long long ROW_BYTES = (long long)(EXPERT_WIDTH / BLOCK_WEIGHTS) * BLOCK_BYTES;
    const u8* upper = down + row * ROW_BYTES;
    const u8* lower = upper + TILE_ROWS / 2 * ROW_BYTES;
    float sums[COLUMNS][4];
    expert_products(tile, upper, lower, table, hidden, EXPERT_WIDTH, pairs, count, 1, sums);
    __syncthreads();
    float* products = (float*)shared;
    put_products(sums, count, products, ROOM);
    __syncthreads();
    for (int task = threadIdx.x; task < count * TILE_ROWS; task += THREADS) {
        const int vector = task / TILE_ROWS, output = task % TILE_ROWS;
        outputs[(long long)pairs[vector] * WIDTH + blockIdx.x * TILE_ROWS + output] = products[vector * ROOM + output];
    }
}
