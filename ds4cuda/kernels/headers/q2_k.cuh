// Q2_K: 256 weights in 84 bytes: 16 bytes (4-bit scale, 4-bit minimum), one for 16 weights; 64 bytes of 2-bit
// codes, four planes in each 32 bytes; half d; half dmin. Names as in iq2_xxs.cuh. Spec: model 3.
constexpr int BLOCK_WEIGHTS = 256;
constexpr int BLOCK_BYTES = 84;
constexpr int MAGNITUDES = 1;

__device__ __forceinline__ void part_weights(const u8* block, int part, const uint2*, float* weights) {
    const u8* codes = block + 16 + part / 4 * 32;
    const float d = from_half(*(const u16*)(block + 80)), least = from_half(*(const u16*)(block + 82));
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const u32 steps = block[2 * part + half];
        const float step = d * (float)(steps & 15u), minimum = least * (float)(steps >> 4);
#pragma unroll
        for (int at = 16 * half; at < 16 * half + 16; at++) {
            weights[at] = step * (float)(codes[at] >> 2 * (part % 4) & 3) - minimum;
        }
    }
}
