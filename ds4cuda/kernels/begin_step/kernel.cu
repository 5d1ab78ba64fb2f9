// One block for each token of the step; the first notes position and token on the device.
#include "warp.cuh"
#include "rotary.cuh"

extern "C" __global__ void begin_step(const double* frequencies, float2* rotations, int* position, int* tokens,
                                      const int* chosen, int start, int token, int stride) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *position = start;
        tokens[0] = token >= 0 ? token : *chosen;
    }
    for (int at = threadIdx.x; at < 2 * PAIRS; at += blockDim.x) {
        const int kind = at / PAIRS;
        rotations[((long long)kind * stride + blockIdx.x) * PAIRS + at % PAIRS] =
            rotation(start + blockIdx.x, frequencies[at]);
    }
}
