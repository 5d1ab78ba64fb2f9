// Transform and rounding of index vectors of 128 numbers, four neighbours a lane of one warp. Follows
// rounding.cuh. Spec: model 4.1.
constexpr int INDEX_DIM = 128;

// Orthonormal Walsh-Hadamard transform in natural order: sums and differences at distances 1, 2, 4 and so on.
__device__ __forceinline__ float4 hadamard(float4 v, int lane) {
    v = make_float4(v.x + v.y, v.x - v.y, v.z + v.w, v.z - v.w);
    v = make_float4(v.x + v.z, v.y + v.w, v.x - v.z, v.y - v.w);
    for (int distance = 1; distance < WARP; distance *= 2) {
        const float4 o = make_float4(across(v.x, distance), across(v.y, distance), across(v.z, distance),
                                     across(v.w, distance));
        v = lane & distance ? make_float4(o.x - v.x, o.y - v.y, o.z - v.z, o.w - v.w)
                            : make_float4(v.x + o.x, v.y + o.y, v.z + o.z, v.w + o.w);
    }
    const float scale = 0.08838834764831845f;
    return make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
}

// E2M1 in blocks of 32, eight lanes a block. The scale is the power of two at or above amax / 6, and 6 = 1.5 * 2^2.
__device__ __forceinline__ float4 round_fp4(float4 v) {
    float largest = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    for (int distance = 1; distance < 8; distance *= 2) {
        largest = fmaxf(largest, across(largest, distance));
    }
    const float scale = power_at_or_above(fmaxf(largest, 7.052966105e-38f) * 0.25f, 0x400000u);
    const float inverse = inverse_power(scale);
    return make_float4(round_to(v.x * inverse, 1, 1.0f) * scale, round_to(v.y * inverse, 1, 1.0f) * scale,
                       round_to(v.z * inverse, 1, 1.0f) * scale, round_to(v.w * inverse, 1, 1.0f) * scale);
}
