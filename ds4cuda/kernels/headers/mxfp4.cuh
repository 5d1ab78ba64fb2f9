// MXFP4: 32 weights in 17 bytes: the exponent of their scale; 16 bytes of 4-bit codes, low nibbles before high
// ones. A code is a sign bit and one of 0, 0.5, 1, 1.5, 2, 3, 4, 6. Names as in iq2_xxs.cuh. Spec: model 3.0.
constexpr int BLOCK_WEIGHTS = 32;
constexpr int BLOCK_BYTES = 17;
constexpr int MAGNITUDES = 1;

// Twice the number of a code, which is a whole one.
__device__ __forceinline__ float doubled(u32 code) {
    const u32 size = code & 7u;
    const u32 twice = size < 2u ? size : (2u + (size & 1u)) << ((size >> 1) - 1u);
    return code & 8u ? -(float)twice : (float)twice;
}

__device__ __forceinline__ void part_weights(const u8* block, int, const uint2*, float* weights) {
    const float step = ldexpf(0.5f, (int)block[0] - 127);
#pragma unroll
    for (int at = 0; at < 16; at++) {
        weights[at] = doubled(block[1 + at] & 15u) * step;
        weights[16 + at] = doubled(block[1 + at] >> 4) * step;
    }
}
