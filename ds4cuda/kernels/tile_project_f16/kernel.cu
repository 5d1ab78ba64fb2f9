// Blocks (outputs, tokens): TILE_ROWS outputs of TOKENS tokens, 16 outputs and all tokens a warp, a step of 64 inputs at
// a time. An input is the sum of two binary16 numbers, so that its products are as exact as those of a float. A step
// is summed by itself: tensor cores cut what they add, floats round.
#include "warp.cuh"
#include "tensor_cores.cuh"

constexpr int STEP = 64;
constexpr int PITCH = STEP + 8;  // numbers from row to row, so that eight rows lie in different banks
constexpr int TILE_ROWS = THREADS / WARP * 16;
constexpr int COLUMNS = TOKENS / 8;
constexpr int ROOM = TILE_ROWS + 4;  // floats from token to token of the products

struct Tile {
    u16 rows[TILE_ROWS * PITCH];
    u16 tokens[2][TOKENS * PITCH];  // what a binary16 number holds of each input, and the rest
};
// The tile and the products take turns in this memory.
constexpr int SHARED_BYTES = sizeof(Tile) > 4 * TOKENS * ROOM ? sizeof(Tile) : 4 * TOKENS * ROOM;

__device__ __forceinline__ void copy_rows(Tile& tile, const u16* weights, int row, int outputs, int inputs, int step) {
    for (int task = threadIdx.x; task < TILE_ROWS * (STEP / 8); task += THREADS) {
        const int own = task / (STEP / 8), piece = task % (STEP / 8), column = step * STEP + 8 * piece;
        const u16* from = weights + (long long)min(row + own, outputs - 1) * inputs + column;
        *(uint4*)(tile.rows + own * PITCH + 8 * piece) =
            column < inputs ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
    }
}

__device__ __forceinline__ u32 pair_of(u16 first, u16 second) { return first | (u32)second << 16; }

// Of `padded` tokens, of which the last ones are read as the last that exists.
__device__ __forceinline__ void split_tokens(Tile& tile, const float* x, int inputs, int tokens, int padded, int step) {
    for (int task = threadIdx.x; task < padded * (STEP / 2); task += THREADS) {
        const int token = task / (STEP / 2), pair = task % (STEP / 2), column = step * STEP + 2 * pair;
        const float* from = x + (long long)min(token, tokens - 1) * inputs + column;
        const float2 numbers = column < inputs ? *(const float2*)from : make_float2(0.0f, 0.0f);
        const u16 most[2] = {to_half(numbers.x), to_half(numbers.y)};
        const u16 rest[2] = {to_half(numbers.x - from_half(most[0])), to_half(numbers.y - from_half(most[1]))};
        *(u32*)(tile.tokens[0] + token * PITCH + 2 * pair) = pair_of(most[0], most[1]);
        *(u32*)(tile.tokens[1] + token * PITCH + 2 * pair) = pair_of(rest[0], rest[1]);
    }
}

__device__ __forceinline__ void add_step(const Tile& tile, int tokens, float (*sums)[4]) {
    const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;
    u32 rows[STEP / 16][4];
#pragma unroll
    for (int part = 0; part < STEP / 16; part++) {
        load_fragments(tile.rows + (first + lane % 16) * PITCH + 16 * part + lane / 16 * 8, rows[part]);
    }
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
        if (8 * column < tokens) {
            float own[2][4] = {};
#pragma unroll
            for (int pair = 0; pair < STEP / 32; pair++) {
#pragma unroll
                for (int part = 0; part < 2; part++) {
                    u32 inputs[4];
                    const u16* from = tile.tokens[part] + (8 * column + lane % 8) * PITCH + 32 * pair + lane / 8 * 8;
                    load_fragments(from, inputs);
                    multiply_halves(own[part], rows[2 * pair], inputs);
                    multiply_halves(own[part], rows[2 * pair + 1], inputs + 2);
                }
            }
#pragma unroll
            for (int at = 0; at < 4; at++) {
                sums[column][at] += own[0][at] + own[1][at];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    tile_project_f16(const u16* weights, const float* x, float* y, int inputs, int outputs, int count) {
    __shared__ uint4 shared[SHARED_BYTES / 16];
    Tile& tile = *(Tile*)shared;
    const int row = blockIdx.x * TILE_ROWS, first = blockIdx.y * TOKENS, tokens = min(TOKENS, count - first);
    const int padded = (tokens + 7) / 8 * 8, steps = (inputs + STEP - 1) / STEP;
    float sums[COLUMNS][4];
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (int at = 0; at < 4; at++) {
            sums[column][at] = 0.0f;
        }
    }
    for (int step = 0; step < steps; step++) {
        copy_rows(tile, weights, row, outputs, inputs, step);
        split_tokens(tile, x + (long long)first * inputs, inputs, tokens, padded, step);
        __syncthreads();
        add_step(tile, tokens, sums);
        __syncthreads();
    }
    float* products = (float*)shared;
    const int lane = threadIdx.x % WARP, own = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (int at = 0; at < 4; at++) {
            products[(8 * column + lane % 4 * 2 + at % 2) * ROOM + own + at / 2 * 8] = sums[column][at];
        }
    }
    __syncthreads();
    for (int task = threadIdx.x; task < tokens * TILE_ROWS; task += THREADS) {
        const int token = task / TILE_ROWS, output = task % TILE_ROWS;
        if (row + output < outputs) {
            y[(long long)(first + token) * outputs + row + output] = products[token * ROOM + output];
        }
    }
}
