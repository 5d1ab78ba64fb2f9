// For the shared expert and the routed ones, which have the same input.
#include "warp.cuh"
#include "quantise.cuh"

extern "C" __global__ void quantise_both(const float* x, signed char* dense_codes, float* dense_scales,
                                         signed char* expert_codes, float* expert_scales, short* expert_sums,
                                         int width) {
    Eight eight;
    if (load_eight(x, width, blockIdx.y, eight)) {
        store_dense_codes(eight, dense_codes, dense_scales);
        store_expert_codes(eight, expert_codes, expert_scales, expert_sums);
    }
}
