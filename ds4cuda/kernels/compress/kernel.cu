// Blocks (window, kind): the attention row and, where there is an indexer, the index row of each window that the
// step completes; blocks beyond the last such window have nothing to do.
#include "warp.cuh"
#include "block.cuh"
#include "rounding.cuh"
#include "rotary.cuh"
#include "row_type.cuh"
#include "cached_row.cuh"
#include "index_vector.cuh"

constexpr int HALVES = RATIO == 4 ? 2 : 1;
constexpr int SLOTS = HALVES * RATIO;
constexpr float NO_SCORE = -1e30f;

// Frontier rows of the step's own tokens, and of earlier ones from the ring.
struct Rows {
    const float* own;
    const float* ring;
    int start;

    __device__ __forceinline__ const float* at(int position) const {
        return position < start ? ring + (long long)(position % SLOTS) * FRONTIER
                                : own + (long long)(position - start) * FRONTIER;
    }
};

// One channel of a window's row: the softmax of its tokens' scores times their values. A token's first half serves
// the next window and its second half its own. `first` is the window's first position.
__device__ float pooled(const Rows& rows, int first, int channel, int width, int column) {
    const int begin = HALVES == 2 && first > 0 ? first - RATIO : first;
    float largest = NO_SCORE;
    for (int position = begin; position < first + RATIO; position++) {
        const int own = HALVES == 2 && position >= first ? width : 0;
        largest = fmaxf(largest, rows.at(position)[column + HALVES * width + own + channel]);
    }
    if (largest <= NO_SCORE / 2) {
        return 0.0f;
    }
    float sum = 0.0f, total = 0.0f;
    for (int position = begin; position < first + RATIO; position++) {
        const int place = column + (HALVES == 2 && position >= first ? width : 0) + channel;
        const float weight = expf(rows.at(position)[place + HALVES * width] - largest);
        sum += weight * rows.at(position)[place];
        total += weight;
    }
    return sum / total;
}

__device__ __forceinline__ void store_index_row(const float* row, const float* norm, const float2* turns,
                                                float* to, float squares) {
    const float scale = 1.0f / sqrtf(squares / INDEX_DIM + EPSILON);
    const int lane = threadIdx.x, channel = 4 * lane, tail = INDEX_DIM - ROTARY_DIM;
    float4 v = make_float4(row[channel] * scale * norm[channel], row[channel + 1] * scale * norm[channel + 1],
                           row[channel + 2] * scale * norm[channel + 2],
                           row[channel + 3] * scale * norm[channel + 3]);
    if (channel >= tail) {
        const float2 one = turned(make_float2(v.x, v.y), turns[(channel - tail) / 2]);
        const float2 two = turned(make_float2(v.z, v.w), turns[(channel - tail) / 2 + 1]);
        v = make_float4(one.x, one.y, two.x, two.y);
    }
    if (ROUNDS) {
        v = round_fp4(hadamard(v, lane));
    }
    to[channel] = v.x;
    to[channel + 1] = v.y;
    to[channel + 2] = v.z;
    to[channel + 3] = v.w;
}

extern "C" __global__ void compress(const float* own, const float* ring, const float* norm, const float* index_norm,
                                    const double* frequencies, const int* position, Row* rows, float* index_rows,
                                    int count) {
    const int start = *position, window = start / RATIO + blockIdx.x;
    if (window >= (start + count) / RATIO) {
        return;
    }
    const Rows frontier = {own, ring, start};
    __shared__ float row[HEAD_DIM];
    __shared__ float2 turns[ROTARY_DIM / 2];
    __shared__ float scratch[THREADS / WARP];
    const int width = blockIdx.y == 0 ? HEAD_DIM : INDEX_DIM;
    const int column = blockIdx.y == 0 ? 0 : 2 * HALVES * HEAD_DIM;
    for (int channel = threadIdx.x; channel < width; channel += THREADS) {
        row[channel] = pooled(frontier, window * RATIO, channel, width, column);
    }
    for (int pair = threadIdx.x; pair < ROTARY_DIM / 2; pair += THREADS) {
        turns[pair] = rotation(window * RATIO, frequencies[pair]);
    }
    __syncthreads();
    if (blockIdx.y == 0) {
        store_row(row, norm, turns, rows + (long long)window * HEAD_DIM, scratch);
        return;
    }
    const float value = threadIdx.x < INDEX_DIM ? row[threadIdx.x] : 0.0f;
    const float squares = block_sum<THREADS>(value * value, scratch);
    if (threadIdx.x < WARP) {
        store_index_row(row, index_norm, turns, index_rows + (long long)window * INDEX_DIM, squares);
    }
}
