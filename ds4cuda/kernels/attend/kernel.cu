// Blocks (heads, split, token): a warp takes one head; a tile of WARP rows in shared memory serves all heads of the
// block. Each lane scores one row of the tile, then sums HEAD_DIM / WARP channels over all of its rows.
#include "warp.cuh"
#include "rotary.cuh"
#include "row_type.cuh"

constexpr int HEADS_EACH = THREADS / WARP;
constexpr int CHANNELS_EACH = HEAD_DIM / WARP;
constexpr int TILE_ROW = HEAD_DIM + 1;  // one more, so that lanes reading a column meet different banks
constexpr float SCALE = 1.0f / ROOT_HEAD_DIM;

// Normed, turned and scaled: `query` [HEAD_DIM] in shared memory of one warp.
__device__ __forceinline__ void load_query(const float* from, const float2* turns, float* query) {
    const int lane = threadIdx.x % WARP;
    float squares = 0.0f;
    for (int channel = lane; channel < HEAD_DIM; channel += WARP) {
        squares += from[channel] * from[channel];
    }
    const float scale = 1.0f / sqrtf(warp_sum(squares) / HEAD_DIM + EPSILON);
    for (int channel = 2 * lane; channel < HEAD_DIM; channel += 2 * WARP) {
        float2 pair = make_float2(from[channel] * scale, from[channel + 1] * scale);
        if (channel >= HEAD_DIM - ROTARY_DIM) {
            pair = turned(pair, turns[(channel - (HEAD_DIM - ROTARY_DIM)) / 2]);
        }
        query[channel] = pair.x;
        query[channel + 1] = pair.y;
    }
}

extern "C" __global__ void attend(const float* queries, const Row* ring, const Row* compressed, const int* chosen,
                                  const float2* rotations, const int* position, float* partial, float2* maxima,
                                  int ring_rows, int rows_each) {
    extern __shared__ float shared[];
    float* tile = shared;
    float* query = tile + WARP * TILE_ROW + threadIdx.x / WARP * (HEAD_DIM + WARP);
    float* weights = query + HEAD_DIM;
    const int lane = threadIdx.x % WARP, head = blockIdx.x * HEADS_EACH + threadIdx.x / WARP;
    const long long token = blockIdx.z;
    const int at = *position + blockIdx.z;
    const int near = min(at + 1, WINDOW), oldest = at + 1 - near;
    const int visible = RATIO == 0 ? 0 : (at + 1) / max(RATIO, 1);
    const int all = near + (CHOOSES ? min(visible, TOP_K) : visible);
    const int begin = blockIdx.y * rows_each, end = min(all, begin + rows_each);
    load_query(queries + (token * HEADS + head) * HEAD_DIM, rotations + token * (ROTARY_DIM / 2), query);
    float largest = __uint_as_float(0xFF800000u), total = 0.0f;
    float sums[CHANNELS_EACH];
    for (int place = 0; place < CHANNELS_EACH; place++) {
        sums[place] = 0.0f;
    }
    for (int base = begin; base < end; base += WARP) {
        __syncthreads();
        for (int row = threadIdx.x / WARP; row < WARP; row += HEADS_EACH) {
            const int number = base + row;
            const Row* from = ring + (long long)((oldest + number) % ring_rows) * HEAD_DIM;
            if (number >= near && number < end) {
                const int which = CHOOSES ? chosen[token * TOP_K + number - near] : number - near;
                from = compressed + (long long)which * HEAD_DIM;
            }
            for (int channel = lane; channel < HEAD_DIM; channel += WARP) {
                tile[row * TILE_ROW + channel] = number < end ? row_value(from[channel]) : 0.0f;
            }
        }
        __syncthreads();
        float score = 0.0f;
        for (int channel = 0; channel < HEAD_DIM; channel++) {
            score += query[channel] * tile[lane * TILE_ROW + channel];
        }
        score = base + lane < end ? score * SCALE : __uint_as_float(0xFF800000u);
        const float before = largest;
        largest = fmaxf(largest, warp_max(score));
        const float weight = expf(score - largest), kept = expf(before - largest);
        weights[lane] = weight;
        wait_for_warp();
        total = total * kept + warp_sum(weight);
        for (int place = 0; place < CHANNELS_EACH; place++) {
            sums[place] *= kept;
            for (int row = 0; row < WARP; row++) {
                sums[place] += weights[row] * tile[row * TILE_ROW + place * WARP + lane];
            }
        }
    }
    const long long slot = (token * gridDim.y + blockIdx.y) * HEADS + head;
    for (int place = 0; place < CHANNELS_EACH; place++) {
        partial[slot * HEAD_DIM + place * WARP + lane] = sums[place];
    }
    if (lane == 0) {
        maxima[slot] = make_float2(largest, total);
    }
}
