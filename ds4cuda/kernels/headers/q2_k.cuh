// Q2_K: 256 weights in 84 bytes: 16 bytes (4-bit scale, 4-bit minimum), one for 16 weights; 64 bytes of 2-bit
// codes, four planes in each 32 bytes; half d; half dmin. Names as in iq2_xxs.cuh. Spec: model 3.
constexpr int BLOCK_WEIGHTS = 256;
constexpr int BLOCK_BYTES = 84;
constexpr int MAGNITUDES = 1;

__device__ __forceinline__ float part_dot(const u8* block, int part, const float* x, const uint2*) {
    const u8* codes = block + 16 + part / 4 * 32;
    const float d = from_half(*(const u16*)(block + 80)), least = from_half(*(const u16*)(block + 82));
    float sum = 0.0f;
    #pragma unroll
    for (int half = 0; half < 2; half++) {
        const u32 steps = block[2 * part + half];
        float dot = 0.0f, total = 0.0f;
        #pragma unroll
        for (int at = 16 * half; at < 16 * half + 16; at++) {
            dot += (float)(codes[at] >> 2 * (part % 4) & 3) * x[at];
            total += x[at];
        }
        sum += d * (float)(steps & 15u) * dot - least * (float)(steps >> 4) * total;
    }
    return sum;
}
