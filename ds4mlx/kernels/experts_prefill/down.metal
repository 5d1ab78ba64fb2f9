// A group computes a tile of up to TOKENS pairs of one expert times WEIGHTS output channels. Rows of `hidden`
// are in the order of experts, rows of `parts` in that of tokens and slots.
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
const uint column = threadgroup_position_in_grid.x * WEIGHTS;
const uint index = thread_index_in_threadgroup;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
if (index < MAGNITUDES) {
    magnitudes[index] = uint2(table[2 * index], table[2 * index + 1]);
}
const uint weight_row = index / 2;
const uint piece = index % 2 * 16;
device const uchar* blocks =
    row_of_blocks(down, expert, EMBEDDING_WIDTH, column + weight_row, EXPERT_WIDTH / 256);
const uint value_row = index / 8;
const uint quad = index % 8 * 4;
// Rows that the tile has not repeat its last one; their products go nowhere.
const uint source = first + min(value_row, rows - 1);
device const TILE4* values = (device const TILE4*)(hidden + row_offset(source, EXPERT_WIDTH) + quad);
simdgroup_float8x8 products[TOKEN_BLOCKS][2];
clear_products(products);
for (uint channel = 0; channel < EXPERT_WIDTH; channel += DEPTH) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    fill_weights(blocks, channel + piece, magnitudes, weight_tile + weight_row * STRIDE + piece);
    *(threadgroup TILE4*)(value_tile + value_row * STRIDE + quad) = values[channel / 4];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup const TILE* weights = weight_tile + 2 * simdgroup * BLOCK * STRIDE;
    multiply_tiles(value_tile, weights, weights + BLOCK * STRIDE, rows, products);
}
#pragma clang loop unroll(full)
for (uint block = 0; block < TOKEN_BLOCKS; block++) {
    if (block * BLOCK < rows) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_store(products[block][0], sums + 2 * simdgroup * BLOCK, WEIGHTS);
        simdgroup_store(products[block][1], sums + (2 * simdgroup + 1) * BLOCK, WEIGHTS);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        // A simdgroup writes a row.
        const uint row = block * BLOCK + simdgroup;
        if (row < rows) {
            const size_t start = row_offset(uint(order[first + row]), EMBEDDING_WIDTH) + column;
            for (uint place = lane; place < WEIGHTS; place += 32) {
                parts[start + place] = sums[simdgroup * WEIGHTS + place];
            }
        }
    }
}
