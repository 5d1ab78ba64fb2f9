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
