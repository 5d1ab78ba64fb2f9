// A threadgroup takes a slice of TOKENS tokens and reads the slice's weights once.
const uint slice = threadgroup_position_in_grid.x;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint channel = slice * uint(SLICE) + 2u * lane;
const uint count = uint(streams_shape[0]);
const uint first = threadgroup_position_in_grid.y * uint(TOKENS);
float2 weights[TURNS * STREAMS];
load_weights(mix, channel, simdgroup, weights);
for (uint token = first; token < min(count, first + uint(TOKENS)); ++token) {
    float2 x[STREAMS];
    for (uint stream = 0; stream < uint(STREAMS); ++stream) {
        x[stream] = two(streams + (token * uint(STREAMS) + stream) * uint(WIDTH) + channel);
    }
    const uint place = token * uint(WIDTH / SLICE) + slice;
    write_dots(x, weights, lane, simdgroup, partial + place * uint(MIXES + 1));
}
