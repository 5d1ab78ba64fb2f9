// Rotary positions: a channel pair turns by (cosine, sine), and back by the same pair. A pair that is not
// rotary has (1, 0), which changes nothing. Spec: model 4.2.
static inline float2 turn(float2 pair, float2 by) {
    return float2(pair.x * by.x - pair.y * by.y, pair.x * by.y + pair.y * by.x);
}

static inline float2 turn_back(float2 pair, float2 by) {
    return float2(pair.x * by.x + pair.y * by.y, pair.y * by.x - pair.x * by.y);
}
