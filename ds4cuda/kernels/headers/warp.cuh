// All that a family of GPUs has its own words for: the warp, what its lanes exchange, and binary16 numbers as
// bits. A build for another family replaces this header alone. All lanes of a warp take part in each function.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

constexpr int WARP = 32;
constexpr u32 EVERY_LANE = 0xFFFFFFFFu;

template <class T>
__device__ __forceinline__ T from_lane(T value, int lane) {
    return __shfl_sync(EVERY_LANE, value, lane);
}

// The value of the lane whose number differs by the bits of `distance`.
template <class T>
__device__ __forceinline__ T across(T value, int distance) {
    return __shfl_xor_sync(EVERY_LANE, value, distance);
}

__device__ __forceinline__ u32 lanes_where(bool condition) { return __ballot_sync(EVERY_LANE, condition); }

__device__ __forceinline__ void wait_for_warp() { __syncwarp(EVERY_LANE); }

// Every lane gets the same bits: both sides of an exchange add the same two numbers.
__device__ __forceinline__ float warp_sum(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value += across(value, distance);
    }
    return value;
}

// The sums over the warp of N numbers of each lane, N a power of two: the lane gets, in values[0], the one whose
// number is sum_of_lane<N>(lane), with the bits that warp_sum gives. Lanes hand over half of what they hold at a
// time, so that 8 sums take 9 exchanges and not 40.
template <int N>
__device__ __forceinline__ void warp_sums(float* values) {
    const int lane = threadIdx.x % WARP;
    int distance = WARP / 2;
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2) {
        const bool upper = lane & distance;
#pragma unroll
        for (int at = 0; at < half; at++) {
            const float other = across(upper ? values[at] : values[at + half], distance);
            values[at] = (upper ? values[at + half] : values[at]) + other;
        }
        distance /= 2;
    }
    for (; distance > 0; distance /= 2) {
        values[0] += across(values[0], distance);
    }
}

template <int N>
__device__ __forceinline__ int sum_of_lane(int lane) {
    return lane / (WARP / N);
}

// Whether the lane is the first of those that hold its sum.
template <int N>
__device__ __forceinline__ bool holds_sum(int lane) {
    return lane % (WARP / N) == 0;
}

__device__ __forceinline__ float warp_max(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value = fmaxf(value, across(value, distance));
    }
    return value;
}

__device__ __forceinline__ float from_half(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// The nearest binary16 number, ties to even.
__device__ __forceinline__ u16 to_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
