// Random weights, made where they are used. What an element becomes depends on its number and the seed alone.
#include "warp.cuh"

__device__ __forceinline__ u32 mixed(unsigned long long number, u32 seed) {
    u32 word = (u32)number * 0x9E3779B1u ^ (u32)(number >> 32) * 0x85EBCA77u ^ seed;
    word = (word ^ word >> 16) * 0x7FEB352Du;
    word = (word ^ word >> 15) * 0x846CA68Bu;
    return word ^ word >> 16;
}

// Blocks of `period` 16-bit words of random codes, with the binary16 number `scale` at up to two places.
extern "C" __global__ void fill_blocks(u16* to, unsigned long long count, int period, int place, int other_place,
                                       int scale, u32 seed) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        const int within = at % period;
        to[at] = within == place || within == other_place ? (u16)scale : (u16)mixed(at, seed);
    }
}

// Binary16 numbers, evenly between -size and size.
extern "C" __global__ void fill_halves(u16* to, unsigned long long count, float size, u32 seed) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        to[at] = to_half(((int)(mixed(at, seed) >> 8) - (1 << 23)) * (size / (1 << 23)));
    }
}
