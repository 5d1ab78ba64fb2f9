// Blocks (rows, token): a thread scores one compressed row, head by head in order, so that equal rows get equal
// scores.
#include "warp.cuh"

constexpr int INDEX_DIM = 128;

extern "C" __global__ void index_scores(const float* queries, const float* projected, const float* index_rows,
                                        const int* position, float* scores, int first, int rows) {
    const long long token = first + blockIdx.y;
    const int row = blockIdx.x * THREADS + threadIdx.x;
    __shared__ float4 query[INDEX_HEADS * INDEX_DIM / 4];
    __shared__ float share[INDEX_HEADS];
    const float4* from = (const float4*)(queries + token * INDEX_HEADS * INDEX_DIM);
    for (int at = threadIdx.x; at < INDEX_HEADS * INDEX_DIM / 4; at += THREADS) {
        query[at] = from[at];
    }
    for (int head = threadIdx.x; head < INDEX_HEADS; head += THREADS) {
        share[head] = projected[token * COMPRESSOR + FRONTIER + head] * SHARE_SCALE;
    }
    __syncthreads();
    if (row >= rows) {
        return;
    }
    float* score = scores + (long long)blockIdx.y * rows + row;
    if (row >= (*position + (int)token + 1) / 4) {
        *score = __uint_as_float(0xFF800000u);  // minus infinity
        return;
    }
    const float4* key = (const float4*)(index_rows + (long long)row * INDEX_DIM);
    float4 own[INDEX_DIM / 4];
    for (int at = 0; at < INDEX_DIM / 4; at++) {
        own[at] = key[at];
    }
    float sum = 0.0f;
    for (int head = 0; head < INDEX_HEADS; head++) {
        const float4* q = query + head * (INDEX_DIM / 4);
        float dot = 0.0f;
        for (int at = 0; at < INDEX_DIM / 4; at++) {
            dot += q[at].x * own[at].x + q[at].y * own[at].y + q[at].z * own[at].z + q[at].w * own[at].w;
        }
        sum += fmaxf(dot, 0.0f) * share[head];
    }
    *score = sum;
}
