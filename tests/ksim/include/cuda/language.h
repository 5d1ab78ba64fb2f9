// CUDA's keywords, built-in variables and vector types.
#pragma once
#include "../ksim.h"

#define __CUDACC__ 1
#define __CUDA_ARCH__ 800
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
#define KSIM_HERE const char *f_ = __builtin_FILE(), int l_ = __builtin_LINE()
#define KSIM_AT f_, l_
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

struct uint3;
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct ksim_idx {
  unsigned x, y, z;
};
#define threadIdx (ksim_thread->position)
#define blockIdx (ksim_block->position)
#define blockDim (ksim_block->size)
#define gridDim (ksim_block->blocks)
#define warpSize 32

#define KSIM_V(T, n)                                                              \
  struct n##1 { T x; };                                                           \
  struct alignas(2 * sizeof(T)) n##2 { T x, y; };                                 \
  struct n##3 { T x, y, z; };                                                     \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) n##4 { T x, y, z, w; }; \
  inline n##1 make_##n##1(T a) { return {a}; }                                    \
  inline n##2 make_##n##2(T a, T b) { return {a, b}; }                            \
  inline n##3 make_##n##3(T a, T b, T c) { return {a, b, c}; }                    \
  inline n##4 make_##n##4(T a, T b, T c, T d) { return {a, b, c, d}; }
KSIM_V(signed char, char)
KSIM_V(unsigned char, uchar)
KSIM_V(short, short)
KSIM_V(unsigned short, ushort)
KSIM_V(int, int)
KSIM_V(unsigned, uint)
KSIM_V(long, long)
KSIM_V(unsigned long, ulong)
KSIM_V(long long, longlong)
KSIM_V(unsigned long long, ulonglong)
KSIM_V(float, float)
KSIM_V(double, double)
