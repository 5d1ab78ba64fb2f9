// Rounding to small floats with a scale for a block of numbers, spread over the lanes of a simdgroup. Scales come
// from exponent bits, and all of them are powers of two: every product with one is exact. No step depends on
// numbers below 2^-126, which a GPU takes for 0. Spec: model 4.1.

// The power of two at or above `largest` / (1 + part / 2^23), `largest` being at least 2^-126 times that.
static inline float power_at_or_above(float largest, uint part) {
    return as_type<float>((as_type<uint>(largest) + (0x7FFFFFu - part)) & 0xFF800000u);
}

// 1 / power, of a power of two from 2^-126 to 2^126.
static inline float inverse_power(float power) {
    return as_type<float>(0x7F000000u - as_type<uint>(power));
}

// The nearest number with `bits` bits after the leading one, ties to even; as coarse below `least` as at it.
static inline float round_to(float value, uint bits, float least) {
    const uint leading = as_type<uint>(max(abs(value), least)) & 0xFF800000u;
    const float step = as_type<float>(leading - (bits << 23));
    return rint(value * inverse_power(step)) * step;
}

// E4M3 in a block of 64: two numbers a lane. The scale is the power of two at or above amax / 448, and
// 448 = 1.75 * 2^8.
static inline float2 round_fp8(float2 values) {
    const float largest = max(simd_max(max(abs(values.x), abs(values.y))), 1e-4f);
    const float scale = power_at_or_above(largest * 0.00390625f, 0x600000u);
    const float2 scaled = values * inverse_power(scale);
    return float2(round_to(scaled.x, 3, 0.015625f), round_to(scaled.y, 3, 0.015625f)) * scale;
}
