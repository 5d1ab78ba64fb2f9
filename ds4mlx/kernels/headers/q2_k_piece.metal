// Weights 16 * piece to 16 * piece + 15 of a block, four vectors.
template <typename T>
void expand_piece(device const uchar* block, uint piece, threadgroup const uint2*, thread vec<T, 4>* weights) {
    device const uint* codes = (device const uint*)(block + 16 + 32 * (piece / 8) + 16 * (piece % 2));
    const float d = *(device const half*)(block + 80);
    const float least = *(device const half*)(block + 82);
    const uint scale = block[piece];
    const float step = d * (scale & 15u);
    const float minimum = least * (scale >> 4);
    for (uint quad = 0; quad < 4; quad++) {
        weights[quad] = vec<T, 4>(step * q2_codes(codes[quad], piece % 8 / 2) - minimum);
    }
}
