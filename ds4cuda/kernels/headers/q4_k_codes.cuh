// The 8-bit codes of Q4_K: 4-bit codes; a 6-bit factor and a 6-bit minimum for 32 of them. Names as in
// iq2_xxs_codes.cuh. Follows q4_k.cuh.
constexpr bool FACTORS = true;
constexpr bool MINIMA = true;
typedef int Factor;

__device__ __forceinline__ float2 block_scales(const u8* block) {
    return make_float2(from_half(*(const u16*)block), from_half(*(const u16*)(block + 2)));
}

__device__ __forceinline__ u8 part_factor(const u8* block, int part) {
    const u8* packed = block + 4 + part % 4;
    return part < 4 ? packed[0] & 63u : (packed[8] & 15u) | packed[0] >> 6 << 4;
}

__device__ __forceinline__ Factor factor(u32 byte) { return (Factor)byte; }

__device__ __forceinline__ u16 part_minima(const u8* block, int part) {
    const u8* packed = block + 4 + part % 4;
    return (part < 4 ? packed[4] & 63u : packed[8] >> 4 | packed[4] >> 6 << 4) * 257u;
}

// Blocks are aligned to 16 bytes.
__device__ __forceinline__ void part_codes(const u8* block, int part, const uint2*, u32* codes) {
    const u32* words = (const u32*)(block + 16 + part / 2 * 32);
#pragma unroll
    for (int word = 0; word < 8; word++) {
        codes[word] = words[word] >> 4 * (part % 2) & 0x0F0F0F0Fu;
    }
}
