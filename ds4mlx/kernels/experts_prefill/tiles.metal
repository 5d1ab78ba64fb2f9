// Tiles in threadgroup memory: TOKENS rows of values and WEIGHTS rows of weights, DEPTH channels each, TILE
// numbers. Simdgroup s multiplies all rows of values with two blocks of eight rows of weights.
using TILE4 = vec<TILE, 4>;
static constant constexpr const uint BLOCK = 8;
static constant constexpr const uint TOKEN_BLOCKS = TOKENS / BLOCK;
// Rows lie 16 bytes further apart than they are long, so that the rows of a block lie in different banks.
static constant constexpr const uint STRIDE = DEPTH + 16 / sizeof(TILE);
// The tiles' memory holds the products, BLOCK rows of WEIGHTS floats at a time, once the last tile is used up.
static constant constexpr const uint STORAGE = (TOKENS + WEIGHTS) * STRIDE * sizeof(TILE) / sizeof(float4);

// Sixteen weights of a row of blocks, from `channel` on.
static inline void fill_weights(device const uchar* blocks, uint channel, threadgroup const uint2* magnitudes,
                                threadgroup TILE* row) {
    TILE4 weights[4];
    expand_piece<TILE>(blocks + channel / 256 * BLOCK_BYTES, channel % 256 / 16, magnitudes, weights);
    for (uint quad = 0; quad < 4; quad++) {
        *(threadgroup TILE4*)(row + 4 * quad) = weights[quad];
    }
}

// Adds DEPTH channels to the products of the blocks that have any of the `rows` rows.
static inline void multiply_tiles(threadgroup const TILE* values, threadgroup const TILE* first,
                                  threadgroup const TILE* second, uint rows,
                                  thread simdgroup_float8x8 (&products)[TOKEN_BLOCKS][2]) {
    for (uint depth = 0; depth < DEPTH; depth += BLOCK) {
        simdgroup_matrix<TILE, 8, 8> weights[2];
        simdgroup_load(weights[0], first + depth, STRIDE, ulong2(0, 0), true);
        simdgroup_load(weights[1], second + depth, STRIDE, ulong2(0, 0), true);
#pragma clang loop unroll(full)
        for (uint block = 0; block < TOKEN_BLOCKS; block++) {
            if (block * BLOCK < rows) {
                simdgroup_matrix<TILE, 8, 8> part;
                simdgroup_load(part, values + block * BLOCK * STRIDE + depth, STRIDE);
                simdgroup_multiply_accumulate(products[block][0], part, weights[0], products[block][0]);
                simdgroup_multiply_accumulate(products[block][1], part, weights[1], products[block][1]);
            }
        }
    }
}

static inline void clear_products(thread simdgroup_float8x8 (&products)[TOKEN_BLOCKS][2]) {
#pragma clang loop unroll(full)
    for (uint block = 0; block < TOKEN_BLOCKS; block++) {
        products[block][0] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        products[block][1] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
}
