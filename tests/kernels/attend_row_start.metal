const uint which = thread_position_in_grid.x;
starts[which] = row_start(rows[which]);
