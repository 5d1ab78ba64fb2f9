// Q2_K: 256 weights in 84 bytes: 16 bytes (4-bit scale, 4-bit minimum), one for 16 weights; 64 bytes of 2-bit
// codes, four planes in each 32 bytes; half d; half dmin. Names as in iq2_xxs.metal. Spec: model 3.
static constant constexpr const int BLOCK_BYTES = 84;
static constant constexpr const int MAGNITUDES = 1;

static inline void copy_magnitudes(device const uint*, threadgroup uint2*, uint, uint) {}

static inline float4 q2_codes(uint word, uint plane) {
    return float4(as_type<uchar4>((word >> (2 * plane)) & 0x03030303u));
}
