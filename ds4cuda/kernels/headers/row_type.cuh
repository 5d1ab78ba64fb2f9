// Numbers of stored rows: floats, or binary16 numbers as bits. Follows warp.cuh.

__device__ __forceinline__ float row_value(float stored) { return stored; }
__device__ __forceinline__ float row_value(u16 stored) { return from_half(stored); }
__device__ __forceinline__ void store_value(float* place, float value) { *place = value; }
__device__ __forceinline__ void store_value(u16* place, float value) { *place = to_half(value); }
