// Rows of a matrix times the vectors of TOKENS tokens, by one warp. Follows warp.cuh. A Q8_0 matrix is held as
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

template <int TOKENS, class Weight>
__device__ __forceinline__ void row_dots(const Weight* weights, const u16* scales, long long row,
                                         const float* const* x, int inputs, float* dots) {
    for (int token = 0; token < TOKENS; token++) {
        dots[token] = 0.0f;
    }
    for (int column = threadIdx.x % WARP * 4; column < inputs; column += WARP * 4) {
        const float4 w = four_weights(weights, scales, row * inputs + column);
        for (int token = 0; token < TOKENS; token++) {
            const float4 v = *(const float4*)(x[token] + column);
            dots[token] += w.x * v.x + w.y * v.y + w.z * v.z + w.w * v.w;
        }
    }
    for (int token = 0; token < TOKENS; token++) {
        dots[token] = warp_sum(dots[token]);
    }
}
