static constant constexpr const int CHUNK = 8;

// Frontier row of a token: of an earlier step in the ring, of this one in `own`. Where windows overlap, the first
// one reaches back to position -4: unsigned that is 2^32 more, and the same slot among 8.
static inline const device float* frontier_row(const device float* ring, const device float* own, int position,
                                               int start) {
    return position < start ? ring + uint(position) % SLOTS * FRONTIER_WIDTH
                            : own + uint(position - start) * FRONTIER_WIDTH;
}

// Some channels of the window that begins at `first`: the softmax of scores over its tokens, for each channel
// alone, weighs their values; 0 where nothing is scored. `column` is where the channels' values stand in a
// frontier row, of a compressor of `width` channels whose scores follow its values.
// Eight tokens at a time: what was summed before is weighed anew for each larger score.
template <typename V>
static inline V pool(const device float* ring, const device float* own, int first, int start, uint column,
                     uint width) {
    V largest = V(UNSCORED);
    V total = V(0);
    V sum = V(0);
    for (int begin = 0; begin < HALVES * RATIO; begin += CHUNK) {
        V scores[CHUNK];
        V values[CHUNK];
        V larger = largest;
        #pragma clang loop unroll(full)
        for (int number = 0; number < CHUNK; number++) {
            const int candidate = begin + number;
            const int position = first - (HALVES - 1) * RATIO + candidate;
            // Where windows overlap, a token's first half serves the following window, its second its own.
            const uint channel = column + candidate / RATIO * width;
            const device float* row = frontier_row(ring, own, position, start) + channel;
            values[number] = *(const device V*)row;
            scores[number] = *(const device V*)(row + HALVES * width);
            larger = max(larger, scores[number]);
        }
        const V kept = precise::exp(largest - larger);
        total *= kept;
        sum *= kept;
        #pragma clang loop unroll(full)
        for (int number = 0; number < CHUNK; number++) {
            const V weight = precise::exp(scores[number] - larger);
            total += weight;
            sum += weight * values[number];
        }
        largest = larger;
    }
    return select(V(0), sum / total, total > V(0));
}

// The attention compressor's row of the window.
static inline void store_window(const device float* ring, const device float* own, int first, int start,
                                const device float* norm, const device float* turns, device ROW* row,
                                threadgroup float* scratch, uint lane, uint simdgroup) {
    float2 pairs[PAIRS_EACH];
    for (int number = 0; number < PAIRS_EACH; number++) {
        const uint pair = pair_of(number, lane, simdgroup);
        pairs[number] = float2(0);
        if (pair < HEAD_DIM / 2) {
            pairs[number] = pool<float2>(ring, own, first, start, 2 * pair, HEAD_DIM);
        }
    }
    store_row(pairs, (const device float2*)norm, (const device float2*)turns, (device vec<ROW, 2>*)row, scratch,
              lane, simdgroup);
}
