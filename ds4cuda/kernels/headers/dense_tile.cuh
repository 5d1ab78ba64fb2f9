// The products of some rows of a Q8_0 matrix with the codes of some tokens, by one block on tensor cores. Follows
// tensor_cores.cuh; see dense.cuh and quantise.cuh for the matrix and the codes. Each warp takes 16 rows and all
// tokens, a step of 128 inputs at a time, and scales the exact product of 32 codes: blocks are added in order.
constexpr int STEP = 128;
constexpr int PARTS = STEP / 32;
constexpr int PITCH = STEP + 16;  // bytes from row to row, so that eight rows lie in different banks
constexpr int TILE_ROWS = THREADS / WARP * 16;
constexpr int COLUMNS = TOKENS / 8;
constexpr int ROOM = TILE_ROWS + 4;  // floats from token to token of the products

struct Tile {
    uint4 rows[TILE_ROWS * PITCH / 16];
    uint4 tokens[TOKENS * PITCH / 16];
    float4 row_scales[TILE_ROWS];  // of each part
    float4 token_scales[TOKENS];
};
static_assert(PARTS == 4, "scales of a step are four");
// The tile and the products take turns in this memory.
constexpr int SHARED_BYTES = sizeof(Tile) > 4 * TOKENS * ROOM ? sizeof(Tile) : 4 * TOKENS * ROOM;

// Rows of a tile: the first half from `upper` on, of which those up to `upper_end` exist, and the second from `lower`
// on. Others are read as the last.
struct Rows {
    long long upper, upper_end, lower, lower_end;
};

__device__ __forceinline__ long long row_number(const Rows& rows, int row) {
    return row < TILE_ROWS / 2 ? min(rows.upper + row, rows.upper_end - 1)
                               : min(rows.lower + row - TILE_ROWS / 2, rows.lower_end - 1);
}

// Codes of STEP inputs from `column` on, zeros beyond `inputs`.
__device__ __forceinline__ uint4 piece_of(const signed char* row, int column, int inputs) {
    return column < inputs ? *(const uint4*)(row + column) : make_uint4(0, 0, 0, 0);
}

// `codes` and `code_scales` are those of the first token, and the next token's are `stride` inputs further.
__device__ __forceinline__ void copy_step(Tile& tile, const signed char* weights, const u16* scales, const Rows& rows,
                                          const signed char* codes, const float* code_scales, long long stride,
                                          int inputs, int tokens, int padded, int step) {
    for (int task = threadIdx.x; task < TILE_ROWS * (STEP / 16); task += THREADS) {
        const int row = task / (STEP / 16), piece = task % (STEP / 16), column = step * STEP + 16 * piece;
        const long long number = row_number(rows, row);
        tile.rows[row * (PITCH / 16) + piece] = piece_of(weights + number * inputs, column, inputs);
        if (piece % 2 == 0) {
            ((float*)&tile.row_scales[row])[piece / 2] =
                column < inputs ? from_half(scales[number * (inputs / 32) + column / 32]) : 0.0f;
        }
    }
    for (int task = threadIdx.x; task < padded * (STEP / 16); task += THREADS) {
        const int token = task / (STEP / 16), piece = task % (STEP / 16), column = step * STEP + 16 * piece;
        const long long number = min(token, tokens - 1);
        tile.tokens[token * (PITCH / 16) + piece] = piece_of(codes + number * stride, column, inputs);
        if (piece % 2 == 0) {
            ((float*)&tile.token_scales[token])[piece / 2] =
                column < inputs ? code_scales[number * (stride / 32) + column / 32] : 0.0f;
        }
    }
}

// The float of a sum of at most 2^22 either way, which was begun with the bits of ZERO: they are those of 1.5 * 2^23
// plus the sum.
constexpr int ZERO = 0x4B400000;
__device__ __forceinline__ float as_float(int sum) { return __int_as_float(sum) - 12582912.0f; }

__device__ __forceinline__ float part_of(const float4& four, int part) {
    return part == 0 ? four.x : part == 1 ? four.y : part == 2 ? four.z : four.w;
}

__device__ __forceinline__ void add_step(const Tile& tile, int tokens, float (*sums)[4]) {
    const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;
    u32 rows[PARTS][4];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        load_fragments((const u8*)tile.rows + (first + lane % 16) * PITCH + 32 * part + lane / 16 * 16, rows[part]);
    }
    const float4 of_rows[2] = {tile.row_scales[first + lane / 4], tile.row_scales[first + lane / 4 + 8]};
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
        if (8 * column < tokens) {
            const float4* scales = tile.token_scales + 8 * column + lane % 4 * 2;
            const float4 of_tokens[2] = {scales[0], scales[1]};
            const u8* from = (const u8*)tile.tokens + (8 * column + lane % 8) * PITCH + lane / 8 * 16;
            u32 codes[2][4];
            load_fragments(from, codes[0]);
            load_fragments(from + 64, codes[1]);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                int dots[4] = {ZERO, ZERO, ZERO, ZERO};
                multiply_32(dots, rows[part], codes[part / 2] + part % 2 * 2);
#pragma unroll
                for (int at = 0; at < 4; at++) {
                    const float scale = part_of(of_rows[at / 2], part) * part_of(of_tokens[at % 2], part);
                    sums[column][at] += scale * as_float(dots[at]);
                }
            }
        }
    }
}

// Puts the products of the rows with `tokens` tokens into shared memory, ROOM floats for each token. All threads take
// part; they have met when it returns.
__device__ __forceinline__ const float* tile_products(uint4* shared, const signed char* weights, const u16* scales,
                                                      const Rows& rows, const signed char* codes,
                                                      const float* code_scales, long long stride, int inputs,
                                                      int tokens) {
    Tile& tile = *(Tile*)shared;
    const int padded = (tokens + 7) / 8 * 8, steps = (inputs + STEP - 1) / STEP;
    float sums[COLUMNS][4];
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (int at = 0; at < 4; at++) {
            sums[column][at] = 0.0f;
        }
    }
    for (int step = 0; step < steps; step++) {
        copy_step(tile, weights, scales, rows, codes, code_scales, stride, inputs, tokens, padded, step);
        __syncthreads();
        add_step(tile, tokens, sums);
        __syncthreads();
    }
    float* products = (float*)shared;
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (int at = 0; at < 4; at++) {
            const int token = 8 * column + lane % 4 * 2 + at % 2;
            if (token < tokens) {
                products[token * ROOM + row + at / 2 * 8] = sums[column][at];
            }
        }
    }
    __syncthreads();
    return products;
}
