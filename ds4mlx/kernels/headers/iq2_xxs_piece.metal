// Weights 16 * piece to 16 * piece + 15 of a block, four vectors; exact in float.
template <typename T>
void expand_piece(device const uchar* block, uint piece, threadgroup const uint2* magnitudes,
                  thread vec<T, 4>* weights) {
    const uint2 words = iq2_words(block, piece / 2);
    const float step = iq2_step(block, words.y);
    for (uint half_piece = 0; half_piece < 2; half_piece++) {
        const uint octet = 2 * (piece % 2) + half_piece;
        const uint2 row = magnitudes[(words.x >> (8 * octet)) & 255u];
        const uint signs = iq2_signs(words.y, octet);
        weights[2 * half_piece] = vec<T, 4>(step * iq2_signed(row.x, signs));
        weights[2 * half_piece + 1] = vec<T, 4>(step * iq2_signed(row.y, signs >> 4));
    }
}
