// The mix over one slice of the streams: SLICE channels of all streams, of which lane l of every simdgroup
// holds channels 2 l and 2 l + 1. Simdgroup g computes the mix's outputs g, g + SIMDGROUPS, ...; the output
// after the last one is the sum of squares.
inline float2 two(const device float* from) {
    return *(const device float2*)(from);
}

inline void load_weights(const device WEIGHT* mix, uint channel, uint simdgroup, thread float2* weights) {
    for (uint turn = 0; turn < uint(TURNS); ++turn) {
        const uint row = simdgroup + turn * uint(SIMDGROUPS);
        for (uint stream = 0; stream < uint(STREAMS) && row < uint(MIXES); ++stream) {
            const uint place = (row * uint(STREAMS) + stream) * uint(WIDTH) + channel;
            weights[turn * uint(STREAMS) + stream] = float2(*(const device vec<WEIGHT, 2>*)(mix + place));
        }
    }
}

// `partial` [outputs + 1] are the slice's numbers of one token. fma keeps the sums the same for any count of
// tokens a threadgroup has.
inline void write_dots(
    const thread float2* x, const thread float2* weights, uint lane, uint simdgroup, device float* partial) {
    for (uint turn = 0; turn < uint(TURNS); ++turn) {
        const uint row = simdgroup + turn * uint(SIMDGROUPS);
        if (row > uint(MIXES)) {
            break;
        }
        const thread float2* factors = row < uint(MIXES) ? weights + turn * uint(STREAMS) : x;
        float sum = 0.0f;
        for (uint stream = 0; stream < uint(STREAMS); ++stream) {
            sum = fma(x[stream].x, factors[stream].x, sum);
            sum = fma(x[stream].y, factors[stream].y, sum);
        }
        sum = simd_sum(sum);
        if (lane == 0) {
            partial[row] = sum;
        }
    }
}
