// Weights 16 * piece to 16 * piece + 15 of a block, four vectors.
template <typename T>
void expand_piece(device const uchar* block, uint piece, threadgroup const uint2*, thread vec<T, 4>* weights) {
    device const uint* codes = (device const uint*)(block + 16 + 32 * (piece / 4) + 16 * (piece % 2));
    const float2 steps = q4_steps(block, piece / 2);
    for (uint quad = 0; quad < 4; quad++) {
        weights[quad] = vec<T, 4>(steps.x * q4_codes(codes[quad], piece / 2 % 2) - steps.y);
    }
}
