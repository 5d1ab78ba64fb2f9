// Blocks (heads, split, token) of eight warps: HEADS_EACH heads of one token on tensor cores, which share each tile of
// rows. A tile's scores are sums over two halves of the channels, by four warps each; then every warp weighs two heads
// and mixes an eighth of the channels. Rows are binary16 numbers; queries and weights are sums of two, so that their
// products are as exact as those of floats.
#include "warp.cuh"
#include "tensor_cores.cuh"
#include "rotary.cuh"

constexpr int WARPS = 8;
constexpr int HEADS_EACH = 16;
constexpr int PITCH = HEAD_DIM + 8;  // numbers from row to row, so that eight rows lie in different banks
constexpr int WEIGHT_PITCH = WARP + 8;
constexpr int CHANNELS_EACH = HEAD_DIM / WARPS;
constexpr int COLUMNS = CHANNELS_EACH / 8;
constexpr float SCALE = 1.0f / ROOT_HEAD_DIM;

struct Tile {
    u16 rows[WARP * PITCH];
    u16 queries[2][HEADS_EACH * PITCH];  // what a binary16 number holds of each, and the rest
    float scores[2][HEADS_EACH][WARP + 4];
    u16 weights[2][HEADS_EACH * WEIGHT_PITCH];
    float kept[HEADS_EACH];
};
static_assert(sizeof(Tile) == SHARED_BYTES, "the launch asks for the memory of a tile");

__device__ __forceinline__ void put_number(u16 (*parts)[HEADS_EACH * PITCH], int at, float number) {
    const u16 most = to_half(number);
    parts[0][at] = most;
    parts[1][at] = to_half(number - from_half(most));
}

// Normed and turned; zeros for a head that does not exist.
__device__ __forceinline__ void load_query(Tile& tile, const float* from, const float2* turns, int head, bool exists) {
    const int lane = threadIdx.x % WARP;
    float squares = 0.0f;
    for (int channel = lane; channel < HEAD_DIM; channel += WARP) {
        squares += exists ? from[channel] * from[channel] : 0.0f;
    }
    const float scale = 1.0f / sqrtf(warp_sum(squares) / HEAD_DIM + EPSILON);
    for (int channel = 2 * lane; channel < HEAD_DIM; channel += 2 * WARP) {
        float2 pair = make_float2(0.0f, 0.0f);
        if (exists) {
            pair = make_float2(from[channel] * scale, from[channel + 1] * scale);
        }
        if (channel >= HEAD_DIM - ROTARY_DIM) {
            pair = turned(pair, turns[(channel - (HEAD_DIM - ROTARY_DIM)) / 2]);
        }
        put_number(tile.queries, head * PITCH + channel, pair.x);
        put_number(tile.queries, head * PITCH + channel + 1, pair.y);
    }
}

// The scores of eight rows of the tile, over half of the channels.
__device__ __forceinline__ void score_rows(Tile& tile) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, half = warp / 4, first = warp % 4 * 8;
    float sums[2][4] = {};
    for (int channel = half * (HEAD_DIM / 2); channel < (half + 1) * (HEAD_DIM / 2); channel += 32) {
        u32 rows[4];
        load_fragments(tile.rows + (first + lane % 8) * PITCH + channel + lane / 8 * 8, rows);
#pragma unroll
        for (int step = 0; step < 2; step++) {
#pragma unroll
            for (int part = 0; part < 2; part++) {
                u32 heads[4];
                const u16* from = tile.queries[part] + lane % 16 * PITCH + channel + 16 * step + lane / 16 * 8;
                load_fragments(from, heads);
                multiply_halves(sums[part], heads, rows + 2 * step);
            }
        }
    }
#pragma unroll
    for (int at = 0; at < 4; at++) {
        const int head = lane / 4 + at / 2 * 8, row = first + lane % 4 * 2 + at % 2;
        tile.scores[half][head][row] = sums[0][at] + sums[1][at];
    }
}

// The weight of the lane's row for one head, of which there are `rows`. What the head's earlier rows keep of theirs
// goes to `kept`.
__device__ __forceinline__ void weigh(Tile& tile, int head, int rows, float& largest, float& total) {
    const int lane = threadIdx.x % WARP;
    const float both = tile.scores[0][head][lane] + tile.scores[1][head][lane];
    const float score = lane < rows ? both * SCALE : __uint_as_float(0xFF800000u);
    const float before = largest;
    largest = fmaxf(largest, warp_max(score));
    const float weight = expf(score - largest), kept = expf(before - largest);
    const u16 most = to_half(weight);
    tile.weights[0][head * WEIGHT_PITCH + lane] = most;
    tile.weights[1][head * WEIGHT_PITCH + lane] = to_half(weight - from_half(most));
    total = total * kept + warp_sum(weight);
    if (lane == 0) {
        tile.kept[head] = kept;
    }
}

// Adds the weighed rows of the tile to what the warp's channels keep. A tile is summed by itself: tensor cores cut what
// they add, floats round.
__device__ __forceinline__ void mix_rows(const Tile& tile, float (*sums)[4]) {
    const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * CHANNELS_EACH;
    const float kept[2] = {tile.kept[lane / 4], tile.kept[lane / 4 + 8]};
    u32 weights[2][2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const u16* from = tile.weights[part] + lane % 16 * WEIGHT_PITCH + 16 * half + lane / 16 * 8;
            load_fragments(from, weights[half][part]);
        }
    }
#pragma unroll
    for (int column = 0; column < COLUMNS; column += 2) {
        float mixed[2][4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 values[4];
            const u16* from = tile.rows + (16 * half + lane % 16) * PITCH + first + 8 * column + lane / 16 * 8;
            load_turned(from, values);
#pragma unroll
            for (int part = 0; part < 2; part++) {
                multiply_halves(mixed[0], weights[half][part], values);
                multiply_halves(mixed[1], weights[half][part], values + 2);
            }
        }
#pragma unroll
        for (int at = 0; at < 4; at++) {
            sums[column][at] = sums[column][at] * kept[at / 2] + mixed[0][at];
            sums[column + 1][at] = sums[column + 1][at] * kept[at / 2] + mixed[1][at];
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * WARP)
    tile_attend(const float* queries, const u16* ring, const u16* compressed, const int* chosen,
                const float2* rotations, const int* position, float* partial, float2* maxima, int ring_rows,
                int rows_each) {
    extern __shared__ uint4 shared[];
    Tile& tile = *(Tile*)shared;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = blockIdx.x * HEADS_EACH;
    const long long token = blockIdx.z;
    const int at = *position + blockIdx.z;
    const int near = min(at + 1, WINDOW), oldest = at + 1 - near;
    const int visible = RATIO == 0 ? 0 : (at + 1) / max(RATIO, 1);
    const int all = near + (CHOOSES ? min(visible, TOP_K) : visible);
    const int begin = blockIdx.y * rows_each, end = min(all, begin + rows_each);
    float largest[2], total[2] = {0.0f, 0.0f}, sums[COLUMNS][4] = {};
#pragma unroll
    for (int own = 0; own < 2; own++) {
        const int head = 2 * warp + own;
        const float* from = queries + (token * HEADS + first + head) * HEAD_DIM;
        load_query(tile, from, rotations + token * (ROTARY_DIM / 2), head, first + head < HEADS);
        largest[own] = __uint_as_float(0xFF800000u);
    }
    for (int base = begin; base < end; base += WARP) {
        __syncthreads();
        for (int task = threadIdx.x; task < WARP * (HEAD_DIM / 8); task += WARPS * WARP) {
            const int row = task / (HEAD_DIM / 8), piece = task % (HEAD_DIM / 8), number = base + row;
            const u16* from = ring + (long long)((oldest + number) % ring_rows) * HEAD_DIM;
            if (number >= near && number < end) {
                const int which = CHOOSES ? chosen[token * TOP_K + number - near] : number - near;
                from = compressed + (long long)which * HEAD_DIM;
            }
            ((uint4*)(tile.rows + row * PITCH))[piece] =
                number < end ? ((const uint4*)from)[piece] : make_uint4(0, 0, 0, 0);
        }
        __syncthreads();
        score_rows(tile);
        __syncthreads();
#pragma unroll
        for (int own = 0; own < 2; own++) {
            weigh(tile, 2 * warp + own, end - base, largest[own], total[own]);
        }
        __syncthreads();
        mix_rows(tile, sums);
    }
    const long long slot = (token * gridDim.y + blockIdx.y) * HEADS + first;
#pragma unroll
    for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (int at = 0; at < 4; at++) {
            const int head = lane / 4 + at / 2 * 8, channel = warp * CHANNELS_EACH + 8 * column + lane % 4 * 2 + at % 2;
            if (first + head < HEADS) {
                partial[(slot + head) * HEAD_DIM + channel] = sums[column][at];
            }
        }
    }
    if (lane == 0) {
#pragma unroll
        for (int own = 0; own < 2; own++) {
            const int head = 2 * warp + own;
            if (first + head < HEADS) {
                maxima[slot + head] = make_float2(largest[own], total[own]);
            }
        }
    }
}
