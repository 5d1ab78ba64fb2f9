// Two threadgroups a window: y 0 makes the attention row, y 1 the indexer's.
threadgroup float scratch[32];
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint window = threadgroup_position_in_grid.x;
const int start = numbers[0];
const int first = (start / RATIO + int(window)) * RATIO;
const device float* turns = rotation + window * HEAD_DIM;
if (threadgroup_position_in_grid.y == 0) {
    store_window(ring, own, first, start, norm, turns, rows + window * HEAD_DIM, scratch, lane, simdgroup);
} else if (simdgroup == 0) {
    // One simdgroup holds the whole index row, behind the attention compressor's columns.
    const uint column = 2 * HALVES * HEAD_DIM + 4 * lane;
    float4 values = pool<float4>(ring, own, first, start, column, INDEX_DIM);
    const float scale = precise::rsqrt(simd_sum(dot(values, values)) / INDEX_DIM + EPSILON);
    values = values * scale * ((const device float4*)index_norm)[lane];
    ((device float4*)index_rows)[window * (INDEX_DIM / 4) + lane] = index_vector(values, turns, lane);
}
