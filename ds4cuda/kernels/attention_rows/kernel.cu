// Blocks (part, token): the query latent, the token's row, and its frontier row where the layer compresses.
#include "warp.cuh"
#include "block.cuh"
#include "rounding.cuh"
#include "rotary.cuh"
#include "row_type.cuh"
#include "cached_row.cuh"

extern "C" __global__ void attention_rows(const float* low, const float* projected, const float* query_norm,
                                          const float* row_norm, const u16* positional, const float2* rotations,
                                          const int* position, float* latent, Row* ring, float* frontier,
                                          float* frontier_ring, int ring_rows, int count) {
    const long long token = blockIdx.y;
    const int at = *position + blockIdx.y;
    const float* from = low + token * (QUERY_RANK + HEAD_DIM);
    __shared__ float row[HEAD_DIM];
    __shared__ float scratch[THREADS / WARP];
    if (blockIdx.x == 0) {
        float squares = 0.0f;
        for (int channel = threadIdx.x; channel < QUERY_RANK; channel += THREADS) {
            squares += from[channel] * from[channel];
        }
        const float scale = 1.0f / sqrtf(block_sum<THREADS>(squares, scratch) / QUERY_RANK + EPSILON);
        for (int channel = threadIdx.x; channel < QUERY_RANK; channel += THREADS) {
            latent[token * QUERY_RANK + channel] = from[channel] * scale * query_norm[channel];
        }
    } else if (blockIdx.x == 1) {
        for (int channel = threadIdx.x; channel < HEAD_DIM; channel += THREADS) {
            row[channel] = from[QUERY_RANK + channel];
        }
        __syncthreads();
        store_row(row, row_norm, rotations + token * (ROTARY_DIM / 2), ring + (long long)(at % ring_rows) * HEAD_DIM,
                  scratch);
    } else {
        // A single token's row may go to the ring at once: it takes the place of one that no window needs.
        float* slot = frontier_ring + (long long)(at % FRONTIER_SLOTS) * FRONTIER;
        for (int column = threadIdx.x; column < FRONTIER; column += THREADS) {
            const float value = projected[token * COMPRESSOR + column] +
                                from_half(positional[(long long)(at % RATIO) * FRONTIER + column]);
            frontier[token * FRONTIER + column] = value;
            if (count == 1) {
                slot[column] = value;
            }
        }
    }
}
