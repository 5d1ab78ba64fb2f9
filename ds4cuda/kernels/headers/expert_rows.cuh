// Rows of an expert's matrix, which are blocks as in the file, times vectors, by one warp. Follows a block type's
// header. Offsets are 64-bit: the experts of a layer take more than 2^31 bytes.

// Brings the table that the block type needs into shared memory; all THREADS threads take part.
__device__ __forceinline__ void copy_magnitudes(const uint2* table, uint2* magnitudes) {
    for (int entry = threadIdx.x; entry < MAGNITUDES; entry += THREADS) {
        magnitudes[entry] = table[entry];
    }
    __syncthreads();
}

// A lane's shares of the products of one row, counted over all experts, with N vectors. Four weights at a time, so that
// neighbouring numbers of a vector are read together.
template <int N>
__device__ __forceinline__ void add_row_shares(const u8* blocks, long long row, const float* const* x, int inputs,
                                               const uint2* magnitudes, float* shares) {
    const u8* first = blocks + row * (inputs / BLOCK_WEIGHTS) * BLOCK_BYTES;
    for (int part = threadIdx.x % WARP; part < inputs / 32; part += WARP) {
        const u8* block = first + (long long)(part * 32 / BLOCK_WEIGHTS) * BLOCK_BYTES;
        float weights[32];
        part_weights(block, part % (BLOCK_WEIGHTS / 32), magnitudes, weights);
#pragma unroll
        for (int vector = 0; vector < N; vector++) {
            const float4* numbers = (const float4*)(x[vector] + 32 * part);
            float sum = 0.0f;
#pragma unroll
            for (int at = 0; at < 8; at++) {
                const float4 v = numbers[at];
                sum += weights[4 * at] * v.x + weights[4 * at + 1] * v.y + weights[4 * at + 2] * v.z +
                       weights[4 * at + 3] * v.w;
            }
            shares[vector] += sum;
        }
    }
}
