// ROWS outputs of a matrix, by one simdgroup. `tile` counts the groups' runs of ROWS outputs through; a run that
// goes beyond its group's outputs computes the last one again, and stores it again.
template <int INPUTS, int OUTPUTS, typename Weight, typename Scale>
inline void project_rows(const device Weight* weights, const device Scale* scales, const device float* x,
                         device float* y, const uint tile, const uint lane) {
    const uint runs = (OUTPUTS + ROWS - 1) / ROWS;
    const ulong group = tile / runs;
    const uint first = tile % runs * ROWS;
    ulong rows[ROWS];
    float dots[ROWS];
    #pragma clang loop unroll(full)
    for (int r = 0; r < ROWS; r++) {
        rows[r] = group * OUTPUTS + min(first + r, OUTPUTS - 1u);
        dots[r] = 0.0f;
    }
    add_row_dots<ROWS>(weights, scales, x + group * INPUTS, INPUTS, rows, lane, dots);
    #pragma clang loop unroll(full)
    for (int r = 0; r < ROWS; r++) {
        const float whole = simd_sum(dots[r]);
        if (lane == 0) {
            y[rows[r]] = whole;
        }
    }
}
