// Products of signed bytes, four in a word, as instructions of a family of GPUs. Exact: sums are 32-bit integers.
// Follows warp.cuh, and is replaced with it.

__device__ __forceinline__ int dot4(u32 a, u32 b, int sum) { return __dp4a((int)a, (int)b, sum); }

__device__ __forceinline__ int dot16(uint4 a, uint4 b) {
    return dot4(a.x, b.x, dot4(a.y, b.y, dot4(a.z, b.z, dot4(a.w, b.w, 0))));
}

// Four of the eight bytes of `low` and `high`, each named by a number from 0 to 7 in four bits of `which`.
__device__ __forceinline__ u32 bytes_of(u32 low, u32 high, u32 which) { return __byte_perm(low, high, which); }
