// Adds to dots[r] and dots[ROWS + r] this lane's part of x . row r from `first` and from `second` on: rows of
// `blocks` blocks one after the other. simd_sum makes the dots whole. x is read once for all rows.
template <uint ROWS>
static inline void add_block_dots(device const uchar* first, device const uchar* second, device const float* x,
                                  uint blocks, uint lane, threadgroup const uint2* magnitudes,
                                  thread float* dots) {
    for (uint place = lane; place < 8 * blocks; place += 32) {
        const uint block = place / 8;
        const uint part = place % 8;
        float4 values[8];
        float sums[4];
        #pragma clang loop unroll(full)
        for (uint octet = 0; octet < 4; octet++) {
            device const float4* numbers = (device const float4*)(x + 256 * block + octet_start(part, octet));
            values[2 * octet] = numbers[0];
            values[2 * octet + 1] = numbers[1];
            const float4 both = numbers[0] + numbers[1];
            sums[octet] = both.x + both.y + both.z + both.w;
        }
        #pragma clang loop unroll(full)
        for (uint row = 0; row < ROWS; row++) {
            const uint skipped = (row * blocks + block) * BLOCK_BYTES;
            dots[row] += multiply_part(first + skipped, part, values, sums, magnitudes);
            dots[ROWS + row] += multiply_part(second + skipped, part, values, sums, magnitudes);
        }
    }
}
