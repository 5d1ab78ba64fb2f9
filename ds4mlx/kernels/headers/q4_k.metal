// Q4_K: 256 weights in 144 bytes: half d; half dmin; 12 bytes of eight 6-bit scales and minima, one pair for 32
// weights; 128 bytes of 4-bit codes, low nibbles of 32 bytes before their high ones. Names as in
// iq2_xxs.metal. Spec: model 3.
static constant constexpr const int BLOCK_BYTES = 144;
static constant constexpr const int MAGNITUDES = 1;

static inline void copy_magnitudes(device const uint*, threadgroup uint2*, uint, uint) {}

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
