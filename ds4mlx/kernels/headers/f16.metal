// Rows of a float16 matrix times a vector, by one simdgroup: the counterpart of add_row_dots in q8_0.metal.
// The second argument is not read: a float16 matrix has no scales and is given twice.
// A lane takes 8 weights at a time, so that the simdgroup reads 512 neighbouring bytes of each row.
template <int ROWS>
inline void add_row_dots(const device half* weights, const device half*, const device float* x,
                         const int inputs, const thread ulong* rows, const uint lane, thread float* dots) {
    for (uint part = lane; part < uint(inputs) / 8; part += 32) {
        const device float4* numbers = (const device float4*)x + 2 * part;
        const float4 x0 = numbers[0], x1 = numbers[1];
        #pragma clang loop unroll(full)
        for (int r = 0; r < ROWS; r++) {
            const device half4* four = (const device half4*)weights + 2 * (rows[r] * (inputs / 8) + part);
            const float4 sums = float4(four[0]) * x0 + float4(four[1]) * x1;
            dots[r] += sums.x + sums.y + sums.z + sums.w;
        }
    }
}
