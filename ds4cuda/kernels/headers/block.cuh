// Sums over a thread block. Follows warp.cuh.

// The sum over THREADS threads, the same bits for each and each time. `scratch` holds a float for each warp; it
// may be the one of the call before.
template <int THREADS>
__device__ __forceinline__ float block_sum(float value, float* scratch) {
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        scratch[threadIdx.x / WARP] = value;
    }
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < THREADS / WARP; warp++) {
        total += scratch[warp];
    }
    return total;
}
