// A matrix of blocks among many: weights [experts, rows, blocks a row]. Follows a block type's header.
static inline device const uchar* row_of_blocks(device const uchar* weights, uint expert, uint rows, uint row,
                                                uint blocks) {
    return weights + (ulong(expert) * rows + row) * (blocks * BLOCK_BYTES);
}
