// One block: the largest eligible logit, the lowest id on ties.
#include "warp.cuh"

constexpr int WARPS = THREADS / WARP;
constexpr float LOWEST = -1e30f;  // what a best logit must exceed

__device__ __forceinline__ void keep_better(float& best, int& id, float other, int other_id) {
    if (other > best || (other == best && other_id < id)) {
        best = other;
        id = other_id;
    }
}

extern "C" __global__ void pick(const float* logits, const u8* allowed, int* token, int vocabulary, int fallback) {
    __shared__ float best_of[WARPS];
    __shared__ int id_of[WARPS];
    float best = LOWEST;
    int id = vocabulary;
    for (int at = threadIdx.x; at < vocabulary; at += THREADS) {
        const float logit = logits[at];
        // Strictly larger, in ascending order: the first of equals stays.
        if (logit > best && logit <= 3.402823466e38f && (!MASKED || allowed[at])) {
            best = logit;
            id = at;
        }
    }
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        const float other = across(best, distance);
        const int other_id = across(id, distance);
        keep_better(best, id, other, other_id);
    }
    if (threadIdx.x % WARP == 0) {
        best_of[threadIdx.x / WARP] = best;
        id_of[threadIdx.x / WARP] = id;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < WARPS; warp++) {
            keep_better(best, id, best_of[warp], id_of[warp]);
        }
        *token = id < vocabulary ? id : fallback;
    }
}
