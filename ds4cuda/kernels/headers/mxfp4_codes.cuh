// The 8-bit codes of MXFP4: twice the number of a 4-bit code; a power of two scales 32 of them. Names as in
// iq2_xxs_codes.cuh. Follows dot8.cuh and mxfp4.cuh.
constexpr bool FACTORS = true;
constexpr bool MINIMA = false;
typedef float Factor;

__device__ __forceinline__ float2 block_scales(const u8*) { return make_float2(0.5f, 0.0f); }

__device__ __forceinline__ u8 part_factor(const u8* block, int) { return block[0]; }

// Two to the power of the exponent, of which 127 counts as 0; the least one makes a subnormal number.
__device__ __forceinline__ Factor factor(u32 exponent) {
    return __uint_as_float(exponent > 0u ? exponent << 23 : 1u << 22);
}

__device__ __forceinline__ u16 part_minima(const u8*, int) { return 0; }

// Numbers of the codes in the low halves of four bytes.
__device__ __forceinline__ u32 four_numbers(u32 bytes) {
    const u32 pairs = (bytes & 0x07070707u) | (bytes & 0x07070707u) >> 4;
    const u32 sizes = (pairs & 255u) | (pairs >> 8 & 0xFF00u);
    const u32 negative = (bytes >> 3 & 0x01010101u) * 255u;
    const u32 plus = bytes_of(0x03020100u, 0x0C080604u, sizes);
    const u32 minus = bytes_of(0xFDFEFF00u, 0xF4F8FAFCu, sizes);
    return (plus & ~negative) | (minus & negative);
}

// Blocks are not aligned.
__device__ __forceinline__ void part_codes(const u8* block, int, const uint2*, u32* codes) {
#pragma unroll
    for (int word = 0; word < 4; word++) {
        const u8* four = block + 1 + 4 * word;
        const u32 bytes = four[0] | (u32)four[1] << 8 | (u32)four[2] << 16 | (u32)four[3] << 24;
        codes[word] = four_numbers(bytes);
        codes[4 + word] = four_numbers(bytes >> 4);
    }
}
