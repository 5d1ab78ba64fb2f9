// A block for each of the last tokens of a step of several: their frontier rows take their places in the ring.
#include "warp.cuh"

extern "C" __global__ void keep_frontier(const float* own, const int* position, float* ring, int first) {
    const int token = first + blockIdx.x;
    float* slot = ring + (long long)((*position + token) % FRONTIER_SLOTS) * FRONTIER;
    for (int column = threadIdx.x; column < FRONTIER; column += blockDim.x) {
        slot[column] = own[(long long)token * FRONTIER + column];
    }
}
