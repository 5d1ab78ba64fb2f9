// half and bfloat16, rounded after every operation.
#pragma once
#include "language.h"

struct __half {
  _Float16 v;
  __half() = default;
  __half(float f) : v((_Float16)f) {}
  __half(double f) : v((_Float16)f) {}
  __half(int f) : v((_Float16)f) {}
  operator float() const { return (float)v; }
};
struct __nv_bfloat16 {
  __bf16 v;
  __nv_bfloat16() = default;
  __nv_bfloat16(float f) : v((__bf16)f) {}
  __nv_bfloat16(double f) : v((__bf16)(float)f) {}
  __nv_bfloat16(int f) : v((__bf16)(float)f) {}
  operator float() const { return (float)v; }
};
typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;
struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half a, __half b) : x(a), y(b) {}
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
typedef __half2 half2;
typedef __nv_bfloat162 nv_bfloat162;
template <class H, class R>
inline H ksim_raw(R r) {
  H h;
  h.v = r;
  return h;
}
#define KSIM_H(H, R)                                                                         \
  inline H operator+(H a, H b) { return ksim_raw<H>((R)(a.v + b.v)); }                       \
  inline H operator-(H a, H b) { return ksim_raw<H>((R)(a.v - b.v)); }                       \
  inline H operator*(H a, H b) { return ksim_raw<H>((R)(a.v * b.v)); }                       \
  inline H operator/(H a, H b) { return ksim_raw<H>((R)(a.v / b.v)); }                       \
  inline H operator-(H a) { return ksim_raw<H>((R) - a.v); }                                 \
  inline H& operator+=(H& a, H b) {                                                          \
    a = a + b;                                                                               \
    return a;                                                                                \
  }                                                                                          \
  inline H& operator-=(H& a, H b) {                                                          \
    a = a - b;                                                                               \
    return a;                                                                                \
  }                                                                                          \
  inline H& operator*=(H& a, H b) {                                                          \
    a = a * b;                                                                               \
    return a;                                                                                \
  }                                                                                          \
  inline bool operator<(H a, H b) { return a.v < b.v; }                                      \
  inline bool operator>(H a, H b) { return a.v > b.v; }                                      \
  inline bool operator==(H a, H b) { return a.v == b.v; }                                    \
  inline H __hadd(H a, H b) { return a + b; }                                                \
  inline H __hsub(H a, H b) { return a - b; }                                                \
  inline H __hmul(H a, H b) { return a * b; }                                                \
  inline H __hdiv(H a, H b) { return a / b; }                                                \
  inline H __hfma(H a, H b, H c) { return H(__builtin_fmaf((float)a, (float)b, (float)c)); } \
  inline H __hneg(H a) { return -a; }                                                        \
  inline H __habs(H a) { return H(__builtin_fabsf((float)a)); }                              \
  inline H __hmax(H a, H b) { return a < b ? b : a; }                                        \
  inline H __hmin(H a, H b) { return b < a ? b : a; }                                        \
  inline bool __hgt(H a, H b) { return a > b; }                                              \
  inline bool __hlt(H a, H b) { return a < b; }                                              \
  inline H hexp(H a) { return H(__builtin_expf((float)a)); }                                 \
  inline H hsqrt(H a) { return H(__builtin_sqrtf((float)a)); }                               \
  inline H hrsqrt(H a) { return H(1.f / __builtin_sqrtf((float)a)); }
KSIM_H(__half, _Float16)
KSIM_H(__nv_bfloat16, __bf16)
#define KSIM_H2(H2, H)                                                                             \
  inline H2 __hadd2(H2 a, H2 b) { return H2(a.x + b.x, a.y + b.y); }                               \
  inline H2 __hsub2(H2 a, H2 b) { return H2(a.x - b.x, a.y - b.y); }                               \
  inline H2 __hmul2(H2 a, H2 b) { return H2(a.x * b.x, a.y * b.y); }                               \
  inline H2 __hfma2(H2 a, H2 b, H2 c) { return H2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
  inline H2 __hmax2(H2 a, H2 b) { return H2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }                 \
  inline H2 operator+(H2 a, H2 b) { return __hadd2(a, b); }                                        \
  inline H2 operator-(H2 a, H2 b) { return __hsub2(a, b); }                                        \
  inline H2 operator*(H2 a, H2 b) { return __hmul2(a, b); }
KSIM_H2(__half2, __half)
KSIM_H2(__nv_bfloat162, __nv_bfloat16)
inline __half __float2half(float f) { return __half(f); }
inline __half __float2half_rn(float f) { return __half(f); }
inline float __half2float(__half h) { return h; }
inline __half __int2half_rn(int i) { return __half((float)i); }
inline __half2 __float2half2_rn(float f) { return __half2(f, f); }
inline __half2 __floats2half2_rn(float a, float b) { return __half2(a, b); }
inline __half2 __half2half2(__half a) { return __half2(a, a); }
inline __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
inline half2 make_half2(half a, half b) { return half2(a, b); }
inline float2 __half22float2(__half2 h) { return {h.x, h.y}; }
inline __half2 __float22half2_rn(float2 f) { return __half2(f.x, f.y); }
inline float __low2float(__half2 h) { return h.x; }
inline float __high2float(__half2 h) { return h.y; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
inline float __bfloat162float(__nv_bfloat16 h) { return h; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return __nv_bfloat162(a, b); }
inline float2 __bfloat1622float2(__nv_bfloat162 h) { return {h.x, h.y}; }
template <class D, class S>
inline D ksim_bits(S s) {
  static_assert(sizeof(D) == sizeof(S));
  D d;
  __builtin_memcpy(&d, &s, sizeof d);
  return d;
}
inline unsigned short __half_as_ushort(__half h) { return ksim_bits<unsigned short>(h); }
inline __half __ushort_as_half(unsigned short u) { return ksim_bits<__half>(u); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return ksim_bits<unsigned short>(h); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return ksim_bits<__nv_bfloat16>(u); }
inline float __int_as_float(int i) { return ksim_bits<float>(i); }
inline int __float_as_int(float f) { return ksim_bits<int>(f); }
inline float __uint_as_float(unsigned i) { return ksim_bits<float>(i); }
inline unsigned __float_as_uint(float f) { return ksim_bits<unsigned>(f); }
