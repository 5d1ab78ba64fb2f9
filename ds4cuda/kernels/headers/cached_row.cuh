// What a row goes through before it is stored, be it a token's or a window's. Follows block.cuh, row_type.cuh,
// rounding.cuh and rotary.cuh. Constants: HEAD_DIM, ROTARY_DIM, ROUNDS, EPSILON, THREADS of the block. Spec: model 4.5 step 3.

// Norms, turns, rounds and stores `row` [HEAD_DIM] in shared memory, which the threads have just written;
// `turns` are the rotations of its pairs. `scratch` as for block_sum.
template <class Row>
__device__ void store_row(float* row, const float* norm, const float2* turns, Row* to, float* scratch) {
    float squares = 0.0f;
    for (int channel = threadIdx.x; channel < HEAD_DIM; channel += THREADS) {
        squares += row[channel] * row[channel];
    }
    const float scale = 1.0f / sqrtf(block_sum<THREADS>(squares, scratch) / HEAD_DIM + EPSILON);
    const int lane = threadIdx.x % WARP;
    // A warp takes 64 neighbouring channels at a time: they are one FP8 block, or all turned, or neither.
    for (int first = threadIdx.x / WARP * 64; first < HEAD_DIM; first += THREADS / WARP * 64) {
        const int channel = first + 2 * lane;
        float2 pair = make_float2(0.0f, 0.0f);
        if (channel < HEAD_DIM) {
            pair = make_float2(row[channel] * scale * norm[channel], row[channel + 1] * scale * norm[channel + 1]);
            if (channel >= HEAD_DIM - ROTARY_DIM) {
                pair = turned(pair, turns[(channel - (HEAD_DIM - ROTARY_DIM)) / 2]);
            }
        }
        if (ROUNDS && first < HEAD_DIM - ROTARY_DIM) {
            pair = round_fp8(pair);
        }
        if (channel < HEAD_DIM) {
            store_value(to + channel, pair.x);
            store_value(to + channel + 1, pair.y);
        }
    }
}
