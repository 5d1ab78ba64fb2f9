// A simdgroup a token. Lane l ranks experts l, l + 32, ...; USED times the largest is taken from all lanes.
// Lane k keeps the k-th choice and moves it to its place in ascending order.
const uint token = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const uint row = token * uint(EXPERTS);
float scores[TURNS];
#pragma clang loop unroll(full)
for (uint turn = 0; turn < uint(TURNS); ++turn) {
    const uint expert = turn * 32u + lane;
    scores[turn] = expert < uint(EXPERTS) ? affinity(logits[row + expert]) + bias[expert] : -INFINITY;
}
uint mine = 0;
for (uint slot = 0; slot < uint(USED); ++slot) {
    float best = -INFINITY;
    uint at = uint(EXPERTS - 1);
    #pragma clang loop unroll(full)
    for (uint turn = 0; turn < uint(TURNS); ++turn) {
        if (scores[turn] > best) {
            best = scores[turn];
            at = turn * 32u + lane;
        }
    }
    const float top = simd_max(best);
    const uint taken = simd_min(best == top ? at : uint(EXPERTS - 1));
    mine = lane == slot ? taken : mine;
    #pragma clang loop unroll(full)
    for (uint turn = 0; turn < uint(TURNS); ++turn) {
        scores[turn] = turn * 32u + lane == taken ? -INFINITY : scores[turn];
    }
}
uint place = 0;
for (uint slot = 0; slot < uint(USED); ++slot) {
    const uint other = simd_shuffle(mine, ushort(slot));
    place += other < mine || (other == mine && slot < lane) ? 1u : 0u;
}
const float share = share_of(affinity(logits[row + mine]));
if (lane < uint(USED)) {
    chosen[token * uint(USED) + place] = int(mine);
    shares[token * uint(USED) + place] = share;
}
