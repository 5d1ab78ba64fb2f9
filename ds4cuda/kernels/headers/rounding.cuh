// Rounding to small floats with a scale for a block of numbers. Scales come from exponent bits, and all of them
// are powers of two: every product with one is exact. Follows warp.cuh. Spec: model 4.1.

// The power of two at or above `largest` / (1 + part / 2^23), `largest` being at least 2^-126 times that.
__device__ __forceinline__ float power_at_or_above(float largest, u32 part) {
    return __uint_as_float((__float_as_uint(largest) + (0x7FFFFFu - part)) & 0xFF800000u);
}

// 1 / power, of a power of two from 2^-126 to 2^126.
__device__ __forceinline__ float inverse_power(float power) {
    return __uint_as_float(0x7F000000u - __float_as_uint(power));
}

// The nearest number with `bits` bits after the leading one, ties to even; as coarse below `least` as at it.
__device__ __forceinline__ float round_to(float value, u32 bits, float least) {
    const u32 leading = __float_as_uint(fmaxf(fabsf(value), least)) & 0xFF800000u;
    const float step = __uint_as_float(leading - (bits << 23));
    return rintf(value * inverse_power(step)) * step;
}

// E4M3 in a block of 64, two numbers a lane. The scale is the power of two at or above amax / 448, and
// 448 = 1.75 * 2^8.
__device__ __forceinline__ float2 round_fp8(float2 values) {
    const float largest = fmaxf(warp_max(fmaxf(fabsf(values.x), fabsf(values.y))), 1e-4f);
    const float scale = power_at_or_above(largest * 0.00390625f, 0x600000u);
    const float inverse = inverse_power(scale);
    return make_float2(round_to(values.x * inverse, 3, 0.015625f) * scale,
                       round_to(values.y * inverse, 3, 0.015625f) * scale);
}
