// A part is 16 bytes of codes: two octets of low nibbles, two of high ones.
static inline uint octet_start(uint part, uint octet) {
    return 64 * (part / 2) + 16 * (part % 2) + 32 * (octet / 2) + 8 * (octet % 2);
}

static inline float multiply_part(device const uchar* block, uint part, thread const float4* x,
                                  thread const float* sums, threadgroup const uint2*) {
    device const uint* codes = (device const uint*)(block + 16 + 16 * part);
    float total = 0;
    #pragma clang loop unroll(full)
    for (uint high = 0; high < 2; high++) {
        const float2 steps = q4_steps(block, 2 * (part / 2) + high);
        float sum = 0;
        #pragma clang loop unroll(full)
        for (uint quad = 0; quad < 4; quad++) {
            sum += dot(q4_codes(codes[quad], high), x[4 * high + quad]);
        }
        total += steps.x * sum - steps.y * (sums[2 * high] + sums[2 * high + 1]);
    }
    return total;
}
