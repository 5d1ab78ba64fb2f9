// The low-rank query vector of a token, `low` [QUERY_RANK], normed into `ranks`.
static inline void store_ranks(const device float* low, const device float* norm, device float* ranks,
                               threadgroup float* scratch, uint lane, uint simdgroup) {
    const uint first = simdgroup * 32 + lane;
    float squares = 0;
    for (uint place = first; place < QUERY_RANK; place += SIMDGROUPS * 32) {
        squares += low[place] * low[place];
    }
    squares = group_sum(squares, scratch, lane, simdgroup, SIMDGROUPS);
    const float scale = precise::rsqrt(squares / QUERY_RANK + EPSILON);
    for (uint place = first; place < QUERY_RANK; place += SIMDGROUPS * 32) {
        ranks[place] = low[place] * scale * norm[place];
    }
}

// The key and value row of a token from `low` [HEAD_DIM].
static inline void store_key_value(const device float2* low, const device float2* norm,
                                   const device float2* turns, device vec<ROW, 2>* row,
                                   threadgroup float* scratch, uint lane, uint simdgroup) {
    float2 pairs[PAIRS_EACH];
    for (int number = 0; number < PAIRS_EACH; number++) {
        const uint pair = pair_of(number, lane, simdgroup);
        pairs[number] = pair < HEAD_DIM / 2 ? low[pair] : float2(0);
    }
    store_row(pairs, norm, turns, row, scratch, lane, simdgroup);
}

// What a token of a layer of any ratio needs: part 0 of its threadgroups norms the ranks, part 1 stores the row.
static inline void store_part(uint part, uint token, const device float* low, const device float* query_norm,
                              const device float* key_value_norm, const device float* rotation,
                              device float* ranks, device ROW* rows, threadgroup float* scratch, uint lane,
                              uint simdgroup) {
    const device float* of_token = low + token * (QUERY_RANK + HEAD_DIM);
    if (part == 0) {
        store_ranks(of_token, query_norm, ranks + token * QUERY_RANK, scratch, lane, simdgroup);
    } else {
        store_key_value((const device float2*)(of_token + QUERY_RANK), (const device float2*)key_value_norm,
                        (const device float2*)(rotation + token * HEAD_DIM),
                        (device vec<ROW, 2>*)(rows + token * HEAD_DIM), scratch, lane, simdgroup);
    }
}
