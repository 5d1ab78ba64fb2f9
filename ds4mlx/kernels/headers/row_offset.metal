// Where a row of a matrix begins; large matrices have more than 2^32 numbers.
inline size_t row_offset(uint row, uint columns) {
    return size_t(row) * columns;
}
