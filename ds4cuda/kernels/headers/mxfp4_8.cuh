// MXFP4 for integer products. The block is that of mxfp4.cuh, the names are those of coded_part.cuh.
constexpr int BLOCK_WEIGHTS = 32;
constexpr int BLOCK_BYTES = 17;
constexpr int MAGNITUDES = 1;

// Twice the numbers of the four codes in 16 bits, as signed bytes.
__device__ __forceinline__ u32 doubled(u32 codes) {
    const u32 sizes = bytes_of(0x03020100u, 0x0C080604u, codes & 0x7777u);
    const u32 negated = bytes_of(0xFDFEFF00u, 0xF4F8FAFCu, codes & 0x7777u);
    const u32 minus = bytes_of(0x0000FF00u, 0u, codes >> 3 & 0x1111u);
    return (sizes & ~minus) | (negated & minus);
}

// Blocks are aligned to single bytes. Of each the low nibbles come before the high ones.
__device__ __forceinline__ CodedPart coded_part(const u8* block, int, const uint2*) {
    CodedPart coded;
#pragma unroll
    for (int word = 0; word < 4; word++) {
        const u8* four = block + 1 + 4 * word;
        const u32 first = doubled(four[0] | (u32)four[1] << 8), second = doubled(four[2] | (u32)four[3] << 8);
        coded.codes[word] = bytes_of(first, second, 0x6420u);
        coded.codes[word + 4] = bytes_of(first, second, 0x7531u);
    }
    coded.steps[0] = coded.steps[1] = 1;
    coded.minima[0] = coded.minima[1] = 0;
    coded.step = ldexpf(0.5f, (int)block[0] - 127);
    coded.least = 0.0f;
    return coded;
}
