// A simdgroup computes ROWS numbers of the hidden layer of one pair of token and slot.
threadgroup uint2 magnitudes[MAGNITUDES];
copy_magnitudes(table, magnitudes, thread_index_in_threadgroup, 32 * SIMDGROUPS);
const uint pair = threadgroup_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const uint row = (threadgroup_position_in_grid.x * SIMDGROUPS + simdgroup_index_in_threadgroup) * ROWS;
const uint expert = chosen[pair];
const uint blocks = EMBEDDING_WIDTH / 256;
float dots[2 * ROWS] = {0};
add_block_dots<ROWS>(
    row_of_blocks(gate, expert, EXPERT_WIDTH, row, blocks), row_of_blocks(up, expert, EXPERT_WIDTH, row, blocks),
    x + pair / USED * EMBEDDING_WIDTH, blocks, lane, magnitudes, dots);
float gated = 0;
float upper = 0;
for (uint number = 0; number < ROWS; number++) {
    const float gate_sum = simd_sum(dots[number]);
    const float up_sum = simd_sum(dots[ROWS + number]);
    if (lane == number) {
        gated = gate_sum;
        upper = up_sum;
    }
}
if (lane < ROWS) {
    if (CLAMPS) {
        gated = min(gated, CLAMP);
        upper = clamp(upper, -CLAMP, CLAMP);
    }
    const float silu = gated / (1.0f + precise::exp(-gated));
    activated[pair * EXPERT_WIDTH + row + lane] = silu * upper * shares[pair];
}
