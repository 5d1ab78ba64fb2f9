// Where a row of `width` numbers begins: rows times widths of a step can exceed 2^31.
static inline size_t row_start(uint row, uint width) { return size_t(row) * width; }
