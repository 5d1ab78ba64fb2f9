// Blocks (rows, tokens): a warp scores ROWS_EACH compressed rows, which it keeps, for TOKENS tokens one after the other,
// on tensor cores. Every row is summed in the same order, so that equal rows get equal scores.
#include "warp.cuh"
#include "tensor_cores.cuh"

constexpr int INDEX_DIM = 128;
constexpr int PITCH = INDEX_DIM + 8;  // numbers from head to head, so that eight heads lie in different banks
constexpr int HEADS = (INDEX_HEADS + 15) / 16 * 16;
constexpr int PARTS = INDEX_DIM / 16;
constexpr int COLUMNS = 4;
constexpr int ROWS_EACH = 8 * COLUMNS;

__device__ __forceinline__ u32 pair_of(float first, float second) {
    return to_half(first) | (u32)to_half(second) << 16;
}

// The lane's numbers of the rows from `first` on; rows that do not exist are read as the last.
__device__ __forceinline__ void load_rows(const float* index_rows, int first, int rows, u32 (*keys)[PARTS][2]) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
        const long long row = min(first + 8 * column + lane / 4, rows - 1);
        const float2* numbers = (const float2*)(index_rows + row * INDEX_DIM) + lane % 4;
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const float2 low = numbers[8 * part], high = numbers[8 * part + 4];
            keys[column][part][0] = pair_of(low.x, low.y);
            keys[column][part][1] = pair_of(high.x, high.y);
        }
    }
}

// Queries of a token and the weights of its heads; zeros for heads that do not exist. All threads take part.
__device__ __forceinline__ void load_heads(const float* from, const float* weights, u16* queries, float* shares) {
    for (int task = threadIdx.x; task < HEADS * INDEX_DIM / 2; task += THREADS) {
        const int head = task / (INDEX_DIM / 2), pair = task % (INDEX_DIM / 2);
        const float2 numbers = head < INDEX_HEADS ? ((const float2*)from)[task] : make_float2(0.0f, 0.0f);
        *(u32*)(queries + head * PITCH + 2 * pair) = pair_of(numbers.x, numbers.y);
    }
    for (int head = threadIdx.x; head < HEADS; head += THREADS) {
        shares[head] = head < INDEX_HEADS ? weights[head] * SHARE_SCALE : 0.0f;
    }
}

// Scores of the warp's rows: of each column those of rows 2 (lane % 4) and the next.
__device__ __forceinline__ void score_rows(const u16* queries, const float* shares, const u32 (*keys)[PARTS][2],
                                           float (*scores)[2]) {
    const int lane = threadIdx.x % WARP;
    for (int first = 0; first < HEADS; first += 16) {
        u32 heads[PARTS][4];
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            load_fragments(queries + (first + lane % 16) * PITCH + 16 * part + lane / 16 * 8, heads[part]);
        }
        const float upper = shares[first + lane / 4], lower = shares[first + lane / 4 + 8];
#pragma unroll
        for (int column = 0; column < COLUMNS; column++) {
            float dots[4] = {};
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                multiply_halves(dots, heads[part], keys[column][part]);
            }
#pragma unroll
            for (int at = 0; at < 2; at++) {
                scores[column][at] += fmaxf(dots[at], 0.0f) * upper + fmaxf(dots[2 + at], 0.0f) * lower;
            }
        }
    }
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (int at = 0; at < 2; at++) {
            for (int distance = 4; distance < WARP; distance *= 2) {
                scores[column][at] += across(scores[column][at], distance);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    tile_index_scores(const float* queries, const float* projected, const float* index_rows, const int* position,
                      float* scores, int first, int rows, int tokens) {
    __shared__ uint4 shared[HEADS * PITCH / 8];
    __shared__ float shares[HEADS];
    u16* heads = (u16*)shared;
    const int lane = threadIdx.x % WARP, begin = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * ROWS_EACH;
    u32 keys[COLUMNS][PARTS][2];
    load_rows(index_rows, begin, rows, keys);
    const int last = min(tokens, ((int)blockIdx.y + 1) * TOKENS);
    for (int at = blockIdx.y * TOKENS; at < last; at++) {
        const long long token = first + at;
        __syncthreads();
        load_heads(queries + token * INDEX_HEADS * INDEX_DIM, projected + token * COMPRESSOR + FRONTIER, heads, shares);
        __syncthreads();
        const int visible = (*position + (int)token + 1) / 4;
        float own[COLUMNS][2] = {};
        if (begin < visible) {
            score_rows(heads, shares, keys, own);
        }
        if (lane < 4) {
#pragma unroll
            for (int place = 0; place < 2 * COLUMNS; place++) {
                const int row = begin + place / 2 * 8 + lane * 2 + place % 2;
                if (row < rows) {
                    const float score = own[place / 2][place % 2];
                    scores[(long long)at * rows + row] = row < visible ? score : __uint_as_float(0xFF800000u);
                }
            }
        }
    }
}
