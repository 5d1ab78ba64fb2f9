// A threadgroup pools, norms, turns and stores the row of one window.
threadgroup float scratch[32];
const uint window = threadgroup_position_in_grid.x;
const int start = numbers[0];
const int first = (start / RATIO + int(window)) * RATIO;
store_window(ring, own, first, start, norm, rotation + window * HEAD_DIM, rows + window * HEAD_DIM, scratch,
             thread_index_in_simdgroup, simdgroup_index_in_threadgroup);
