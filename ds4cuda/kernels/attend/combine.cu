// Blocks (head, token), a channel pair a thread: the splits of a head together, with its sink, turned back.
#include "warp.cuh"
#include "rotary.cuh"

extern "C" __global__ void combine(const float* partial, const float2* maxima, const float* sinks,
                                   const float2* rotations, float* mixed, int splits) {
    const int head = blockIdx.x;
    const long long token = blockIdx.y;
    float largest = sinks[head];
    for (int split = 0; split < splits; split++) {
        largest = fmaxf(largest, maxima[(token * splits + split) * HEADS + head].x);
    }
    for (int channel = 2 * threadIdx.x; channel < HEAD_DIM; channel += 2 * blockDim.x) {
        float total = expf(sinks[head] - largest);
        float2 sum = make_float2(0.0f, 0.0f);
        for (int split = 0; split < splits; split++) {
            const long long slot = (token * splits + split) * HEADS + head;
            const float weight = expf(maxima[slot].x - largest);
            total += weight * maxima[slot].y;
            sum.x += weight * partial[slot * HEAD_DIM + channel];
            sum.y += weight * partial[slot * HEAD_DIM + channel + 1];
        }
        sum.x /= total;
        sum.y /= total;
        if (channel >= HEAD_DIM - ROTARY_DIM) {
            const int pair = (channel - (HEAD_DIM - ROTARY_DIM)) / 2;
            sum = turned_back(sum, rotations[token * (ROTARY_DIM / 2) + pair]);
        }
        float* to = mixed + (token * HEADS + head) * HEAD_DIM + channel;
        to[0] = sum.x;
        to[1] = sum.y;
    }
}
