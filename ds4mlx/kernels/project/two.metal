// A simdgroup computes ROWS outputs of one of two matrices; those of the second follow.
const uint tile = thread_position_in_grid.x / 32;
const uint lane = thread_index_in_simdgroup;
if (tile < FIRST_TILES) {
    project_rows<INPUTS, FIRST_OUTPUTS>(first, first_scales, x, first_y, tile, lane);
} else {
    project_rows<INPUTS, SECOND_OUTPUTS>(second, second_scales, x, second_y, tile - FIRST_TILES, lane);
}
