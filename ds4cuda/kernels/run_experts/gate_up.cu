// Blocks (hidden numbers, slot, token): a warp takes one hidden number, a row of the gate and the same one of `up`.
#include "warp.cuh"
#include "block_type.cuh"
#include "expert_rows.cuh"
#include "swiglu.cuh"

extern "C" __global__ void gate_up(const u8* gate, const u8* up, const uint2* table, const float* x,
                                   const int* chosen, const float* shares, float* hidden) {
    __shared__ uint2 magnitudes[MAGNITUDES];
    copy_magnitudes(table, magnitudes);
    const int number = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (number >= EXPERT_WIDTH) {
        return;
    }
    const long long token = blockIdx.z, pair = token * USED + blockIdx.y;
    const long long row = (long long)chosen[pair] * EXPERT_WIDTH + number;
    const float* input = x + token * WIDTH;
    const float of_gate = warp_sum(row_share(gate, row, input, WIDTH, magnitudes));
    const float of_up = warp_sum(row_share(up, row, input, WIDTH, magnitudes));
    if (threadIdx.x % WARP == 0) {
        hidden[pair * EXPERT_WIDTH + number] = clamped_swiglu(of_gate, of_up) * shares[pair];
    }
}
