// Q4_K: 256 weights in 144 bytes: half d; half dmin; 12 bytes of eight 6-bit scales and minima, one pair for 32
// weights; 128 bytes of 4-bit codes, low nibbles of 32 bytes before their high ones. Names as in
// iq2_xxs.metal. Spec: model 3.
static constant constexpr const int BLOCK_BYTES = 144;
static constant constexpr const int MAGNITUDES = 1;

static inline void copy_magnitudes(device const uint*, threadgroup uint2*, uint, uint) {}

// A part is 16 bytes of codes: two octets of low nibbles, two of high ones.
static inline uint octet_start(uint part, uint octet) {
    return 64 * (part / 2) + 16 * (part % 2) + 32 * (octet / 2) + 8 * (octet % 2);
}

static inline float4 q4_codes(uint word, uint high) {
    return float4(as_type<uchar4>((word >> (4 * high)) & 0x0f0f0f0fu));
}

// Scale and minimum of 32 weights with d and dmin multiplied in: both products are exact.
static inline float2 q4_steps(device const uchar* block, uint group) {
    const float d = *(device const half*)block;
    const float least = *(device const half*)(block + 2);
    device const uchar* packed = block + 4 + group % 4;
    const uint low = packed[0];
    const uint middle = packed[4];
    const uint high = packed[8];
    const uint scale = group < 4 ? low & 63u : (high & 15u) | (low >> 6) << 4;
    const uint minimum = group < 4 ? middle & 63u : high >> 4 | (middle >> 6) << 4;
    return float2(d * scale, least * minimum);
}

static inline float multiply_part(device const uchar* block, uint part, thread const float4* x,
                                  thread const float* sums, threadgroup const uint2*) {
    device const uint* codes = (device const uint*)(block + 16 + 16 * part);
    float total = 0;
    for (uint high = 0; high < 2; high++) {
        const float2 steps = q4_steps(block, 2 * (part / 2) + high);
        float sum = 0;
        for (uint quad = 0; quad < 4; quad++) {
            sum += dot(q4_codes(codes[quad], high), x[4 * high + quad]);
        }
        total += steps.x * sum - steps.y * (sums[2 * high] + sums[2 * high + 1]);
    }
    return total;
}

template <typename T>
void expand_piece(device const uchar* block, uint piece, threadgroup const uint2*, thread vec<T, 4>* weights) {
    device const uint* codes = (device const uint*)(block + 16 + 32 * (piece / 4) + 16 * (piece % 2));
    const float2 steps = q4_steps(block, piece / 2);
    for (uint quad = 0; quad < 4; quad++) {
        weights[quad] = vec<T, 4>(steps.x * q4_codes(codes[quad], piece / 2 % 2) - steps.y);
    }
}
