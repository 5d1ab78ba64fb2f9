// For Q8_0 matrices.
#include "warp.cuh"
#include "quantise.cuh"

extern "C" __global__ void quantise_dense(const float* x, signed char* codes, float* scales, int width) {
    Eight eight;
    if (load_eight(x, width, blockIdx.y, eight)) {
        store_dense_codes(eight, codes, scales);
    }
}
