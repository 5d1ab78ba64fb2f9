// Blocks (hidden numbers, group): TILE_ROWS / 2 rows of the gate and the same of `up` times the vectors of a group's
// pairs.
#include "warp.cuh"
#include "dot8.cuh"
#include "tensor_cores.cuh"
#include "coded_part.cuh"
#include "block_type.cuh"
#include "expert_tile.cuh"
#include "swiglu.cuh"

constexpr int NUMBERS = TILE_ROWS / 2;
constexpr int ROOM = TILE_ROWS + 4;  // floats from vector to vector: lanes that write meet different banks
static_assert(VECTORS * ROOM * sizeof(float) <= sizeof(Tile), "products fit into the tile");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    tile_gate_up(const u8* gate, const u8* up, const uint2* table, const u8* codes, const float* scales,
                 const short* code_sums, const int* order, const int* group_expert, const int* group_first,
                 const int* group_count, const float* shares, float* hidden) {
    const int count = group_count[blockIdx.y];
    if (count == 0) {
        return;
    }
    extern __shared__ uint4 shared[];
    Tile& tile = *(Tile*)shared;
    const Quantised x = {codes, scales, code_sums};
    const int* pairs = order + group_first[blockIdx.y];
    const long long row = (long long)group_expert[blockIdx.y] * EXPERT_WIDTH + blockIdx.x * NUMBERS;
    const long long at_byte = row * (WIDTH / BLOCK_WEIGHTS) * BLOCK_BYTES;
    float sums[COLUMNS][4];
    expert_products(tile, gate + at_byte, up + at_byte, table, x, WIDTH, pairs, count, USED, sums);
    __syncthreads();
    float* products = (float*)shared;
    put_products(sums, count, products, ROOM);
    __syncthreads();
    for (int task = threadIdx.x; task < count * NUMBERS; task += THREADS) {
        const int vector = task / NUMBERS, number = task % NUMBERS;
        const float* own = products + vector * ROOM + number;
        const long long pair = pairs[vector];
        hidden[pair * EXPERT_WIDTH + blockIdx.x * NUMBERS + number] =
            clamped_swiglu(own[0], own[NUMBERS]) * shares[pair];
    }
}
