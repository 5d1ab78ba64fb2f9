// log(1 + e^value) without overflow and, for large negative values, without losing all digits: with
// t = e^-|value| and s = t / (2 + t), log(1 + t) = 2 (s + s^3 / 3 + s^5 / 5 + ...). s is at most 1/3, so what
// is left out after s^13 / 13 is 2e-8 of the result.
inline float softplus(float value) {
    const float t = precise::exp(-fabs(value));
    const float s = t / (2.0f + t);
    const float q = s * s;
    float series = 1.0f / 13.0f;
    series = fma(series, q, 1.0f / 11.0f);
    series = fma(series, q, 1.0f / 9.0f);
    series = fma(series, q, 1.0f / 7.0f);
    series = fma(series, q, 1.0f / 5.0f);
    series = fma(series, q, 1.0f / 3.0f);
    series = fma(series, q, 1.0f);
    return max(value, 0.0f) + 2.0f * s * series;
}

inline float affinity(float logit) {
    return precise::sqrt(softplus(logit));
}

// The weight of each lane's expert: its affinity over the sum of those of lanes 0 to USED - 1, added in order.
inline float share_of(float mine) {
    float total = 0.0f;
    for (uint slot = 0; slot < uint(USED); ++slot) {
        total += simd_shuffle(mine, ushort(slot));
    }
    return mine / max(total, SMALLEST_SUM) * SCALE;
}
