// Smaller for larger scores; the same for both zeros.
inline uint rank_of(float score) {
    const uint bits = as_type<uint>(score);
    return bits > 0x80000000u ? bits : 0x7FFFFFFFu - (bits & 0x7FFFFFFFu);
}
