// Rotary positions: the last channel pairs of a row turn by an angle each. Spec: model 4.2.

// Cosine and sine of position * frequency. The angle is a double: near position 10^6 a float would be off by up
// to 0.03 radian.
__device__ __forceinline__ float2 rotation(int position, double frequency) {
    double sine, cosine;
    sincos((double)position * frequency, &sine, &cosine);
    return make_float2((float)cosine, (float)sine);
}

__device__ __forceinline__ float2 turned(float2 pair, float2 by) {
    return make_float2(pair.x * by.x - pair.y * by.y, pair.x * by.y + pair.y * by.x);
}

__device__ __forceinline__ float2 turned_back(float2 pair, float2 by) {
    return make_float2(pair.x * by.x + pair.y * by.y, pair.y * by.x - pair.x * by.y);
}
