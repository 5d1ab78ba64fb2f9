// A simdgroup computes ROWS outputs.
const uint tile = thread_position_in_grid.x / 32;
project_rows<INPUTS, OUTPUTS>(weights, scales, x, y, tile, thread_index_in_simdgroup);
