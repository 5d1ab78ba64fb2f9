// The gate is bounded above only; CLAMP at or below 1e-6 bounds nothing. Spec: model 4.8.
__device__ __forceinline__ float clamped_swiglu(float gate, float up) {
    if (CLAMP > 1e-6f) {
        gate = fminf(gate, CLAMP);
        up = fmaxf(fminf(up, CLAMP), -CLAMP);
    }
    return gate / (1.0f + expf(-gate)) * up;
}
