// Blocks (channels, token): the outputs of a token's slots, in order, are added to the shared expert's.
#include "warp.cuh"

extern "C" __global__ void add_slots(const float* outputs, float* y) {
    const long long token = blockIdx.y;
    const int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= WIDTH) {
        return;
    }
    float sum = 0.0f;
    for (int slot = 0; slot < USED; slot++) {
        sum += outputs[(token * USED + slot) * WIDTH + channel];
    }
    y[token * WIDTH + channel] += sum;
}
