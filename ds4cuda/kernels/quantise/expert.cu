// For routed experts.
#include "warp.cuh"
#include "quantise.cuh"

extern "C" __global__ void quantise_expert(const float* x, signed char* codes, float* scales, short* sums, int width) {
    Eight eight;
    if (load_eight(x, width, blockIdx.y, eight)) {
        store_expert_codes(eight, codes, scales, sums);
    }
}
