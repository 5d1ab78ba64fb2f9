// IQ2_XXS for integer products. The block is that of iq2_xxs.cuh, the names are those of coded_part.cuh.
constexpr int BLOCK_WEIGHTS = 256;
constexpr int BLOCK_BYTES = 66;
constexpr int MAGNITUDES = 256;

// Four bytes with their signs; a set bit of four is a minus. No magnitude is 0, so no byte overflows into the next.
__device__ __forceinline__ u32 with_signs(u32 sizes, u32 minus) {
    const u32 ones = minus * 0x00204081u & 0x01010101u;
    return (sizes ^ ones * 255u) + ones;
}

// Blocks are aligned to two bytes only.
__device__ __forceinline__ CodedPart coded_part(const u8* block, int part, const uint2* magnitudes) {
    const u16* words = (const u16*)block + 1 + 4 * part;
    const u32 octets = words[0] | (u32)words[1] << 16;
    const u32 signs = words[2] | (u32)words[3] << 16;
    CodedPart coded;
#pragma unroll
    for (int octet = 0; octet < 4; octet++) {
        const uint2 sizes = magnitudes[octets >> 8 * octet & 255u];
        u32 minus = signs >> 7 * octet & 127u;
        minus |= (__popc(minus) & 1u) << 7;  // an even number of weights is negative
        coded.codes[2 * octet] = with_signs(sizes.x, minus & 15u);
        coded.codes[2 * octet + 1] = with_signs(sizes.y, minus >> 4);
    }
    coded.steps[0] = coded.steps[1] = 2 * (int)(signs >> 28) + 1;
    coded.minima[0] = coded.minima[1] = 0;
    coded.step = from_half(*(const u16*)block) * 0.125f;
    coded.least = 0.0f;
    return coded;
}
