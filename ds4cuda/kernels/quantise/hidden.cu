// The hidden vectors of a step, those of the routed experts first. Blocks (columns, vector).
#include "warp.cuh"
#include "quantise.cuh"

extern "C" __global__ void quantise_hidden(const float* hidden, signed char* expert_codes, float* expert_scales,
                                           short* expert_sums, const float* shared_hidden, signed char* dense_codes,
                                           float* dense_scales, int width, int pairs) {
    Eight eight;
    const int vector = blockIdx.y;
    if (vector < pairs && load_eight(hidden, width, vector, eight)) {
        store_expert_codes(eight, expert_codes, expert_scales, expert_sums);
    }
    if (vector >= pairs && load_eight(shared_hidden, width, vector - pairs, eight)) {
        store_dense_codes(eight, dense_codes, dense_scales);
    }
}
