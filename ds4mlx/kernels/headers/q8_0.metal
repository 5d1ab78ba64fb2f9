// Rows of a Q8_0 matrix times a vector, by one simdgroup.
// `codes` [outputs, inputs / 4] holds four weights q + 128 a word, `scales` [outputs, inputs / 32] their d.
// Adds to dots[r] this lane's part of x . row rows[r]; simd_sum makes it whole. A lane takes 16 weights at a
// time, so that the simdgroup reads 512 neighbouring bytes of each row; numbers of x are read once for all rows.
// `inputs` is a multiple of 32; `x` begins on 16 bytes.
template <int ROWS>
inline void add_row_dots(const device uint* codes, const device float* scales, const device float* x,
                         const int inputs, const thread ulong* rows, const uint lane, thread float* dots) {
    for (uint part = lane; part < uint(inputs) / 16; part += 32) {
        const device float4* numbers = (const device float4*)x + 4 * part;
        const float4 x0 = numbers[0], x1 = numbers[1], x2 = numbers[2], x3 = numbers[3];
        #pragma clang loop unroll(full)
        for (int r = 0; r < ROWS; r++) {
            const ulong start = rows[r] * (inputs / 16) + part;
            const uint4 words = ((const device uint4*)codes)[start] ^ 0x80808080u;
            float4 sums = float4(as_type<char4>(words.x)) * x0;
            sums += float4(as_type<char4>(words.y)) * x1;
            sums += float4(as_type<char4>(words.z)) * x2;
            sums += float4(as_type<char4>(words.w)) * x3;
            dots[r] += scales[start / 2] * (sums.x + sums.y + sums.z + sums.w);
        }
    }
}
