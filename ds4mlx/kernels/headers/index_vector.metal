// What the indexer's vectors, queries and window rows alike, go through. Follows rotate.metal and fp4.metal.
// Constants: HEAD_DIM, ROUNDS. Spec: model 4.6 and 4.7.
static constant constexpr const int INDEX_DIM = 128;

// A vector of which each lane of a simdgroup holds four neighbours, turned by the last INDEX_DIM numbers of
// `rotation` [HEAD_DIM], transformed and rounded.
static inline float4 index_vector(float4 values, const device float* rotation, uint lane) {
    const float4 by = ((const device float4*)(rotation + HEAD_DIM - INDEX_DIM))[lane];
    values = float4(turn(values.xy, by.xy), turn(values.zw, by.zw));
    return ROUNDS ? round_fp4(hadamard(values, lane)) : values;
}
