// A part is eight bytes of codes: eight neighbours in each of the four planes.
static inline uint octet_start(uint part, uint octet) { return 128 * (part / 4) + 32 * octet + 8 * (part % 4); }

static inline float multiply_part(device const uchar* block, uint part, thread const float4* x,
                                  thread const float* sums, threadgroup const uint2*) {
    device const uint* codes = (device const uint*)(block + 16 + 8 * part);
    device const uchar* scales = block + 8 * (part / 4) + (part % 4) / 2;
    const float d = *(device const half*)(block + 80);
    const float least = *(device const half*)(block + 82);
    const uint low = codes[0];
    const uint high = codes[1];
    float total = 0;
    float minimum = 0;
    #pragma clang loop unroll(full)
    for (uint plane = 0; plane < 4; plane++) {
        const uint scale = scales[2 * plane];
        const float sum = dot(q2_codes(low, plane), x[2 * plane]) + dot(q2_codes(high, plane), x[2 * plane + 1]);
        total += sum * (scale & 15u);
        minimum += sums[plane] * (scale >> 4);
    }
    return d * total - least * minimum;
}
