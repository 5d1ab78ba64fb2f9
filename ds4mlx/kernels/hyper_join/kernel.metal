// A threadgroup takes a slice of TOKENS tokens and reads the slice's weights once. Every simdgroup computes
// the slice's new streams, which is cheaper than to hand them on; simdgroup j writes stream j.
const uint slice = threadgroup_position_in_grid.x;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint channel = slice * uint(SLICE) + 2u * lane;
const uint count = uint(streams_shape[0]);
const uint first = threadgroup_position_in_grid.y * uint(TOKENS);
float2 weights[TURNS * STREAMS];
load_weights(mix, channel, simdgroup, weights);
for (uint token = first; token < min(count, first + uint(TOKENS)); ++token) {
    const uint row = token * uint(STREAMS);
    const device float* post = joint + row * uint(STREAMS + 1);
    const device float* combine = post + STREAMS;
    const float2 added = two(output + token * uint(WIDTH) + channel);
    float2 before[STREAMS];
    float2 x[STREAMS];
    for (uint stream = 0; stream < uint(STREAMS); ++stream) {
        before[stream] = two(streams + (row + stream) * uint(WIDTH) + channel);
    }
    for (uint stream = 0; stream < uint(STREAMS); ++stream) {
        float2 value = post[stream] * added;
        for (uint from = 0; from < uint(STREAMS); ++from) {
            value = fma(float2(combine[from * uint(STREAMS) + stream]), before[from], value);
        }
        x[stream] = value;
        if (simdgroup == stream) {
            *(device float2*)(joined + (row + stream) * uint(WIDTH) + channel) = value;
        }
    }
    const uint place = token * uint(WIDTH / SLICE) + slice;
    write_dots(x, weights, lane, simdgroup, partial + place * uint(MIXES + 1));
}
