// A thread computes where a row begins, in two words.
const uint place = thread_position_in_grid.x;
const size_t start = row_start(uint(rows[place]), uint(widths[place]));
words[2 * place] = uint(start);
words[2 * place + 1] = uint(start >> 32);
