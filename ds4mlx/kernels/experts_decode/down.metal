// A simdgroup computes ROWS output channels of a token: its slots in order, the shared expert last.
threadgroup uint2 magnitudes[MAGNITUDES];
copy_magnitudes(table, magnitudes, thread_index_in_threadgroup, 32 * SIMDGROUPS);
const uint token = threadgroup_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const uint row = (threadgroup_position_in_grid.x * SIMDGROUPS + simdgroup_index_in_threadgroup) * ROWS;
const uint blocks = EXPERT_WIDTH / 256;
float dots[ROWS] = {0};
for (uint slot = 0; slot < USED; slot++) {
    const uint pair = token * USED + slot;
    const uint expert = chosen[pair];
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
float output = 0;
for (uint number = 0; number < ROWS; number++) {
    const float sum = simd_sum(dots[number]);
    if (lane == number) {
        output = sum;
    }
}
if (lane < ROWS) {
    y[token * EMBEDDING_WIDTH + row + lane] = output;
}
