// A simdgroup computes ROWS output channels of a token: its slots in order, the shared expert last.
threadgroup uint2 magnitudes[MAGNITUDES];
copy_magnitudes(table, magnitudes, thread_index_in_threadgroup);
const size_t token = threadgroup_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const uint row = (threadgroup_position_in_grid.x * SIMDGROUPS + simdgroup_index_in_threadgroup) * ROWS;
const uint blocks = EXPERT_WIDTH / 256;
float dots[ROWS] = {0};
for (uint slot = 0; slot < USED; slot++) {
    const size_t pair = token * USED + slot;
    const uint expert = uint(chosen[pair]);
    add_block_dots<ROWS / 2>(
        row_of_blocks(down, expert, EMBEDDING_WIDTH, row, blocks),
        row_of_blocks(down, expert, EMBEDDING_WIDTH, row + ROWS / 2, blocks),
        activated + pair * EXPERT_WIDTH, blocks, lane, magnitudes, dots);
}
ulong rows[ROWS];
for (uint number = 0; number < ROWS; number++) {
    rows[number] = row + number;
}
add_row_dots<ROWS>(
    shared_down, shared_scales, hidden + token * SHARED_WIDTH, SHARED_WIDTH, rows, lane, dots);
for (uint number = 0; number < ROWS; number++) {
    const float total = simd_sum(dots[number]);
    if (lane == 0) {
        y[token * EMBEDDING_WIDTH + row + number] = total;
    }
}
