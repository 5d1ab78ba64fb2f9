// Q2_K: 256 weights in 84 bytes: 16 bytes (4-bit scale, 4-bit minimum), one for 16 weights; 64 bytes of 2-bit
// codes, four planes in each 32 bytes; half d; half dmin. Names as in iq2_xxs.metal. Spec: model 3.
static constant constexpr const int BLOCK_BYTES = 84;
static constant constexpr const int MAGNITUDES = 1;

static inline void copy_magnitudes(device const uint*, threadgroup uint2*, uint, uint) {}

// A part is eight bytes of codes: eight neighbours in each of the four planes.
static inline uint octet_start(uint part, uint octet) { return 128 * (part / 4) + 32 * octet + 8 * (part % 4); }

static inline float4 q2_codes(uint word, uint plane) {
    return float4(as_type<uchar4>((word >> (2 * plane)) & 0x03030303u));
}

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
    for (uint plane = 0; plane < 4; plane++) {
        const uint scale = scales[2 * plane];
        const float sum = dot(q2_codes(low, plane), x[2 * plane]) + dot(q2_codes(high, plane), x[2 * plane + 1]);
        total += sum * (scale & 15u);
        minimum += sums[plane] * (scale >> 4);
    }
    return d * total - least * minimum;
}

template <typename T>
void expand_piece(device const uchar* block, uint piece, threadgroup const uint2*, thread vec<T, 4>* weights) {
    device const uint* codes = (device const uint*)(block + 16 + 32 * (piece / 8) + 16 * (piece % 2));
    const float d = *(device const half*)(block + 80);
    const float least = *(device const half*)(block + 82);
    const uint scale = block[piece];
    const float step = d * (scale & 15u);
    const float minimum = least * (scale >> 4);
    for (uint quad = 0; quad < 4; quad++) {
        weights[quad] = vec<T, 4>(step * q2_codes(codes[quad], piece % 8 / 2) - minimum);
    }
}
