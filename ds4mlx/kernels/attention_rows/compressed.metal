// Threadgroups 0 and 1 of a token do as in window_only.metal. The further ones write its frontier row: the
// first FRONTIER_WIDTH columns of the compressor, plus what the token's place in its window adds.
threadgroup float scratch[32];
const uint part = threadgroup_position_in_grid.x;
const uint token = threadgroup_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
if (part < 2) {
    store_part(part, token, low, query_norm, key_value_norm, rotation, ranks, rows, scratch, lane, simdgroup);
} else {
    // Each further threadgroup takes CHANNELS_EACH channels per thread of the frontier row.
    const uint in_window = (uint(numbers[0]) + token) % RATIO;
    const uint first = ((part - 2) * CHANNELS_EACH * SIMDGROUPS + simdgroup) * 32 + lane;
    for (uint number = 0; number < CHANNELS_EACH; number++) {
        const uint channel = first + number * SIMDGROUPS * 32;
        if (channel < FRONTIER_WIDTH) {
            frontier[token * FRONTIER_WIDTH + channel] = compressor[token * COMPRESSOR_WIDTH + channel]
                + positional[in_window * FRONTIER_WIDTH + channel];
        }
    }
}
