// Rounding activations to 8 bits: a warp takes 256 numbers, a lane 8 neighbouring ones, so that four lanes hold a block
// of a dense matrix's input and the warp one of the experts'. Follows warp.cuh. Spec: model 3.1.
constexpr int EACH = 8;
constexpr int DENSE_BLOCK = 32;
constexpr int EXPERT_BLOCK = WARP * EACH;
constexpr int SUM_OF = 16;

// A lane's numbers of a row of `width`; beyond its end those at its beginning, which are not to be stored.
struct Eight {
    float values[EACH];
    long long place;
    bool inside;
};

// The calling lane's numbers of one of the rows of x; blocks (columns, ...) of THREADS threads. Whether the warp has any.
__device__ __forceinline__ bool load_eight(const float* x, int width, int row, Eight& eight) {
    const int first = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * EXPERT_BLOCK;
    const int column = first + threadIdx.x % WARP * EACH;
    if (first >= width) {
        return false;
    }
    eight.inside = column < width;
    eight.place = (long long)row * width + (eight.inside ? column : 0);
#pragma unroll
    for (int at = 0; at < EACH; at += 4) {
        const float4 four = *(const float4*)(x + eight.place + at);
        eight.values[at] = four.x;
        eight.values[at + 1] = four.y;
        eight.values[at + 2] = four.z;
        eight.values[at + 3] = four.w;
    }
    return true;
}

// The first number of largest magnitude, with its sign, of all lanes whose numbers differ below the bit LANES only.
template <int LANES>
__device__ __forceinline__ float largest_of(const Eight& eight) {
    float largest = eight.values[0];
#pragma unroll
    for (int at = 1; at < EACH; at++) {
        largest = fabsf(eight.values[at]) > fabsf(largest) ? eight.values[at] : largest;
    }
    // At each distance the lanes with that bit hold what comes after.
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) {
        const float other = across(largest, distance);
        const bool comes_after = threadIdx.x & distance;
        const float before = comes_after ? other : largest, after = comes_after ? largest : other;
        largest = fabsf(after) > fabsf(before) ? after : before;
    }
    return largest;
}

// The nearest codes of a lane's numbers times `inverse`, ties to even, in one store; -> their sum.
__device__ __forceinline__ int store_codes(const Eight& eight, float inverse, signed char* to) {
    u32 words[EACH / 4] = {};
    int sum = 0;
#pragma unroll
    for (int at = 0; at < EACH; at++) {
        const int code = (int)fminf(fmaxf(rintf(eight.values[at] * inverse), -128.0f), 127.0f);
        sum += code;
        words[at / 4] |= (code & 255u) << 8 * (at % 4);
    }
    *(uint2*)(to + eight.place) = make_uint2(words[0], words[1]);
    return sum;
}

__device__ __forceinline__ void store_dense_codes(const Eight& eight, signed char* codes, float* scales) {
    const float scale = fabsf(largest_of<DENSE_BLOCK / EACH>(eight)) / 127.0f;
    if (eight.inside) {
        store_codes(eight, scale > 0.0f ? 1.0f / scale : 0.0f, codes);
    }
    if (eight.inside && threadIdx.x % (DENSE_BLOCK / EACH) == 0) {
        scales[eight.place / DENSE_BLOCK] = scale;
    }
}

// All lanes of the warp are inside.
__device__ __forceinline__ void store_expert_codes(const Eight& eight, signed char* codes, float* scales, short* sums) {
    const float largest = largest_of<WARP>(eight);
    const float inverse = largest != 0.0f ? -127.0f / largest : 0.0f;
    int sum = store_codes(eight, inverse, codes);
    sum += across(sum, 1);
    if (threadIdx.x % 2 == 0) {
        sums[eight.place / SUM_OF] = (short)sum;
    }
    if (threadIdx.x % WARP == 0) {
        scales[eight.place / EXPERT_BLOCK] = inverse != 0.0f ? 1.0f / inverse : 0.0f;
    }
}
