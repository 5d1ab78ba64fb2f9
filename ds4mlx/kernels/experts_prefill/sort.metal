// A group of threads an expert: it counts the pairs of lower experts and its own, and writes its stretch of
// `order` and of `tiles`. No group waits for another.
threadgroup uint lower_counts[SIMDGROUPS];
threadgroup uint own_counts[SIMDGROUPS];
const int expert = int(threadgroup_position_in_grid.x);
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint pairs = uint(chosen_shape[0]) * uint(chosen_shape[1]);
// A simdgroup goes through neighbouring pairs, in whole rounds of its 32 lanes.
const uint stretch = (pairs + 32 * SIMDGROUPS - 1) / (32 * SIMDGROUPS) * 32;
const uint begin = simdgroup * stretch;
const uint end = min(begin + stretch, pairs);
uint lower = 0;
uint own = 0;
for (uint pair = begin + lane; pair < end; pair += 32) {
    lower += uint(chosen[pair] < expert);
    own += uint(chosen[pair] == expert);
}
lower = simd_sum(lower);
own = simd_sum(own);
if (lane == 0) {
    lower_counts[simdgroup] = lower;
    own_counts[simdgroup] = own;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
uint start = 0;
uint count = 0;
uint earlier = 0;
for (uint other = 0; other < SIMDGROUPS; other++) {
    start += lower_counts[other];
    count += own_counts[other];
    earlier += other < simdgroup ? own_counts[other] : 0;
}
uint place = start + earlier;
for (uint base = begin; base < end; base += 32) {
    const uint pair = base + lane;
    const bool mine = pair < end && chosen[pair] == expert;
    const uint before = simd_prefix_exclusive_sum(uint(mine));
    if (mine) {
        order[place + before] = int(pair);
    }
    place += simd_sum(uint(mine));
}
// start / TOKENS + expert leaves room for the part tiles of all lower experts: their tiles never overlap.
const uint first_tile = start / TOKENS + uint(expert);
const uint next_tile = (start + count) / TOKENS + uint(expert) + 1;
for (uint tile = first_tile + thread_index_in_threadgroup; tile < next_tile; tile += 32 * SIMDGROUPS) {
    const uint skipped = (tile - first_tile) * TOKENS;
    tiles[3 * tile] = expert;
    tiles[3 * tile + 1] = int(start + skipped);
    tiles[3 * tile + 2] = int(min(max(count, skipped) - skipped, uint(TOKENS)));
}
