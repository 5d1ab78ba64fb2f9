// The products of some rows of an expert's matrices with some vectors in 8 bits, by one block on tensor cores. Follows
// tensor_cores.cuh and a block type's header for integer products. Each warp takes 16 rows and all vectors, a step of
// 256 inputs at a time: its weights are unpacked once for all vectors. Sums over a step are integers and exact.
//
// A vector is one of the rows of `x`: codes [rows, inputs], a scale for each 256 of them and int16 sums of each 16.
// Offsets are 64-bit. What a block type needs:
//   FACTORS: its steps are beside the codes, a byte for each part; else they are small enough to be multiplied into
//     the codes, one for each half of a part
//   MINIMA: its weights have minima
//   blocks of a part have the exponent of a power of two in the place of a step
constexpr int STEP = 256;
constexpr int PARTS = STEP / 32;
constexpr int PITCH = STEP + 16;  // bytes from row to row, so that eight rows lie in different banks
constexpr int TILE_ROWS = THREADS / WARP * 16;
constexpr int COLUMNS = VECTORS / 8;
constexpr bool POWERS = BLOCK_WEIGHTS == 32;

template <bool REAL>
struct FactorType {
    typedef int Type;
};
template <>
struct FactorType<true> {
    typedef float Type;
};
typedef FactorType<POWERS>::Type Factor;

struct Quantised {
    const u8* codes;
    const float* scales;
    const short* sums;
};

struct Tile {
    uint4 rows[TILE_ROWS * PITCH / 16];
    uint4 vectors[VECTORS * PITCH / 16];
    u32 vector_sums[MINIMA ? VECTORS * 8 : 4];  // of each vector the low parts of 16 sums, then the high ones
    u32 minima[MINIMA ? TILE_ROWS * 4 : 4];     // of each row 16 bytes
    uint2 factors[FACTORS ? TILE_ROWS : 2];     // of each row a byte for each part
    float2 scales[TILE_ROWS];
    uint2 magnitudes[MAGNITUDES + MAGNITUDES % 2];
    float vector_scales[VECTORS];
    int places[VECTORS];  // of the vectors among the quantised rows
};
static_assert(sizeof(Tile) == SHARED_BYTES, "the launch asks for the memory of a tile");

// Unpacks a step of the rows, of which the first half are at `upper` and the second at `lower`.
__device__ __forceinline__ void unpack_rows(Tile& tile, const u8* upper, const u8* lower, long long row_bytes,
                                            int step) {
    for (int task = threadIdx.x; task < TILE_ROWS * PARTS; task += THREADS) {
        const int row = task / PARTS, part = task % PARTS;
        const u8* from = row < TILE_ROWS / 2 ? upper + row * row_bytes : lower + (row - TILE_ROWS / 2) * row_bytes;
        const u8* block = from + (long long)((step * STEP + part * 32) / BLOCK_WEIGHTS) * BLOCK_BYTES;
        const int own = part % (BLOCK_WEIGHTS / 32);
        const CodedPart coded = coded_part(block, own, tile.magnitudes);
        uint4* to = tile.rows + (row * PITCH + part * 32) / 16;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 step = FACTORS ? 1u : (u32)coded.steps[half], *four = coded.codes + 4 * half;
            to[half] = make_uint4(four[0] * step, four[1] * step, four[2] * step, four[3] * step);
        }
        if (FACTORS) {
            ((u8*)tile.factors)[task] = POWERS ? block[0] : (u8)coded.steps[0];
        }
        if (MINIMA) {
            ((u16*)tile.minima)[task] = (u16)(coded.minima[0] | coded.minima[1] << 8);
        }
        if (part == 0) {
            tile.scales[row] = POWERS ? make_float2(0.5f, 0.0f) : make_float2(coded.step, coded.least);
        }
    }
}

// Brings a step of `count` vectors.
__device__ __forceinline__ void copy_vectors(Tile& tile, const Quantised& x, int inputs, int count, int step) {
    const int blocks = inputs / STEP;
    for (int task = threadIdx.x; task < count * 16; task += THREADS) {
        const int vector = task / 16, piece = task % 16;
        const long long block = (long long)tile.places[vector] * blocks + step;
        tile.vectors[vector * PITCH / 16 + piece] = ((const uint4*)x.codes)[block * 16 + piece];
        if (MINIMA) {
            const int sum = x.sums[block * 16 + piece], high = (sum + 64) >> 7;
            ((u8*)(tile.vector_sums + vector * 8))[piece] = (u8)(sum - 128 * high);
            ((u8*)(tile.vector_sums + vector * 8))[16 + piece] = (u8)high;
        }
        if (piece == 0) {
            tile.vector_scales[vector] = x.scales[block];
        }
    }
}

// What a byte of `factors` says. It is an exponent of two, of which 127 counts as 0; the least is that of a subnormal
// number, which counts as zero: kernels are compiled with -ftz=true, by CuPy.
__device__ __forceinline__ Factor factor(u32 byte) {
    return POWERS ? (Factor)__uint_as_float(byte > 0u ? byte << 23 : 1u << 22) : (Factor)byte;
}

// A step's products of a warp's rows with eight vectors from `first` on, without the vectors' scales. `rows` are the
// fragments of the rows' codes, the others those of the lane's two rows.
__device__ __forceinline__ void step_products(const Tile& tile, int first, const u32 (*rows)[4], const u32* minima,
                                              const uint2* factors, const float2* scales, float* products) {
    const int lane = threadIdx.x % WARP;
    Factor totals[4] = {0, 0, 0, 0};
    int unscaled[4] = {0, 0, 0, 0};
#pragma unroll
    for (int pair = 0; pair < PARTS / 2; pair++) {
        u32 columns[4];
        load_fragments((const u8*)tile.vectors + (first + lane % 8) * PITCH + 64 * pair + lane / 8 * 16, columns);
#pragma unroll
        for (int part = 2 * pair; part < 2 * pair + 2; part++) {
            if (!FACTORS) {
                multiply_32(unscaled, rows[part], columns + part % 2 * 2);
                continue;
            }
            int dots[4] = {0, 0, 0, 0};
            multiply_32(dots, rows[part], columns + part % 2 * 2);
#pragma unroll
            for (int at = 0; at < 4; at++) {
                const u32 word = part < 4 ? factors[at / 2].x : factors[at / 2].y;
                totals[at] += (Factor)dots[at] * factor(word >> 8 * (part % 4) & 255u);
            }
        }
    }
#pragma unroll
    for (int at = 0; at < 4; at++) {
        products[at] = scales[at / 2].x * (float)(FACTORS ? totals[at] : (Factor)unscaled[at]);
    }
    if (MINIMA) {
        const u32* sums = tile.vector_sums + (first + lane / 4) * 8 + lane % 4;
        int low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
        multiply_16(low, minima, sums[0]);
        multiply_16(high, minima, sums[4]);
#pragma unroll
        for (int at = 0; at < 4; at++) {
            products[at] -= scales[at / 2].y * (float)(low[at] + 128 * high[at]);
        }
    }
}

// Adds a step's products of the warp's rows with the `count` vectors, which have room up to a multiple of eight.
__device__ __forceinline__ void add_step(const Tile& tile, int count, float (*sums)[4]) {
    const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16, row = first + lane / 4;
    u32 rows[PARTS][4];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        load_fragments((const u8*)tile.rows + (first + lane % 16) * PITCH + 32 * part + lane / 16 * 16, rows[part]);
    }
    u32 minima[2] = {0, 0};
    uint2 factors[2];
    if (MINIMA) {
        minima[0] = tile.minima[row * 4 + lane % 4];
        minima[1] = tile.minima[(row + 8) * 4 + lane % 4];
    }
    if (FACTORS) {
        factors[0] = tile.factors[row];
        factors[1] = tile.factors[row + 8];
    }
    const float2 scales[2] = {tile.scales[row], tile.scales[row + 8]};
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
        if (8 * column < count) {
            float products[4];
            step_products(tile, 8 * column, rows, minima, factors, scales, products);
            const float* own = tile.vector_scales + 8 * column + lane % 4 * 2;
#pragma unroll
            for (int at = 0; at < 4; at++) {
                sums[column][at] += own[at % 2] * products[at];
            }
        }
    }
}

// The products of the tile's rows with the vectors of a group of pairs, which are numbers pair / `shared_by` of x. All
// threads take part; they may use the tile again after they have met.
__device__ __forceinline__ void expert_products(Tile& tile, const u8* upper, const u8* lower, const uint2* table,
                                                const Quantised& x, int inputs, const int* pairs, int count,
                                                int shared_by, float (*sums)[4]) {
    const int padded = (count + 7) / 8 * 8;
    const long long row_bytes = (long long)(inputs / BLOCK_WEIGHTS) * BLOCK_BYTES;
    for (int entry = threadIdx.x; entry < MAGNITUDES; entry += THREADS) {
        tile.magnitudes[entry] = table[entry];
    }
    for (int vector = threadIdx.x; vector < padded; vector += THREADS) {
        tile.places[vector] = pairs[min(vector, count - 1)] / shared_by;
    }
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (int at = 0; at < 4; at++) {
            sums[column][at] = 0.0f;
        }
    }
    for (int step = 0; step < inputs / STEP; step++) {
        __syncthreads();
        unpack_rows(tile, upper, lower, row_bytes, step);
        copy_vectors(tile, x, inputs, padded, step);
        __syncthreads();
        add_step(tile, count, sums);
    }
}

// Puts the products of the warp's rows with the `count` vectors into shared memory, `room` floats for each vector.
__device__ __forceinline__ void put_products(const float (*sums)[4], int count, float* products, int room) {
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (int at = 0; at < 4; at++) {
            const int vector = 8 * column + lane % 4 * 2 + at % 2;
            if (vector < count) {
                products[vector * room + row + at / 2 * 8] = sums[column][at];
            }
        }
    }
}
