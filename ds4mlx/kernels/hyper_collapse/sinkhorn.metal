// Lanes 0 to 15 hold a 4 x 4 matrix row by row, lanes 16 to 31 the same again. Sums of four are sums of two
// sums of two, so every lane of a row or column gets the same.
inline float row_sum(float entry) {
    entry += simd_shuffle_xor(entry, ushort(1));
    return entry + simd_shuffle_xor(entry, ushort(2));
}

inline float column_sum(float entry) {
    entry += simd_shuffle_xor(entry, ushort(4));
    return entry + simd_shuffle_xor(entry, ushort(8));
}

// Softmax of each row, then columns, rows, columns ... columns: ROUNDS times columns in all.
inline float doubly_normalised(float entry) {
    float largest = max(entry, simd_shuffle_xor(entry, ushort(1)));
    largest = max(largest, simd_shuffle_xor(largest, ushort(2)));
    entry = precise::exp(entry - largest);
    entry = entry / row_sum(entry) + EPSILON;
    entry /= column_sum(entry) + EPSILON;
    for (int turn = 1; turn < ROUNDS; ++turn) {
        entry /= row_sum(entry) + EPSILON;
        entry /= column_sum(entry) + EPSILON;
    }
    return entry;
}
