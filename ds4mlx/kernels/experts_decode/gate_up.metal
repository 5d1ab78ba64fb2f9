// A simdgroup computes ROWS numbers of the hidden layer of one pair of token and slot.
threadgroup uint2 magnitudes[MAGNITUDES];
copy_magnitudes(table, magnitudes, thread_index_in_threadgroup);
const uint pair = threadgroup_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const uint row = (threadgroup_position_in_grid.x * SIMDGROUPS + simdgroup_index_in_threadgroup) * ROWS;
const uint expert = uint(chosen[pair]);
const uint blocks = EMBEDDING_WIDTH / 256;
float dots[2 * ROWS] = {0};
add_block_dots<ROWS>(
    row_of_blocks(gate, expert, EXPERT_WIDTH, row, blocks), row_of_blocks(up, expert, EXPERT_WIDTH, row, blocks),
    x + size_t(pair / USED) * EMBEDDING_WIDTH, blocks, lane, magnitudes, dots);
for (uint number = 0; number < ROWS; number++) {
    float gated = simd_sum(dots[number]);
    float upper = simd_sum(dots[ROWS + number]);
    if (CLAMPS) {
        gated = min(gated, CLAMP);
        upper = clamp(upper, -CLAMP, CLAMP);
    }
    if (lane == 0) {
        activated[size_t(pair) * EXPERT_WIDTH + row + number] =
            gated / (1.0f + precise::exp(-gated)) * upper * shares[pair];
    }
}
