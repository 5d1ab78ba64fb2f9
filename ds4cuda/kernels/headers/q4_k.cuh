// Q4_K: 256 weights in 144 bytes: half d; half dmin; 12 bytes of eight 6-bit scales and minima, one pair for 32
// weights; 128 bytes of 4-bit codes, low nibbles of 32 bytes before their high ones. Names as in iq2_xxs.cuh.
// Spec: model 3.
constexpr int BLOCK_WEIGHTS = 256;
constexpr int BLOCK_BYTES = 144;
constexpr int MAGNITUDES = 1;

__device__ __forceinline__ void part_weights(const u8* block, int part, const uint2*, float* weights) {
    const float d = from_half(*(const u16*)block), least = from_half(*(const u16*)(block + 2));
    const u8* packed = block + 4 + part % 4;
    const u32 low = packed[0], middle = packed[4], high = packed[8];
    const float step = d * (float)(part < 4 ? low & 63u : (high & 15u) | low >> 6 << 4);
    const float minimum = least * (float)(part < 4 ? middle & 63u : high >> 4 | middle >> 6 << 4);
    const u8* codes = block + 16 + part / 2 * 32;
#pragma unroll
    for (int at = 0; at < 32; at++) {
        weights[at] = step * (float)(codes[at] >> 4 * (part % 2) & 15) - minimum;
    }
}
