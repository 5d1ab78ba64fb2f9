// The 8-bit codes of IQ2_XXS: a magnitude with its sign; an odd number up to 31 scales 32 of them. Follows
// iq2_xxs.cuh.
//
// The headers of all block types have the same names, so one kernel text serves every type. A weight is scale * factor
// * code - least * minimum, scale and least of its block, the others of its part of 32 weights:
//   FACTORS, Factor: whether the type has a factor beside the code, and the number that it is; `factor` makes it of
//     the byte that `part_factor` reads
//   MINIMA: whether it has a minimum; `part_minima` are two bytes, below 128 each, for 16 weights each
//   block_scales: scale and least
//   part_codes: 32 signed bytes
constexpr bool FACTORS = true;
constexpr bool MINIMA = false;
typedef int Factor;

__device__ __forceinline__ float2 block_scales(const u8* block) {
    return make_float2(0.125f * from_half(*(const u16*)block), 0.0f);
}

__device__ __forceinline__ u8 part_factor(const u8* block, int part) {
    return 2 * (((const u16*)block)[4 + 4 * part] >> 12) + 1;
}

__device__ __forceinline__ Factor factor(u32 byte) { return (Factor)byte; }

__device__ __forceinline__ u16 part_minima(const u8*, int) { return 0; }

// Four magnitudes, those negative that the low bits of `signs` name. No magnitude is zero, so that no byte's
// negation carries into the next.
__device__ __forceinline__ u32 with_signs(u32 sizes, u32 signs) {
    const u32 negative = ((signs & 15u) * 0x00204081u & 0x01010101u) * 255u;
    return (sizes ^ negative) + (negative & 0x01010101u);
}

__device__ __forceinline__ void part_codes(const u8* block, int part, const uint2* magnitudes, u32* codes) {
    const u16* words = (const u16*)block + 1 + 4 * part;
    const u32 octets = words[0] | (u32)words[1] << 16;
    const u32 signs = words[2] | (u32)words[3] << 16;
#pragma unroll
    for (int octet = 0; octet < 4; octet++) {
        const uint2 sizes = magnitudes[octets >> 8 * octet & 255u];
        u32 negative = signs >> 7 * octet & 127u;
        negative |= (__popc(negative) & 1u) << 7;  // an even number of weights is negative
        codes[2 * octet] = with_signs(sizes.x, negative);
        codes[2 * octet + 1] = with_signs(sizes.y, negative >> 4);
    }
}
