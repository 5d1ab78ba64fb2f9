// One block for each token.
#include "warp.cuh"
#include "block.cuh"

extern "C" __global__ void steer(const float* direction, const float* scale, float* output) {
    __shared__ float scratch[THREADS / WARP];
    float* row = output + (long long)blockIdx.x * WIDTH;
    float along = 0.0f;
    for (int channel = threadIdx.x; channel < WIDTH; channel += THREADS) {
        along += direction[channel] * row[channel];
    }
    const float taken = *scale * block_sum<THREADS>(along, scratch);
    for (int channel = threadIdx.x; channel < WIDTH; channel += THREADS) {
        row[channel] -= taken * direction[channel];
    }
}
