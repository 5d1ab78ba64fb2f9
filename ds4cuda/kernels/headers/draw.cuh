// Weights of tokens and their sums, for a draw. A weight is a whole number of units, 0 of a token that cannot be
// drawn, so that sums do not depend on their order. Follows warp.cuh. Spec: model 6.1.
typedef unsigned long long u64;

// A part of the best token's weight.
__device__ __forceinline__ double in_units(double part) { return part * (double)(1ull << UNIT_BITS); }

struct Best {
    float logit;
    int id;
};

__device__ __forceinline__ Best better(Best one, Best other) {
    return other.logit > one.logit || (other.logit == one.logit && other.id < one.id) ? other : one;
}

__device__ __forceinline__ Best warp_best(Best best) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        best = better(best, Best{across(best.logit, distance), across(best.id, distance)});
    }
    return best;
}

// Of all slices, in every lane; its id is no token where nothing can be drawn.
__device__ __forceinline__ Best best_of_slices(const float* logits, const int* ids) {
    const int lane = threadIdx.x % WARP;
    Best best = {logits[lane], ids[lane]};
    for (int slice = lane + WARP; slice < SLICES; slice += WARP) {
        best = better(best, Best{logits[slice], ids[slice]});
    }
    return warp_best(best);
}

// Tokens of a slice; the last may have fewer.
__device__ __forceinline__ int slice_size(int vocabulary) { return (vocabulary + SLICES - 1) / SLICES; }

__device__ __forceinline__ bool is_finite(float logit) { return fabsf(logit) <= 3.402823466e38f; }

// Unsigned numbers in the order of the floats; both zeros are one number.
__device__ __forceinline__ u32 ordered(float logit) {
    const u32 bits = __float_as_uint(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The sum that uses up `part` of `total`, in whole units; at least that of a first token.
__device__ __forceinline__ u64 share_of(double part, u64 total) {
    return min(max((u64)(part * (double)total), 1ull), total);
}

// The sum up to each lane, its own number included.
__device__ __forceinline__ u64 warp_until(u64 number) {
    const int lane = threadIdx.x % WARP;
    for (int distance = 1; distance < WARP; distance *= 2) {
        const u64 before = from_lane(number, max(lane - distance, 0));
        number += lane >= distance ? before : 0;
    }
    return number;
}

// The sum of the numbers of the threads before each, and by reference that of all. `of_warps` has one for a warp.
template <int THREADS>
__device__ __forceinline__ u64 sum_before(u64 number, u64* of_warps, u64& all) {
    const int warp = threadIdx.x / WARP;
    const u64 until = warp_until(number);
    __syncthreads();
    if (threadIdx.x % WARP == WARP - 1) {
        of_warps[warp] = until;
    }
    __syncthreads();
    u64 before = until - number;
    all = 0;
    for (int other = 0; other < THREADS / WARP; other++) {
        before += other < warp ? of_warps[other] : 0;
        all += of_warps[other];
    }
    return before;
}

// Where the sum of value(0), value(1), ... reaches `limit`, which is above 0; the first `size` of them do.
template <int THREADS, class Value>
__device__ __forceinline__ int place_of(u64 limit, int size, Value value, u64* of_warps, int* place) {
    const int each = (size + THREADS - 1) / THREADS;
    const int first = min(size, (int)threadIdx.x * each), end = min(size, first + each);
    u64 own = 0, all;
    for (int at = first; at < end; at++) {
        own += value(at);
    }
    u64 reached = sum_before<THREADS>(own, of_warps, all);
    if (reached < limit && limit <= reached + own) {
        int at = first;
        for (reached += value(at); reached < limit; reached += value(at)) {
            at++;
        }
        *place = at;
    }
    __syncthreads();
    return *place;
}
