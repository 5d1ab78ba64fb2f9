// Block (expert): its pairs in order, behind those of the experts before it, and its groups of up to `group` of them.
// The last expert's block also says of the groups beyond its own that they have none.
#include "warp.cuh"

constexpr int WARPS = THREADS / WARP;

extern "C" __global__ void place_pairs(const int* chosen, const int* counts, int* order, int* group_expert,
                                       int* group_first, int* group_count, int pairs, int group, int most_groups) {
    __shared__ int first, before, of_warps[WARPS];
    const int expert = blockIdx.x, own = counts[expert], groups = (own + group - 1) / group;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        first = before = 0;
    }
    __syncthreads();
    for (int other = threadIdx.x; other < expert; other += THREADS) {
        atomicAdd(&first, counts[other]);
        atomicAdd(&before, (counts[other] + group - 1) / group);
    }
    __syncthreads();
    const int last = expert == (int)gridDim.x - 1 ? most_groups - before : groups;
    for (int at = threadIdx.x; at < last; at += THREADS) {
        group_expert[before + at] = expert;
        group_first[before + at] = first + at * group;
        group_count[before + at] = max(0, min(group, own - at * group));
    }
    int place = first;
    for (int base = 0; base < pairs; base += THREADS) {
        const int pair = base + threadIdx.x;
        const bool is_own = pair < pairs && chosen[pair] == expert;
        const u32 lanes = lanes_where(is_own);
        if (lane == 0) {
            of_warps[warp] = __popc(lanes);
        }
        __syncthreads();
        int ahead = __popc(lanes & ((1u << lane) - 1u));
        for (int other = 0; other < WARPS; other++) {
            ahead += other < warp ? of_warps[other] : 0;
        }
        if (is_own) {
            order[place + ahead] = pair;
        }
        for (int other = 0; other < WARPS; other++) {
            place += of_warps[other];
        }
        __syncthreads();
    }
}
