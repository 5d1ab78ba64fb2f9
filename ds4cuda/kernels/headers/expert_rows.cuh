// Rows of an expert's matrix, which are blocks as in the file, times one vector, by one warp. Follows a block type's
// header. Offsets are 64-bit: the experts of a layer take more than 2^31 bytes.

// Brings the table that the block type needs into shared memory; all THREADS threads take part.
__device__ __forceinline__ void copy_magnitudes(const uint2* table, uint2* magnitudes) {
    for (int entry = threadIdx.x; entry < MAGNITUDES; entry += THREADS) {
        magnitudes[entry] = table[entry];
    }
    __syncthreads();
}

// A lane's share of the product; `row` counts the rows of all experts.
__device__ __forceinline__ float row_share(const u8* blocks, long long row, const float* x, int inputs,
                                           const uint2* magnitudes) {
    const u8* first = blocks + row * (inputs / BLOCK_WEIGHTS) * BLOCK_BYTES;
    float sum = 0.0f;
    for (int part = threadIdx.x % WARP; part < inputs / 32; part += WARP) {
        const u8* block = first + (long long)(part * 32 / BLOCK_WEIGHTS) * BLOCK_BYTES;
        sum += part_dot(block, part % (BLOCK_WEIGHTS / 32), x + 32 * part, magnitudes);
    }
    return sum;
}
