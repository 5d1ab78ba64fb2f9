// Two sums and two maxima one after the other through one scratch, as seen by every thread.
threadgroup float scratch[32];
const uint thread_index = thread_position_in_grid.x;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const float value = values[thread_index];
const float sum = group_sum(value, scratch, lane, simdgroup, SIMDGROUPS);
const float largest = group_max(value, scratch, lane, simdgroup, SIMDGROUPS);
const float negative_sum = group_sum(-value, scratch, lane, simdgroup, SIMDGROUPS);
const float negative_largest = group_max(-value, scratch, lane, simdgroup, SIMDGROUPS);
results[4 * thread_index] = sum;
results[4 * thread_index + 1] = largest;
results[4 * thread_index + 2] = negative_sum;
results[4 * thread_index + 3] = negative_largest;
