// CUDA's mathematical functions.
#pragma once
#include "language.h"

#define KSIM_M1(n, b)                                        \
  inline float n##f(float x) { return __builtin_##b##f(x); } \
  inline double n(double x) { return __builtin_##b(x); }     \
  inline float n(float x) { return __builtin_##b##f(x); }
KSIM_M1(exp, exp)
KSIM_M1(exp2, exp2)
KSIM_M1(log, log)
KSIM_M1(log2, log2)
KSIM_M1(log10, log10)
KSIM_M1(log1p, log1p)
KSIM_M1(expm1, expm1)
KSIM_M1(sqrt, sqrt)
KSIM_M1(sin, sin)
KSIM_M1(cos, cos)
KSIM_M1(tan, tan)
KSIM_M1(tanh, tanh)
KSIM_M1(erf, erf)
KSIM_M1(floor, floor)
KSIM_M1(ceil, ceil)
KSIM_M1(rint, rint)
KSIM_M1(round, round)
KSIM_M1(trunc, trunc)
KSIM_M1(fabs, fabs)
KSIM_M1(nearbyint, nearbyint)
inline float rsqrtf(float x) { return 1.f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1. / __builtin_sqrt(x); }
inline float powf(float a, float b) { return __builtin_powf(a, b); }
inline float fmodf(float a, float b) { return __builtin_fmodf(a, b); }
inline float ldexpf(float a, int b) { return __builtin_ldexpf(a, b); }
inline float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
inline float pow(float a, float b) { return __builtin_powf(a, b); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __expf(float x) { return __builtin_expf(x); }
inline float __logf(float x) { return __builtin_logf(x); }
inline float __log2f(float x) { return __builtin_log2f(x); }
inline float __sinf(float x) { return __builtin_sinf(x); }
inline float __cosf(float x) { return __builtin_cosf(x); }
inline float __powf(float a, float b) { return __builtin_powf(a, b); }
inline void sincosf(float x, float* s, float* c) {
  *s = __builtin_sinf(x);
  *c = __builtin_cosf(x);
}
inline void sincos(double x, double* s, double* c) {
  *s = __builtin_sin(x);
  *c = __builtin_cos(x);
}
inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __saturatef(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
inline int __float2int_rn(float x) { return (int)__builtin_rintf(x); }
inline int __float2int_rd(float x) { return (int)__builtin_floorf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline int lrintf(float x) { return (int)__builtin_rintf(x); }
#define KSIM_MM(T)                                 \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
KSIM_MM(int)
KSIM_MM(unsigned)
KSIM_MM(long)
KSIM_MM(unsigned long)
KSIM_MM(long long)
KSIM_MM(unsigned long long)
KSIM_MM(double)
inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline bool isnan(float x) { return x != x; }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
#ifndef INFINITY
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#endif
#define CUDART_INF_F __builtin_inff()
#define FLT_MAX 3.402823466e38f
