// A block for each slice of the vocabulary: weights of its tokens. Their sums are by slice, or where the order is from
// the top by the highest eight bits of that order.
#include "warp.cuh"
#include "draw.cuh"

extern "C" __global__ void draw_weigh(const float* logits, const u8* allowed, const float* bests, const int* ids,
                                      u64* weights, u64* sums, int* counts, int vocabulary, double temperature,
                                      double min_p) {
    __shared__ u64 of_warps[THREADS / WARP];
    __shared__ u64 weight_of[DIGITS];
    __shared__ int count_of[DIGITS];
    const int each = slice_size(vocabulary), first = blockIdx.x * each, end = min(vocabulary, first + each);
    const double best = best_of_slices(bests, ids).logit;
    for (int digit = threadIdx.x; FROM_TOP && digit < DIGITS; digit += THREADS) {
        weight_of[digit] = 0;
        count_of[digit] = 0;
    }
    __syncthreads();
    u64 own = 0, all;
    for (int at = first + threadIdx.x; at < end; at += THREADS) {
        u64 weight = 0;
        if (is_finite(logits[at]) && (!MASKED || allowed[at])) {
            const double part = exp((logits[at] - best) / temperature);
            // No weight rounds to nothing: what may be drawn stays different from what may not.
            weight = FROM_TOP || part >= min_p ? max((u64)(in_units(part) + 0.5), 1ull) : 0;
        }
        weights[at] = weight;
        own += weight;
        if (FROM_TOP && weight > 0) {
            const u32 digit = ordered(logits[at]) >> 24;
            atomicAdd(&weight_of[digit], weight);
            atomicAdd(&count_of[digit], 1);
        }
    }
    if (!FROM_TOP) {
        sum_before<THREADS>(own, of_warps, all);
        if (threadIdx.x == 0) {
            sums[blockIdx.x] = all;
        }
        return;
    }
    __syncthreads();
    for (int digit = threadIdx.x; digit < DIGITS; digit += THREADS) {
        if (count_of[digit] > 0) {
            atomicAdd(&sums[digit], weight_of[digit]);
            atomicAdd(&counts[digit], count_of[digit]);
        }
    }
}
