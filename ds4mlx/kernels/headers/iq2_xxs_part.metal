// Where in a block an octet of a part begins.
static inline uint octet_start(uint part, uint octet) { return 32 * part + 8 * octet; }

// Dot product of a part with x, eight vectors in the order of its octets; `sums` are x's sums by octet.
static inline float multiply_part(device const uchar* block, uint part, thread const float4* x,
                                  thread const float* sums, threadgroup const uint2* magnitudes) {
    const uint2 words = iq2_words(block, part);
    float total = 0;
    #pragma clang loop unroll(full)
    for (uint octet = 0; octet < 4; octet++) {
        const uint2 row = magnitudes[(words.x >> (8 * octet)) & 255u];
        const uint signs = iq2_signs(words.y, octet);
        total += dot(iq2_signed(row.x, signs), x[2 * octet]);
        total += dot(iq2_signed(row.y, signs >> 4), x[2 * octet + 1]);
    }
    return iq2_step(block, words.y) * total;
}
