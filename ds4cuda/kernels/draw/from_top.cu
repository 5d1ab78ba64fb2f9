// One block: the draw from the largest logit down, among the first of that order. How far these reach is told by the
// sum of their weights, which grows with each token: the smallest such sum is the nearest end.
#include "warp.cuh"
#include "draw.cuh"

constexpr int DIGITS_EACH = DIGITS / WARP;

// Equal logits at some depth: their order, and the numbers and weights above them and of each.
struct Level {
    u32 key;
    u64 weight_above;
    u64 count_above;
    u64 weight_each;
};

struct Bins {
    u64 weights[DIGITS];
    int counts[DIGITS];
    Level level;
};

// By the first warp: the bin, from the last one on, in which the weights or numbers reach `limit`.
template <bool BY_WEIGHT>
__device__ __forceinline__ void enter_bin(Bins& bins, Level level, int shift, u64 limit) {
    int digit = DIGITS - 1 - (int)threadIdx.x * DIGITS_EACH;
    u64 weight = 0, count = 0;
    for (int at = 0; at < DIGITS_EACH; at++) {
        weight += bins.weights[digit - at];
        count += bins.counts[digit - at];
    }
    level.weight_above += warp_until(weight) - weight;
    level.count_above += warp_until(count) - count;
    const u64 reached = BY_WEIGHT ? level.weight_above : level.count_above;
    if (reached >= limit || limit > reached + (BY_WEIGHT ? weight : count)) {
        return;
    }
    while (BY_WEIGHT ? level.weight_above + bins.weights[digit] < limit
                     : level.count_above + bins.counts[digit] < limit) {
        level.weight_above += bins.weights[digit];
        level.count_above += bins.counts[digit];
        digit--;
    }
    level.key |= (u32)digit << shift;
    level.weight_each = bins.weights[digit] / bins.counts[digit];
    bins.level = level;
}

// The level at which the weights or numbers of tokens from the top reach `limit`. `sums` and `counts` are those of
// the bins of the highest digit.
template <bool BY_WEIGHT>
__device__ __forceinline__ Level descend(const float* logits, const u64* weights, const u64* sums, const int* counts,
                                         int vocabulary, u64 limit, Bins& bins) {
    Level level = {0, 0, 0, 0};
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        for (int digit = threadIdx.x; digit < DIGITS; digit += THREADS) {
            bins.weights[digit] = shift == 24 ? sums[digit] : 0;
            bins.counts[digit] = shift == 24 ? counts[digit] : 0;
        }
        __syncthreads();
        for (int at = threadIdx.x; shift < 24 && at < vocabulary; at += THREADS) {
            const u32 key = ordered(logits[at]);
            if (weights[at] > 0 && key >> (shift + 8) == level.key >> (shift + 8)) {
                atomicAdd(&bins.weights[key >> shift & 255u], weights[at]);
                atomicAdd(&bins.counts[key >> shift & 255u], 1);
            }
        }
        __syncthreads();
        if (threadIdx.x < WARP) {
            enter_bin<BY_WEIGHT>(bins, level, shift, limit);
        }
        __syncthreads();
        level = bins.level;
    }
    return level;
}

// How many of the level's tokens it takes to reach `limit`.
__device__ __forceinline__ u64 tokens_to(u64 limit, Level level) {
    return (limit - level.weight_above + level.weight_each - 1) / level.weight_each;
}

// So many threads fit only if the compiler keeps to the registers that there are for each.
extern "C" __global__ void __launch_bounds__(THREADS)
    draw_from_top(const float* logits, const u64* weights, const u64* sums, const int* counts, int* token,
                  int vocabulary, double uniform, double top_p, double min_p, int first_k, int fallback) {
    __shared__ Bins bins;
    __shared__ u64 of_warps[THREADS / WARP];
    __shared__ int place;
    u64 kept = 0, count = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        kept += sums[digit];
        count += counts[digit];
    }
    if (count == 0) {
        if (threadIdx.x == 0) {
            *token = fallback;
        }
        return;
    }
    const u64 top_k = first_k;
    if (top_k > 0 && top_k < count) {
        const Level level = descend<false>(logits, weights, sums, counts, vocabulary, top_k, bins);
        kept = level.weight_above + (top_k - level.count_above) * level.weight_each;
    }
    if (top_p < 1.0) {
        const u64 limit = share_of(top_p, kept);
        const Level level = descend<true>(logits, weights, sums, counts, vocabulary, limit, bins);
        kept = level.weight_above + tokens_to(limit, level) * level.weight_each;
    }
    if (min_p > 0.0) {
        u64 own = 0, heavy;
        for (int at = threadIdx.x; at < vocabulary; at += THREADS) {
            own += (double)weights[at] >= in_units(min_p) ? weights[at] : 0;
        }
        sum_before<THREADS>(own, of_warps, heavy);
        kept = min(kept, max(heavy, (u64)in_units(1.0)));  // the best is never dropped
    }
    const u64 limit = share_of(uniform, kept);
    const Level level = descend<true>(logits, weights, sums, counts, vocabulary, limit, bins);
    const auto equal = [=](int at) { return (u64)(weights[at] > 0 && ordered(logits[at]) == level.key); };
    const int at = place_of<THREADS>(tokens_to(limit, level), vocabulary, equal, of_warps, &place);
    if (threadIdx.x == 0) {
        *token = at;
    }
}
