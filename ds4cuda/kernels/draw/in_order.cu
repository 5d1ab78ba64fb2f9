// One block: the draw among all weights in the order of the vocabulary.
#include "warp.cuh"
#include "draw.cuh"

extern "C" __global__ void draw_in_order(const u64* weights, const u64* sums, const float* bests, const int* ids,
                                         int* token, int vocabulary, double uniform, int fallback) {
    __shared__ u64 of_warps[THREADS / WARP];
    __shared__ int place;
    const Best best = best_of_slices(bests, ids);
    u64 total = 0;
    for (int slice = 0; slice < SLICES; slice++) {
        total += sums[slice];
    }
    if (total == 0) {
        if (threadIdx.x == 0) {
            *token = best.id < vocabulary ? best.id : fallback;
        }
        return;
    }
    u64 limit = share_of(uniform, total);
    int slice = 0;
    for (; sums[slice] < limit; slice++) {
        limit -= sums[slice];
    }
    const int first = slice * slice_size(vocabulary), size = min(slice_size(vocabulary), vocabulary - first);
    const u64* from = weights + first;
    const int at = place_of<THREADS>(limit, size, [=](int number) { return from[number]; }, of_warps, &place);
    if (threadIdx.x == 0) {
        *token = first + at;
    }
}
