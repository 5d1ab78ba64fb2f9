// Rows of a Q8_0 matrix times the codes of some tokens, by one warp; see dense.cuh and quantise.cuh for both. Follows
// dot8.cuh. `inputs` is a multiple of 32. Spec: model 3.1.
constexpr int CODES = 16;  // of a lane at a time: half a block

// Lanes' shares of the products of ROWS neighbouring rows from `first` on, of which only `rows` exist: number r *
// TOKENS + t is that of row r and token t. The sums over the warp remain to be made.
template <int ROWS, int TOKENS>
__device__ __forceinline__ void row_shares(const signed char* weights, const u16* scales, long long first,
                                           long long rows, const signed char* const* codes,
                                           const float* const* code_scales, int inputs, float* shares) {
#pragma unroll
    for (int at = 0; at < ROWS * TOKENS; at++) {
        shares[at] = 0.0f;
    }
    // A single token's step waits for memory: more is asked for before it is used.
#pragma unroll (TOKENS == 1 ? 2 : 1)
    for (int column = threadIdx.x % WARP * CODES; column < inputs; column += WARP * CODES) {
        uint4 v[TOKENS];
        float v_scale[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; token++) {
            v[token] = *(const uint4*)(codes[token] + column);
            v_scale[token] = code_scales[token][column / 32];
        }
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            const long long place = min(first + row, rows - 1) * inputs + column;
            const uint4 w = *(const uint4*)(weights + place);
            const float w_scale = from_half(scales[place / 32]);
#pragma unroll
            for (int token = 0; token < TOKENS; token++) {
                shares[row * TOKENS + token] += w_scale * v_scale[token] * (float)dot16(w, v[token]);
            }
        }
    }
}
