// A simdgroup a token; lane k takes the k-th expert of the token's row of the table.
const uint token = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const uint slot = min(lane, uint(USED - 1));
const int expert = table[uint(tokens[token]) * uint(USED) + slot];
const float share = share_of(affinity(logits[token * uint(EXPERTS) + uint(expert)]));
if (lane < uint(USED)) {
    chosen[token * uint(USED) + lane] = expert;
    shares[token * uint(USED) + lane] = share;
}
