// The mix over one slice of the streams: SLICE channels of all streams, of which lane l of every simdgroup
// holds channels 2 l and 2 l + 1. Simdgroup g computes the mix's outputs g, g + SIMDGROUPS, ...; the output
// after the last one is the sum of squares.
inline float2 two(const device float* from) {
    return *(const device float2*)(from);
}

inline void load_weights(const device WEIGHT* mix, uint channel, uint simdgroup, thread float2* weights) {
    #pragma clang loop unroll(full)
    for (uint turn = 0; turn < uint(TURNS); ++turn) {
        const uint row = simdgroup + turn * uint(SIMDGROUPS);
        #pragma clang loop unroll(full)
        for (uint stream = 0; stream < uint(STREAMS); ++stream) {
            const uint place = (row * uint(STREAMS) + stream) * uint(WIDTH) + channel;
            if (row < uint(MIXES)) {
                weights[turn * uint(STREAMS) + stream] = float2(*(const device vec<WEIGHT, 2>*)(mix + place));
            }
        }
    }
}

// `partial` [outputs + 1] are the slice's numbers of one token. fma keeps the sums the same for any count of
// tokens a threadgroup has.
inline void write_dots(
    const thread float2* x, const thread float2* weights, uint lane, uint simdgroup, device float* partial) {
    #pragma clang loop unroll(full)
    for (uint turn = 0; turn < uint(TURNS); ++turn) {
        const uint row = simdgroup + turn * uint(SIMDGROUPS);
        if (row > uint(MIXES)) {
            break;
        }
        float sum = 0.0f;
        #pragma clang loop unroll(full)
        for (uint stream = 0; stream < uint(STREAMS); ++stream) {
            const float2 factor = row < uint(MIXES) ? weights[turn * uint(STREAMS) + stream] : x[stream];
            sum = fma(x[stream].x, factor.x, sum);
            sum = fma(x[stream].y, factor.y, sum);
        }
        sum = simd_sum(sum);
        if (lane == 0) {
            partial[row] = sum;
        }
    }
}
