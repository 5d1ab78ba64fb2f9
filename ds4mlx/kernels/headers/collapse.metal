// From the slices' sums to a block's input: needs sums.metal. Lane l of every simdgroup holds mix output l,
// lane MIXES the sum of squares.
inline float logistic(float value) {
    return 1.0f / (1.0f + precise::exp(-value));
}

// Sums over all slices, the simdgroups' parts added in order, divided by the root mean square.
inline float normed_sum(float part, threadgroup float* parts, uint lane, uint simdgroup) {
    parts[simdgroup * 32u + lane] = part;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0f;
    for (uint other = 0; other < uint(SIMDGROUPS); ++other) {
        sum += parts[other * 32u + lane];
    }
    const float squares = simd_broadcast(sum, ushort(MIXES));
    return sum * precise::rsqrt(squares / float(STREAMS * WIDTH) + RMS_EPSILON);
}

// One token's x = rms(sum over streams of gate * stream) * norm; lane s holds the gate of stream s. A thread
// has four neighbouring channels a step.
inline void collapse(
    const device float* streams,
    const device float* norm,
    device float* x,
    float gate,
    threadgroup float* scratch,
    uint lane,
    uint simdgroup) {
    const uint first = 4u * (simdgroup * 32u + lane);
    const uint stride = 4u * 32u * uint(SIMDGROUPS);
    float gates[STREAMS];
    #pragma clang loop unroll(full)
    for (uint stream = 0; stream < uint(STREAMS); ++stream) {
        gates[stream] = simd_broadcast(gate, ushort(stream));
    }
    float4 mixed[STEPS];
    float squares = 0.0f;
    #pragma clang loop unroll(full)
    for (uint step = 0; step < uint(STEPS); ++step) {
        const uint channel = first + step * stride;
        if (channel < uint(WIDTH)) {
            float4 value = float4(0.0f);
            #pragma clang loop unroll(full)
            for (uint stream = 0; stream < uint(STREAMS); ++stream) {
                value += gates[stream] * *(const device float4*)(streams + stream * uint(WIDTH) + channel);
            }
            mixed[step] = value;
            squares += dot(value, value);
        }
    }
    squares = group_sum(squares, scratch, lane, simdgroup, SIMDGROUPS);
    const float factor = precise::rsqrt(squares / float(WIDTH) + RMS_EPSILON);
    #pragma clang loop unroll(full)
    for (uint step = 0; step < uint(STEPS); ++step) {
        const uint channel = first + step * stride;
        if (channel < uint(WIDTH)) {
            *(device float4*)(x + channel) = mixed[step] * factor * *(const device float4*)(norm + channel);
        }
    }
}
