// A threadgroup a token adds up the slices and collapses the streams.
threadgroup float parts[SIMDGROUPS * 32];
threadgroup float scratch[32];
const uint token = threadgroup_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint slices = uint(partial_shape[1]);
float part = 0.0f;
if (lane <= uint(MIXES)) {
    for (uint slice = simdgroup; slice < slices; slice += uint(SIMDGROUPS)) {
        part += partial[(token * slices + slice) * uint(MIXES + 1) + lane];
    }
}
const float normed = normed_sum(part, parts, lane, simdgroup);
float gate = 0.0f;
if (lane < uint(MIXES)) {
    gate = logistic(normed * scale[lane] + base[lane]) + EPSILON;
}
const uint start = token * uint(WIDTH);
collapse(streams + start * uint(STREAMS), norm, x + start, gate, scratch, lane, simdgroup);
