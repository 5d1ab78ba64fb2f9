// A threadgroup chooses some of a query's rows, or of its share of them. When it merges, it chooses among rows
// whose numbers `candidates` holds; else `candidates` is `scores` once more, and only its shape is read.
constexpr uint DIGITS = 3;
constexpr uint BITS = 11;
constexpr uint BINS = 1u << BITS;
constexpr uint OWN_BINS = BINS / THREADS;
threadgroup atomic_uint bins[BINS];
threadgroup uint sums[32];
threadgroup uint tied_sums[32];
threadgroup uint found[2];

const uint thread_number = thread_index_in_threadgroup;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint query = threadgroup_position_in_grid.y;
const uint share = threadgroup_position_in_grid.x;
const uint shares = threadgroups_per_grid.x;

const uint count = wanted[0];
const uint size = candidates_shape[1];
const uint least = size / shares;
const uint larger_shares = size % shares;
const uint first = share * least + min(share, larger_shares);
const uint last = first + least + (share < larger_shares ? 1 : 0);
const size_t scores_at = row_offset(query, scores_shape[1]);
const size_t candidates_at = row_offset(query, size);

// A simdgroup's own rows, a multiple of its lanes.
const uint stretch = (last - first + THREADS - 1) / THREADS * 32;
const uint begin = first + simdgroup * stretch;
const uint end = min(begin + stretch, last);

// The rank sought, digit by digit; `missing` of the rows that begin like it are to be taken.
uint sought = 0;
uint decided = 0;
uint missing = count;
for (uint digit = 0; digit < DIGITS; digit++) {
    // The last digit overlaps the one before by a bit, which no longer tells anything apart.
    const uint shift = digit == DIGITS - 1 ? 0 : 32 - BITS * (digit + 1);
    for (uint bin = thread_number; bin < BINS; bin += THREADS) {
        atomic_store_explicit(&bins[bin], 0u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint place = begin + lane; place < end; place += 32) {
        const uint row = MERGE ? uint(candidates[candidates_at + place]) : place;
        const uint rank = rank_of(scores[scores_at + row]);
        if (((rank ^ sought) & decided) == 0) {
            atomic_fetch_add_explicit(&bins[rank >> shift & (BINS - 1)], 1u, memory_order_relaxed);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint counts[OWN_BINS];
    uint own = 0;
    for (uint bin = 0; bin < OWN_BINS; bin++) {
        counts[bin] = atomic_load_explicit(&bins[thread_number * OWN_BINS + bin], memory_order_relaxed);
        own += counts[bin];
    }
    const uint in_simdgroup = simd_prefix_exclusive_sum(own);
    if (lane == 31) {
        sums[simdgroup] = in_simdgroup + own;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint before = in_simdgroup + simd_sum(lane < simdgroup ? sums[lane] : 0u);
    if (before < missing && missing <= before + own) {
        uint bin = 0;
        while (missing > before + counts[bin]) {
            before += counts[bin];
            bin++;
        }
        found[0] = thread_number * OWN_BINS + bin;
        found[1] = before;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sought |= found[0] << shift;
    decided |= (BINS - 1) << shift;
    missing -= found[1];
}

// How many rows of this stretch are better than the one sought, and how many tie with it.
uint better = 0;
uint tied = 0;
for (uint place = begin + lane; place < end; place += 32) {
    const uint row = MERGE ? uint(candidates[candidates_at + place]) : place;
    const uint rank = rank_of(scores[scores_at + row]);
    better += rank < sought ? 1 : 0;
    tied += rank == sought ? 1 : 0;
}
better = simd_sum(better);
tied = simd_sum(tied);
if (lane == 0) {
    sums[simdgroup] = better;
    tied_sums[simdgroup] = tied;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
better = simd_sum(lane < simdgroup ? sums[lane] : 0u);
tied = simd_sum(lane < simdgroup ? tied_sums[lane] : 0u);

// `better` and `tied` count the rows before a block of 32; of the tied rows the first `missing` are taken.
const size_t chosen_at = row_offset(query * shares + share, count);
for (uint block = begin; block < end; block += 32) {
    const uint place = block + lane;
    const bool inside = place < end;
    const uint row = inside ? (MERGE ? uint(candidates[candidates_at + place]) : place) : 0;
    const uint rank = inside ? rank_of(scores[scores_at + row]) : 0xFFFFFFFFu;
    const uint is_better = inside && rank < sought ? 1 : 0;
    const uint is_tied = inside && rank == sought ? 1 : 0;
    const uint better_before = better + simd_prefix_exclusive_sum(is_better);
    const uint tied_before = tied + simd_prefix_exclusive_sum(is_tied);
    if (is_better == 1 || (is_tied == 1 && tied_before < missing)) {
        chosen[chosen_at + better_before + min(tied_before, missing)] = int(row);
    }
    better += simd_sum(is_better);
    tied += simd_sum(is_tied);
}
