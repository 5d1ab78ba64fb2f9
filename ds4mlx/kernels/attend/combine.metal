// A thread joins PART channels of one head of one token; the lanes of a simdgroup hold the slices' weights.
using Part = vec<float, PART>;
const int lane = int(thread_index_in_simdgroup);
const int channel = int(thread_position_in_grid.x) * PART;
const int head = int(thread_position_in_grid.y);
const int token = int(thread_position_in_grid.z);
const int slices = sums_shape[1];
const int first = token * slices * HEADS + head;

float slice_largest = LOWEST;
float slice_total = 0.0f;
if (lane < slices) {
    slice_largest = stats[(first + lane * HEADS) * 2];
    slice_total = stats[(first + lane * HEADS) * 2 + 1];
}
const float largest = max(sinks[head], simd_max(slice_largest));
const float weight = precise::exp(slice_largest - largest);
const float total = simd_sum(weight * slice_total) + precise::exp(sinks[head] - largest);

Part joined = Part(0.0f);
for (int slice = 0; slice < slices; ++slice) {
    const Part values = *(const device Part*)(sums + row_start(first + slice * HEADS) + channel);
    joined += values * simd_shuffle(weight, ushort(slice));
}
joined = joined / total;

const Part by = *(const device Part*)(rotation + row_start(token) + channel);
Part turned = joined;
for (int pair = 0; pair < PART; pair += 2) {
    const float2 back = turn_back(float2(joined[pair], joined[pair + 1]), float2(by[pair], by[pair + 1]));
    turned[pair] = back.x;
    turned[pair + 1] = back.y;
}
*(device Part*)(mixed + row_start(token * HEADS + head) + channel) = turned;
