// Sums and maxima over a threadgroup whose thread count is a multiple of 32; every thread gets the result.
// `scratch` has at least 32 numbers and may be the same one in call after call. All threads must take part.
// Order: within each simdgroup as the hardware adds, then the simdgroups as lanes of one; the same each time.
inline float group_sum(
    float value, threadgroup float* scratch, uint lane, uint simdgroup, uint simdgroups) {
    const float part = simd_sum(value);
    // An earlier call's result may still be read from scratch.
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) {
        scratch[simdgroup] = part;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_sum(lane < simdgroups ? scratch[lane] : 0.0f);
}

inline float group_max(
    float value, threadgroup float* scratch, uint lane, uint simdgroup, uint simdgroups) {
    const float part = simd_max(value);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) {
        scratch[simdgroup] = part;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_max(lane < simdgroups ? scratch[lane] : -INFINITY);
}
