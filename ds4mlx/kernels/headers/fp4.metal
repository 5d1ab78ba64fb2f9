// Transform and rounding of index vectors, spread over the lanes of a simdgroup. Follows rounding.metal.
// Spec: model 4.1.

// E2M1 in blocks of 32: four numbers a lane, eight lanes a block. The scale is the power of two at or above
// amax / 6, and 6 = 1.5 * 2^2.
static inline float4 round_fp4(float4 values) {
    const float4 sizes = abs(values);
    float largest = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
    largest = max(largest, simd_shuffle_xor(largest, 1));
    largest = max(largest, simd_shuffle_xor(largest, 2));
    largest = max(largest, simd_shuffle_xor(largest, 4));
    const float scale = power_at_or_above(max(largest, 7.052966105e-38f) * 0.25f, 0x400000u);
    float4 scaled = values * inverse_power(scale);
    for (uint place = 0; place < 4; place++) {
        scaled[place] = round_to(scaled[place], 1, 1.0f);
    }
    return scaled * scale;
}

// Orthonormal Walsh-Hadamard transform in natural order of 128 numbers, four neighbours a lane: sums and
// differences at distances 1, 2, 4 and so on.
static inline float4 hadamard(float4 values, uint lane) {
    values = float4(values.x + values.y, values.x - values.y, values.z + values.w, values.z - values.w);
    values = float4(values.xy + values.zw, values.xy - values.zw);
    for (uint distance = 1; distance < 32; distance *= 2) {
        const float4 other = simd_shuffle_xor(values, distance);
        values = lane & distance ? other - values : values + other;
    }
    return values * 0.08838834764831845f;
}
