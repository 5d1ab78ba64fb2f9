// Rows of a matrix times the vectors of some tokens, by one warp. Follows warp.cuh. A Q8_0 matrix is held as
// codes [rows, inputs] and the binary16 bits of its scales [rows, inputs / 32]; a binary16 matrix as bits, its
// scales are not read. `inputs` is a multiple of 4, x aligned to 16 bytes. Spec: model 3.

__device__ __forceinline__ float4 four_weights(const signed char* weights, const u16* scales, long long at) {
    const char4 codes = *(const char4*)(weights + at);
    const float scale = from_half(scales[at / 32]);
    return make_float4(codes.x * scale, codes.y * scale, codes.z * scale, codes.w * scale);
}

__device__ __forceinline__ float4 four_weights(const u16* weights, const u16*, long long at) {
    const ushort4 bits = *(const ushort4*)(weights + at);
    return make_float4(from_half(bits.x), from_half(bits.y), from_half(bits.z), from_half(bits.w));
}

// Lanes' shares of the products of ROWS neighbouring rows from `first` on, of which only `rows` exist: number r *
// TOKENS + t is that of row r and token t. The sums over the warp remain to be made.
template <int ROWS, int TOKENS, class Weight>
__device__ __forceinline__ void row_shares(const Weight* weights, const u16* scales, long long first, long long rows,
                                           const float* const* x, int inputs, float* shares) {
#pragma unroll
    for (int at = 0; at < ROWS * TOKENS; at++) {
        shares[at] = 0.0f;
    }
    for (int column = threadIdx.x % WARP * 4; column < inputs; column += WARP * 4) {
        float4 v[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; token++) {
            v[token] = *(const float4*)(x[token] + column);
        }
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            const long long place = min(first + row, rows - 1) * inputs + column;
            const float4 w = four_weights(weights, scales, place);
#pragma unroll
            for (int token = 0; token < TOKENS; token++) {
                shares[row * TOKENS + token] +=
                    w.x * v[token].x + w.y * v[token].y + w.z * v[token].z + w.w * v[token].w;
            }
        }
    }
}
