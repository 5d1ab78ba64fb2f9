// A simdgroup computes ROWS / 2 hidden numbers, each from a row of gate and one of up, or ROWS router logits.
const uint tile = thread_position_in_grid.x / 32;
const uint lane = thread_index_in_simdgroup;
if (tile >= HIDDEN_TILES) {
    project_rows<INPUTS, EXPERTS>(router, router_scales, x, logits, tile - HIDDEN_TILES, lane);
    return;
}
const uint units = ROWS / 2;
const uint first = tile * units;
ulong rows[ROWS];
float dots[ROWS];
#pragma clang loop unroll(full)
for (uint r = 0; r < units; r++) {
    rows[r] = min(first + r, WIDTH - 1u);
    rows[r + units] = rows[r] + WIDTH;
    dots[r] = 0.0f;
    dots[r + units] = 0.0f;
}
add_row_dots<ROWS>(gate_up, gate_up_scales, x, INPUTS, rows, lane, dots);
#pragma clang loop unroll(full)
for (uint r = 0; r < units; r++) {
    float gate = simd_sum(dots[r]);
    float up = simd_sum(dots[r + units]);
    if (CLAMPS) {
        gate = min(gate, CLAMP);
        up = clamp(up, -CLAMP, CLAMP);
    }
    if (lane == 0) {
        hidden[rows[r]] = gate / (1.0f + precise::exp(-gate)) * up;
    }
}
