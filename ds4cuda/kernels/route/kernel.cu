// One warp for each token.
#include "warp.cuh"

constexpr int EACH = (EXPERTS + WARP - 1) / WARP;
constexpr float LEAST_SUM = 6.103515625e-05f;  // 2^-14

// The root of log(1 + e^x).
__device__ __forceinline__ float affinity(float logit) {
    return sqrtf(logit > 20.0f ? logit : log1pf(expf(logit)));
}

extern "C" __global__ void route(const float* logits, const float* bias, const int* table, const int* tokens,
                                 int* chosen, float* shares) {
    const long long token = blockIdx.x;
    const int lane = threadIdx.x;
    const float* from = logits + token * EXPERTS;
    int slot = 0;  // of the lane whose number is that of a slot: its expert
    if (HASHED) {
        slot = lane < USED ? table[(long long)tokens[token] * USED + lane] : 0;
    } else {
        float scores[EACH];
        for (int at = 0; at < EACH; at++) {
            const int expert = at * WARP + lane;
            scores[at] = __uint_as_float(0xFF800000u);
            if (expert < EXPERTS) {
                scores[at] = affinity(from[expert]) + bias[expert];
            }
        }
        for (int place = 0; place < USED; place++) {
            float best = __uint_as_float(0xFF800000u);
            int expert = EXPERTS;
            for (int at = 0; at < EACH; at++) {
                if (scores[at] > best) {
                    best = scores[at];
                    expert = at * WARP + lane;
                }
            }
            for (int distance = WARP / 2; distance > 0; distance /= 2) {
                const float other = across(best, distance);
                const int of_other = across(expert, distance);
                if (other > best || (other == best && of_other < expert)) {
                    best = other;
                    expert = of_other;
                }
            }
            for (int at = 0; at < EACH; at++) {
                scores[at] = at * WARP + lane == expert ? __uint_as_float(0xFF800000u) : scores[at];
            }
            slot = lane == place ? min(expert, EXPERTS - 1) : slot;  // none is best where all are NaN
        }
    }
    const float own = lane < USED ? affinity(from[slot]) : 0.0f;
    float sum = 0.0f;
    for (int place = 0; place < USED; place++) {
        sum += from_lane(own, place);
    }
    if (lane < USED) {
        chosen[token * USED + lane] = slot;
        shares[token * USED + lane] = own / fmaxf(sum, LEAST_SUM) * WEIGHT_SCALE;
    }
}
