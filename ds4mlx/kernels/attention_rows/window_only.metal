// Two threadgroups a token: one norms the query's ranks, the other stores the key and value row.
threadgroup float scratch[32];
store_part(threadgroup_position_in_grid.x, threadgroup_position_in_grid.y, low, query_norm, key_value_norm, rotation,
           ranks, rows, scratch, thread_index_in_simdgroup, simdgroup_index_in_threadgroup);
