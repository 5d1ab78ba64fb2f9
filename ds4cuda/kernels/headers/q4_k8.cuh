// Q4_K for integer products. The block is that of q4_k.cuh, the names are those of coded_part.cuh.
constexpr int BLOCK_WEIGHTS = 256;
constexpr int BLOCK_BYTES = 144;
constexpr int MAGNITUDES = 1;

// Blocks are aligned to 16 bytes.
__device__ __forceinline__ CodedPart coded_part(const u8* block, int part, const uint2*) {
    const uint4 head = *(const uint4*)block;  // both scales, then four bytes each of low, middle and high
    const int shift = 8 * (part % 4);
    const u32 low = head.y >> shift & 255u, middle = head.z >> shift & 255u, high = head.w >> shift & 255u;
    CodedPart coded;
    coded.steps[0] = coded.steps[1] = part < 4 ? low & 63u : (high & 15u) | low >> 6 << 4;
    coded.minima[0] = coded.minima[1] = part < 4 ? middle & 63u : high >> 4 | middle >> 6 << 4;
    coded.step = from_half((u16)head.x);
    coded.least = from_half((u16)(head.x >> 16));
    const uint4* halves = (const uint4*)(block + 16 + part / 2 * 32);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint4 words = halves[half];
        coded.codes[4 * half] = words.x >> 4 * (part % 2) & 0x0F0F0F0Fu;
        coded.codes[4 * half + 1] = words.y >> 4 * (part % 2) & 0x0F0F0F0Fu;
        coded.codes[4 * half + 2] = words.z >> 4 * (part % 2) & 0x0F0F0F0Fu;
        coded.codes[4 * half + 3] = words.w >> 4 * (part % 2) & 0x0F0F0F0Fu;
    }
    return coded;
}
