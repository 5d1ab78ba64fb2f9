// One block for each token: the TOP_K-th largest score by its bits, eight at a time from the top, then the rows
// above it and, in ascending order, as many equal ones as there is room for.
#include "warp.cuh"

constexpr int WARPS = THREADS / WARP;

// Unsigned numbers in the order of the floats; both zeros are one number.
__device__ __forceinline__ u32 ordered(float score) {
    const u32 bits = __float_as_uint(score + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The place of each thread where `taken` among all such threads before it, and by reference how many there are.
__device__ __forceinline__ int place_among(bool taken, int* of_warps, int& all) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 lanes = lanes_where(taken);
    __syncthreads();
    if (lane == 0) {
        of_warps[warp] = __popc(lanes);
    }
    __syncthreads();
    int before = __popc(lanes & ((1u << lane) - 1u));
    all = 0;
    for (int other = 0; other < WARPS; other++) {
        before += other < warp ? of_warps[other] : 0;
        all += of_warps[other];
    }
    return before;
}

extern "C" __global__ void top_k(const float* scores, const int* position, int* chosen, int first, int rows) {
    const int token = first + blockIdx.x, visible = min((*position + token + 1) / 4, rows);
    const float* from = scores + (long long)blockIdx.x * rows;
    int* to = chosen + (long long)token * TOP_K;
    if (visible <= TOP_K) {
        for (int at = threadIdx.x; at < TOP_K; at += THREADS) {
            to[at] = at < visible ? at : -1;
        }
        return;
    }
    __shared__ int counts[256];
    __shared__ int of_warps[WARPS];
    __shared__ u32 found;
    __shared__ int wanted;
    u32 prefix = 0;
    int left = TOP_K;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int digit = threadIdx.x; digit < 256; digit += THREADS) {
            counts[digit] = 0;
        }
        __syncthreads();
        const u32 above = shift == 24 ? 0u : 0xFFFFFFFFu << (shift + 8);
        for (int row = threadIdx.x; row < visible; row += THREADS) {
            const u32 key = ordered(from[row]);
            if ((key & above) == prefix) {
                atomicAdd(&counts[key >> shift & 255u], 1);
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255, rest = left;
            while (counts[digit] < rest) {
                rest -= counts[digit];
                digit--;
            }
            found = prefix | (u32)digit << shift;
            wanted = rest;
        }
        __syncthreads();
        prefix = found;
        left = wanted;
    }
    int taken_before = 0, equal_before = 0;
    for (int base = 0; base < visible; base += THREADS) {
        const int row = base + threadIdx.x;
        const u32 key = row < visible ? ordered(from[row]) : 0u;
        int equal_here, taken_here;
        const bool equal = row < visible && key == prefix;
        const int rank = equal_before + place_among(equal, of_warps, equal_here);
        const bool taken = row < visible && (key > prefix || (equal && rank < left));
        const int place = taken_before + place_among(taken, of_warps, taken_here);
        if (taken) {
            to[place] = row;
        }
        equal_before += equal_here;
        taken_before += taken_here;
    }
}
