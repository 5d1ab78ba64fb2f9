// A block takes THREADS channels of all streams of one token, a channel a thread.
#include "warp.cuh"

constexpr int JOINT = STREAMS * (1 + STREAMS);

extern "C" __global__ void hyper_mix(float* streams, const float* output, const float* joint, const u16* mix,
                                     float* partial) {
    const long long token = blockIdx.y;
    const int channel = blockIdx.x * THREADS + threadIdx.x;
    __shared__ float of_warps[THREADS / WARP][MIXES + 1];
    float sums[MIXES + 1];
    for (int m = 0; m <= MIXES; m++) {
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
            for (int m = 0; m < MIXES; m++) {
                sums[m] += from_half(mix[(long long)(m * STREAMS + s) * WIDTH + channel]) * x[s];
            }
            sums[MIXES] += x[s] * x[s];
        }
    }
    for (int m = 0; m <= MIXES; m++) {
        const float sum = warp_sum(sums[m]);
        if (threadIdx.x % WARP == 0) {
            of_warps[threadIdx.x / WARP][m] = sum;
        }
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
