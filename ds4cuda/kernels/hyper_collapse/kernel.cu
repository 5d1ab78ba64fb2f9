// One block for each token.
#include "warp.cuh"
#include "block.cuh"

constexpr int JOINT = STREAMS * (1 + STREAMS);
constexpr int EACH = (WIDTH + THREADS - 1) / THREADS;

__device__ __forceinline__ float sigmoid(float value) { return 1.0f / (1.0f + expf(-value)); }

// The Sinkhorn rounds of a 4 x 4 matrix, an entry a lane; half of the warp repeats the other half.
__device__ __forceinline__ float balanced(float entry) {
    float largest = fmaxf(entry, across(entry, 1));
    largest = fmaxf(largest, across(largest, 2));
    entry = expf(entry - largest);
    float row = entry + across(entry, 1);
    row += across(row, 2);
    entry = entry / row + MIX_EPSILON;
    for (int round = 0; round < ROUNDS; round++) {
        if (round > 0) {
            row = entry + across(entry, 1);
            row += across(row, 2);
            entry /= row + MIX_EPSILON;
        }
        float column = entry + across(entry, 4);
        column += across(column, 8);
        entry /= column + MIX_EPSILON;
    }
    return entry;
}

extern "C" __global__ void hyper_collapse(const float* streams, const float* partial, const float* scale,
                                          const float* base, const float* norm, float* x, float* joint,
                                          int slices) {
    const long long token = blockIdx.x;
    __shared__ float sums[MIXES + 1];
    __shared__ float pre[STREAMS];
    __shared__ float scratch[THREADS / WARP];
    for (int m = threadIdx.x; m <= MIXES; m += THREADS) {
        float sum = 0.0f;
        for (int slice = 0; slice < slices; slice++) {
            sum += partial[(token * slices + slice) * (MIXES + 1) + m];
        }
        sums[m] = sum;
    }
    __syncthreads();
    const float inverse = 1.0f / sqrtf(sums[MIXES] / (STREAMS * WIDTH) + EPSILON);
    if (threadIdx.x < STREAMS) {
        const int s = threadIdx.x;
        pre[s] = sigmoid(sums[s] * inverse * scale[s] + base[s]) + MIX_EPSILON;
    }
    if (!HEAD && threadIdx.x < WARP) {
        const int entry = threadIdx.x % (STREAMS * STREAMS), m = 2 * STREAMS + entry;
        const float combine = balanced(sums[m] * inverse * scale[m] + base[m]);
        if (threadIdx.x < STREAMS * STREAMS) {
            joint[token * JOINT + STREAMS + entry] = combine;
        }
        if (threadIdx.x < STREAMS) {
            const int post = STREAMS + threadIdx.x;
            joint[token * JOINT + threadIdx.x] = 2.0f * sigmoid(sums[post] * inverse * scale[post] + base[post]);
        }
    }
    __syncthreads();
    const float* from = streams + token * STREAMS * WIDTH;
    float values[EACH];
    float squares = 0.0f;
    for (int at = 0; at < EACH; at++) {
        const int channel = at * THREADS + threadIdx.x;
        values[at] = 0.0f;
        if (channel < WIDTH) {
            for (int s = 0; s < STREAMS; s++) {
                values[at] += pre[s] * from[s * WIDTH + channel];
            }
        }
        squares += values[at] * values[at];
    }
    const float divisor = 1.0f / sqrtf(block_sum<THREADS>(squares, scratch) / WIDTH + EPSILON);
    for (int at = 0; at < EACH; at++) {
        const int channel = at * THREADS + threadIdx.x;
        if (channel < WIDTH) {
            x[token * WIDTH + channel] = values[at] * divisor * norm[channel];
        }
    }
}
