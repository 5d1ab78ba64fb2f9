// A simdgroup a vector: a lane turns, transforms and rounds four neighbouring numbers.
const uint lane = thread_index_in_simdgroup;
const uint token = thread_position_in_grid.y;
const uint place = token * HEADS * (INDEX_DIM / 4) + thread_position_in_grid.x;
const float4 values = ((const device float4*)projected)[place];
((device float4*)queries)[place] = index_vector(values, rotation + token * HEAD_DIM, lane);
