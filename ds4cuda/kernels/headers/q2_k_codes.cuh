// The 8-bit codes of Q2_K: a 2-bit code times its 4-bit scale, at most 45, so that no factor is left. Names as in
// iq2_xxs_codes.cuh. Follows q2_k.cuh.
constexpr bool FACTORS = false;
constexpr bool MINIMA = true;
typedef int Factor;

__device__ __forceinline__ float2 block_scales(const u8* block) {
    return make_float2(from_half(*(const u16*)(block + 80)), from_half(*(const u16*)(block + 82)));
}

__device__ __forceinline__ u8 part_factor(const u8*, int) { return 1; }

__device__ __forceinline__ Factor factor(u32 byte) { return (Factor)byte; }

__device__ __forceinline__ u16 part_minima(const u8* block, int part) {
    return ((const u16*)block)[part] >> 4 & 0x0F0Fu;
}

// Blocks are aligned to four bytes.
__device__ __forceinline__ void part_codes(const u8* block, int part, const uint2*, u32* codes) {
    const u32* words = (const u32*)(block + 16 + part / 4 * 32);
#pragma unroll
    for (int word = 0; word < 8; word++) {
        const u32 scale = block[2 * part + word / 4] & 15u;
        codes[word] = (words[word] >> 2 * (part % 4) & 0x03030303u) * scale;
    }
}
