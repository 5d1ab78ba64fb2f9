// A warp takes one head of one token, four channels a lane.
#include "warp.cuh"
#include "rounding.cuh"
#include "rotary.cuh"
#include "index_vector.cuh"

extern "C" __global__ void index_queries(float* queries, const float2* rotations, int vectors) {
    const long long vector = (long long)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (vector >= vectors) {
        return;
    }
    const int lane = threadIdx.x % WARP, channel = 4 * lane, tail = INDEX_DIM - ROTARY_DIM;
    float4* place = (float4*)(queries + vector * INDEX_DIM) + lane;
    float4 v = *place;
    if (channel >= tail) {
        const float2* turns = rotations + vector / INDEX_HEADS * (ROTARY_DIM / 2) + (channel - tail) / 2;
        const float2 one = turned(make_float2(v.x, v.y), turns[0]);
        const float2 two = turned(make_float2(v.z, v.w), turns[1]);
        v = make_float4(one.x, one.y, two.x, two.y);
    }
    if (ROUNDS) {
        v = round_fp4(hadamard(v, lane));
    }
    *place = v;
}
