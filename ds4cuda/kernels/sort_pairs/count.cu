// Block (expert): how many pairs chose it.
#include "warp.cuh"

extern "C" __global__ void count_pairs(const int* chosen, int* counts, int pairs) {
    int count = 0;
    for (int base = 0; base < pairs; base += THREADS) {
        const int pair = base + threadIdx.x;
        count += __syncthreads_count(pair < pairs && chosen[pair] == (int)blockIdx.x);
    }
    if (threadIdx.x == 0) {
        counts[blockIdx.x] = count;
    }
}
