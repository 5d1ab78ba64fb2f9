// What a row goes through before it is stored, be it a token's or a window's. Follows sums.metal, rotate.metal
// and rounding.metal. Spec: model 4.5, step 3, and 4.6.
// Constants: HEAD_DIM, FP8_BLOCKS of 64 channels that are rounded to FP8, ROUNDS, ROW the stored type, EPSILON,
// SIMDGROUPS of the threadgroup, PAIRS_EACH pairs of a thread.

// The channel pair that is a thread's `number`-th: a simdgroup holds 64 channels, which are one FP8 block.
static inline uint pair_of(int number, uint lane, uint simdgroup) {
    return (number * SIMDGROUPS + simdgroup) * 32 + lane;
}

// Norms, turns, rounds and stores the row of which each thread holds `pairs`, 0 beyond the row's end.
static inline void store_row(const thread float2* pairs, const device float2* norm, const device float2* turns,
                             device vec<ROW, 2>* row, threadgroup float* scratch, uint lane, uint simdgroup) {
    float squares = 0;
    for (int number = 0; number < PAIRS_EACH; number++) {
        squares += dot(pairs[number], pairs[number]);
    }
    squares = group_sum(squares, scratch, lane, simdgroup, SIMDGROUPS);
    const float scale = precise::rsqrt(squares / HEAD_DIM + EPSILON);
    for (int number = 0; number < PAIRS_EACH; number++) {
        const uint pair = pair_of(number, lane, simdgroup);
        const bool inside = pair < HEAD_DIM / 2;
        float2 value = float2(0);
        if (inside) {
            value = turn(pairs[number] * scale * norm[pair], turns[pair]);
        }
        if (ROUNDS && pair / 32 < FP8_BLOCKS) {
            value = round_fp8(value);
        }
        if (inside) {
            row[pair] = vec<ROW, 2>(value);
        }
    }
}
