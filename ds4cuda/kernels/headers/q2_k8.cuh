// Q2_K for integer products. The block is that of q2_k.cuh, the names are those of coded_part.cuh.
constexpr int BLOCK_WEIGHTS = 256;
constexpr int BLOCK_BYTES = 84;
constexpr int MAGNITUDES = 1;

// Blocks are aligned to four bytes.
__device__ __forceinline__ CodedPart coded_part(const u8* block, int part, const uint2*) {
    const u32* words = (const u32*)(block + 16 + part / 4 * 32);
    CodedPart coded;
#pragma unroll
    for (int word = 0; word < 8; word++) {
        coded.codes[word] = words[word] >> 2 * (part % 4) & 0x03030303u;
    }
    const u32 pairs = *(const u16*)(block + 2 * part), scales = *(const u32*)(block + 80);
    coded.steps[0] = pairs & 15u;
    coded.minima[0] = pairs >> 4 & 15u;
    coded.steps[1] = pairs >> 8 & 15u;
    coded.minima[1] = pairs >> 12;
    coded.step = from_half((u16)scales);
    coded.least = from_half((u16)(scales >> 16));
    return coded;
}
