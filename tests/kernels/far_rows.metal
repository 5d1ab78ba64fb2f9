// Rows 2^FAR_BITS behind an address that lies as far before the weights: right only where offsets have 64 bits.
const ulong far = ulong(1) << FAR_BITS;
ulong rows[ROWS];
float dots[ROWS];
for (int r = 0; r < ROWS; r++) {
    rows[r] = far + r;
    dots[r] = 0.0f;
}
add_row_dots<ROWS>(weights - far * NUMBERS, scales - far * SCALES, x, INPUTS, rows, thread_index_in_simdgroup, dots);
for (int r = 0; r < ROWS; r++) {
    const float whole = simd_sum(dots[r]);
    if (thread_index_in_simdgroup == 0) {
        y[r] = whole;
    }
}
