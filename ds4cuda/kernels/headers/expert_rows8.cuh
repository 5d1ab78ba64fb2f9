// Rows of an expert's matrix, which are blocks as in the file, times a vector's codes (see quantise.cuh), by one warp.
// Follows a block type's header for integer products. Offsets are 64-bit: the experts of a layer take more than 2^31
// bytes. Spec: model 3.1.

// Brings the table that the block type needs into shared memory; all THREADS threads take part.
__device__ __forceinline__ void copy_magnitudes(const uint2* table, uint2* magnitudes) {
    for (int entry = threadIdx.x; entry < MAGNITUDES; entry += THREADS) {
        magnitudes[entry] = table[entry];
    }
    __syncthreads();
}

// The product of a part with 32 codes, of which `first` and `second` are the sums of 16.
__device__ __forceinline__ float part_product(const CodedPart& part, uint4 low, uint4 high, int first, int second) {
    const u32* codes = part.codes;
    const int dot = part.steps[0] * dot16(make_uint4(codes[0], codes[1], codes[2], codes[3]), low) +
                    part.steps[1] * dot16(make_uint4(codes[4], codes[5], codes[6], codes[7]), high);
    return part.step * (float)dot - part.least * (float)(part.minima[0] * first + part.minima[1] * second);
}

// A lane's shares of the products of ROWS neighbouring rows, counted over all experts, of which those after `last`
// repeat it, with one vector. Adds to `shares`.
template <int ROWS>
__device__ __forceinline__ void add_row_shares(const u8* blocks, long long row, long long last,
                                               const signed char* codes, const float* scales, const short* sums,
                                               int inputs, const uint2* magnitudes, float* shares) {
    for (int part = threadIdx.x % WARP; part < inputs / 32; part += WARP) {
        const uint4* both = (const uint4*)(codes + 32 * part);
        const uint4 low = both[0], high = both[1];
        const short2 of_codes = *(const short2*)(sums + 2 * part);
        const float scale = scales[part / 8];
#pragma unroll
        for (int at = 0; at < ROWS; at++) {
            const long long number = min(row + at, last) * (inputs / BLOCK_WEIGHTS) + part * 32 / BLOCK_WEIGHTS;
            const CodedPart coded =
                coded_part(blocks + number * BLOCK_BYTES, part % (BLOCK_WEIGHTS / 32), magnitudes);
            shares[at] += scale * part_product(coded, low, high, of_codes.x, of_codes.y);
        }
    }
}
