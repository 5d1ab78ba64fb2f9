inline float softplus(float value) {
    const float t = precise::exp(-fabs(value));
    const float s = t / (2.0f + t);
    const float q = s * s;
    float series = 1.0f / 17.0f;
    series = fma(series, q, 1.0f / 15.0f);
    series = fma(series, q, 1.0f / 13.0f);
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

inline float share_of(float mine, uint lane) {
    float total = 0.0f;
    for (uint slot = 0; slot < uint(USED); ++slot) {
        total += simd_shuffle(mine, ushort(slot));
    }
    return mine / max(total, SMALLEST_SUM) * SCALE;
}
