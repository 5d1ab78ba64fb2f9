// A block takes THREADS channels of all streams of one token, a channel a thread.
#include "warp.cuh"

constexpr int JOINT = STREAMS * (1 + STREAMS);
constexpr int SUMS = MIXES < 8 ? 8 : 32;  // a power of two above MIXES
static_assert(MIXES < SUMS, "more sums than lanes");

extern "C" __global__ void hyper_mix(float* streams, const float* output, const float* joint, const u16* mix,
                                     float* partial) {
    const long long token = blockIdx.y;
    const int channel = blockIdx.x * THREADS + threadIdx.x;
    __shared__ float of_warps[THREADS / WARP][MIXES + 1];
    float sums[SUMS];
#pragma unroll
    for (int m = 0; m < SUMS; m++) {
        sums[m] = 0.0f;
    }
    if (channel < WIDTH) {
        float* place = streams + token * STREAMS * WIDTH + channel;
        float x[STREAMS];
        for (int s = 0; s < STREAMS; s++) {
            x[s] = place[s * WIDTH];
        }
        if (JOINS) {
            const float* weights = joint + token * JOINT;
            const float y = output[token * WIDTH + channel];
            float joined[STREAMS];
            for (int to = 0; to < STREAMS; to++) {
                joined[to] = weights[to] * y;
                for (int from = 0; from < STREAMS; from++) {
                    joined[to] += weights[STREAMS + from * STREAMS + to] * x[from];
                }
            }
            for (int s = 0; s < STREAMS; s++) {
                x[s] = joined[s];
                place[s * WIDTH] = x[s];
            }
        }
        for (int s = 0; s < STREAMS; s++) {
#pragma unroll
            for (int m = 0; m < MIXES; m++) {
                sums[m] += from_half(mix[(long long)(m * STREAMS + s) * WIDTH + channel]) * x[s];
            }
            sums[MIXES] += x[s] * x[s];
        }
    }
    warp_sums<SUMS>(sums);
    const int lane = threadIdx.x % WARP, number = sum_of_lane<SUMS>(lane);
    if (holds_sum<SUMS>(lane) && number <= MIXES) {
        of_warps[threadIdx.x / WARP][number] = sums[0];
    }
    __syncthreads();
    for (int m = threadIdx.x; m <= MIXES; m += THREADS) {
        float sum = 0.0f;
        for (int warp = 0; warp < THREADS / WARP; warp++) {
            sum += of_warps[warp][m];
        }
        partial[(token * gridDim.x + blockIdx.x) * (MIXES + 1) + m] = sum;
    }
}
