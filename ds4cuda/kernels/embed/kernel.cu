// One block for each token.
#include "warp.cuh"

extern "C" __global__ void embed(const int* tokens, const u16* embedding, float* streams) {
    const u16* row = embedding + (long long)tokens[blockIdx.x] * WIDTH;
    float* to = streams + (long long)blockIdx.x * STREAMS * WIDTH;
    for (int channel = threadIdx.x; channel < WIDTH; channel += blockDim.x) {
        const float value = from_half(row[channel]);
        for (int stream = 0; stream < STREAMS; stream++) {
            to[stream * WIDTH + channel] = value;
        }
    }
}
