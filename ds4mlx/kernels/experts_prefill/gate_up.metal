// A group computes a tile of up to TOKENS pairs of one expert times WEIGHTS / 2 channels of its hidden layer:
// rows 0 .. WEIGHTS / 2 of the weight tile are gate's, the others up's.
const uint tile = threadgroup_position_in_grid.y;
const uint rows = uint(tiles[3 * tile + 2]);
if (rows == 0) {
    return;
}
threadgroup float4 storage[STORAGE];
threadgroup uint2 magnitudes[MAGNITUDES];
threadgroup TILE* value_tile = (threadgroup TILE*)storage;
threadgroup TILE* weight_tile = value_tile + TOKENS * STRIDE;
threadgroup float* sums = (threadgroup float*)storage;
const uint expert = uint(tiles[3 * tile]);
const uint first = uint(tiles[3 * tile + 1]);
const uint column = threadgroup_position_in_grid.x * (WEIGHTS / 2);
const uint index = thread_index_in_threadgroup;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
if (index < MAGNITUDES) {
    magnitudes[index] = uint2(table[2 * index], table[2 * index + 1]);
}
// Two threads fill a row of weights, eight threads a row of values.
const uint weight_row = index / 2;
const uint piece = index % 2 * 16;
device const uchar* blocks = row_of_blocks(weight_row < WEIGHTS / 2 ? gate : up, expert, EXPERT_WIDTH,
                                           column + weight_row % (WEIGHTS / 2), EMBEDDING_WIDTH / 256);
const uint value_row = index / 8;
const uint quad = index % 8 * 4;
// Rows that the tile has not repeat its last one; their products go nowhere.
const uint token = uint(order[first + min(value_row, rows - 1)]) / USED;
device const float4* values = (device const float4*)(x + row_offset(token, EMBEDDING_WIDTH) + quad);
simdgroup_float8x8 products[TOKEN_BLOCKS][2];
clear_products(products);
for (uint channel = 0; channel < EMBEDDING_WIDTH; channel += DEPTH) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    fill_weights(blocks, channel + piece, magnitudes, weight_tile + weight_row * STRIDE + piece);
    *(threadgroup TILE4*)(value_tile + value_row * STRIDE + quad) = TILE4(values[channel / 4]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup const TILE* weights = weight_tile + simdgroup * BLOCK * STRIDE;
    multiply_tiles(value_tile, weights, weights + WEIGHTS / 2 * STRIDE, rows, products);
}
#pragma clang loop unroll(full)
for (uint block = 0; block < TOKEN_BLOCKS; block++) {
    if (block * BLOCK < rows) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_store(products[block][0], sums + simdgroup * BLOCK, WEIGHTS);
        simdgroup_store(products[block][1], sums + simdgroup * BLOCK + WEIGHTS / 2, WEIGHTS);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        // A simdgroup writes a row.
        const uint row = block * BLOCK + simdgroup;
        if (row < rows) {
            const float share = shares[order[first + row]];
            for (uint place = lane; place < WEIGHTS / 2; place += 32) {
                float gated = sums[simdgroup * WEIGHTS + place];
                float upper = sums[simdgroup * WEIGHTS + WEIGHTS / 2 + place];
                if (CLAMPS) {
                    gated = min(gated, CLAMP);
                    upper = clamp(upper, -CLAMP, CLAMP);
                }
                const float activated = gated / (1.0f + precise::exp(-gated)) * upper * share;
                hidden[row_offset(first + row, EXPERT_WIDTH) + column + place] = TILE(activated);
            }
        }
    }
}
