// IQ2_XXS: 256 weights in 66 bytes: half d; then 8 parts of 32 weights, each one word that names four octets of
// the table of magnitudes and one word of 4 x 7 sign bits and a 4-bit scale. Follows warp.cuh. Spec: model 3.
//
// The headers of all block types have the same names, so one kernel text serves every type:
//   part_weights: 32 weights of a block, exactly
//   MAGNITUDES: entries of the table that the type needs in shared memory, at least 1
constexpr int BLOCK_WEIGHTS = 256;
constexpr int BLOCK_BYTES = 66;
constexpr int MAGNITUDES = 256;

// Blocks are aligned to two bytes only.
__device__ __forceinline__ void part_weights(const u8* block, int part, const uint2* magnitudes, float* weights) {
    const u16* words = (const u16*)block + 1 + 4 * part;
    const u32 octets = words[0] | (u32)words[1] << 16;
    const u32 signs = words[2] | (u32)words[3] << 16;
    const float step = from_half(*(const u16*)block) * (0.5f + (float)(signs >> 28)) * 0.25f;
#pragma unroll
    for (int octet = 0; octet < 4; octet++) {
        const uint2 sizes = magnitudes[octets >> 8 * octet & 255u];
        u32 negative = signs >> 7 * octet & 127u;
        negative |= (__popc(negative) & 1u) << 7;  // an even number of weights is negative
#pragma unroll
        for (int at = 0; at < 8; at++) {
            const float size = (float)((at < 4 ? sizes.x : sizes.y) >> 8 * (at % 4) & 255u);
            weights[8 * octet + at] = (negative >> at & 1u ? -size : size) * step;
        }
    }
}
