// Two threadgroups a token, so that the long chain of the combine matrix runs beside the block's input: both
// add up the slices, z 0 then collapses the streams and z 1 writes the joint weights.
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
float value = 0.0f;
if (lane < uint(MIXES)) {
    value = normed * scale[lane] + base[lane];
}
if (threadgroup_position_in_grid.z == 0) {
    const uint start = token * uint(WIDTH);
    const float gate = logistic(value) + EPSILON;
    collapse(streams + start * uint(STREAMS), norm, x + start, gate, scratch, lane, simdgroup);
} else if (simdgroup == 0) {
    device float* post = joint + token * uint(STREAMS * (STREAMS + 1));
    const uint entry = lane % uint(STREAMS * STREAMS);
    const float combined = doubly_normalised(simd_shuffle(value, ushort(uint(2 * STREAMS) + entry)));
    if (lane == entry) {
        post[uint(STREAMS) + entry] = combined;
    }
    if (lane >= uint(STREAMS) && lane < uint(2 * STREAMS)) {
        post[lane - uint(STREAMS)] = 2.0f * logistic(value);
    }
}
