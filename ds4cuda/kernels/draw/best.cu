// A block for each slice of the vocabulary: its best logit, the lowest id on ties. The first clears the sums.
#include "warp.cuh"
#include "draw.cuh"

extern "C" __global__ void draw_best(const float* logits, const u8* allowed, float* bests, int* ids, u64* sums,
                                     int* counts, int vocabulary) {
    __shared__ float best_of[THREADS / WARP];
    __shared__ int id_of[THREADS / WARP];
    const int each = slice_size(vocabulary), first = blockIdx.x * each, end = min(vocabulary, first + each);
    Best best = {__uint_as_float(0xFF800000u), vocabulary};
    for (int at = first + threadIdx.x; at < end; at += THREADS) {
        if (is_finite(logits[at]) && (!MASKED || allowed[at])) {
            best = better(best, Best{logits[at], at});
        }
    }
    best = warp_best(best);
    if (threadIdx.x % WARP == 0) {
        best_of[threadIdx.x / WARP] = best.logit;
        id_of[threadIdx.x / WARP] = best.id;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / WARP; warp++) {
            best = better(best, Best{best_of[warp], id_of[warp]});
        }
        bests[blockIdx.x] = best.logit;
        ids[blockIdx.x] = best.id;
    }
    for (int digit = threadIdx.x; blockIdx.x == 0 && digit < DIGITS; digit += THREADS) {
        sums[digit] = 0;
        counts[digit] = 0;
    }
}
