// Functions over all arithmetic types: min, max, clamp, select, abs, geometry, tests of floats.
#pragma once
#include "math.h"

namespace metal {
#define KSIM_MM(T)                                                \
  inline T min(T a, T b) { return b < a ? b : a; }                \
  inline T max(T a, T b) { return a < b ? b : a; }                \
  inline T clamp(T v, T lo, T hi) { return min(max(v, lo), hi); } \
  inline T select(T a, T b, bool c) { return c ? b : a; }
#define KSIM_MMF(T)                                               \
  inline T min(T a, T b) { return a != a ? b : b < a ? b : a; }   \
  inline T max(T a, T b) { return a != a ? b : a < b ? b : a; }   \
  inline T clamp(T v, T lo, T hi) { return min(max(v, lo), hi); } \
  inline T select(T a, T b, bool c) { return c ? b : a; }         \
  inline T mix(T a, T b, T t) { return T(a + (b - a) * t); }
KSIM_MMF(float)
KSIM_MMF(half)
KSIM_MMF(bfloat)
KSIM_MM(signed char)
KSIM_MM(char)
KSIM_MM(uchar)
KSIM_MM(short)
KSIM_MM(ushort)
KSIM_MM(int)
KSIM_MM(uint)
KSIM_MM(long)
KSIM_MM(ulong)
template <class T>
inline T min3(T a, T b, T c) {
  return min(a, min(b, c));
}
template <class T>
inline T max3(T a, T b, T c) {
  return max(a, max(b, c));
}
#define KSIM_VF2(name)                                                       \
  template <class U, class T, int N>                                         \
  inline enable_if_t<is_arithmetic_v<U>, vec<T, N>> name(U a, vec<T, N> b) { \
    for (int i = 0; i < N; i++) b.d[i] = name(T(a), b.d[i]);                 \
    return b;                                                                \
  }                                                                          \
  template <class T, int N>                                                  \
  inline vec<T, N> name(vec<T, N> a, typename ident<vec<T, N>>::t b) {       \
    for (int i = 0; i < N; i++) a.d[i] = name(a.d[i], b.d[i]);               \
    return a;                                                                \
  }
KSIM_VF2(min)
KSIM_VF2(max)
template <class T, int N>
inline vec<T, N> clamp(vec<T, N> a, typename ident<vec<T, N>>::t lo, typename ident<vec<T, N>>::t hi) {
  return min(max(a, lo), hi);
}
template <class T, int N>
inline vec<T, N> mix(vec<T, N> a, typename ident<vec<T, N>>::t b, typename ident<vec<T, N>>::t t) {
  return a + (b - a) * t;
}
template <class T, int N>
inline vec<T, N> select(vec<T, N> a, typename ident<vec<T, N>>::t b, vec<bool, N> c) {
  for (int i = 0; i < N; i++)
    if (c.d[i]) a.d[i] = b.d[i];
  return a;
}
inline int abs(int x) { return x < 0 ? -x : x; }
inline long abs(long x) { return x < 0 ? -x : x; }
inline short abs(short x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline half abs(half x) { return (half)__builtin_fabsf(x); }
inline bfloat abs(bfloat x) { return (bfloat)__builtin_fabsf(x); }
template <class T, int N>
inline vec<T, N> abs(vec<T, N> a) {
  for (int i = 0; i < N; i++) a.d[i] = abs(a.d[i]);
  return a;
}
template <class T, int N>
inline T dot(vec<T, N> a, typename ident<vec<T, N>>::t b) {
  T s = a.d[0] * b.d[0];
  for (int i = 1; i < N; i++) s += a.d[i] * b.d[i];
  return s;
}
template <class T, int N>
inline T length_squared(vec<T, N> a) {
  return dot(a, a);
}
template <class T, int N>
inline T length(vec<T, N> a) {
  return sqrt(dot(a, a));
}
template <class T, int N>
inline vec<T, N> normalize(vec<T, N> a) {
  return a * vec<T, N>(rsqrt(dot(a, a)));
}
template <int N>
inline bool any(vec<bool, N> a) {
  bool r = false;
  for (int i = 0; i < N; i++) r |= a.d[i];
  return r;
}
template <int N>
inline bool all(vec<bool, N> a) {
  bool r = true;
  for (int i = 0; i < N; i++) r &= a.d[i];
  return r;
}
template <class T>
inline enable_if_t<is_floating_point_v<T>, bool> isnan(T x) {
  return x != x;
}
template <class T>
inline enable_if_t<is_floating_point_v<T>, bool> isinf(T x) {
  return __builtin_isinf((float)x);
}
template <class T>
inline enable_if_t<is_floating_point_v<T>, bool> isfinite(T x) {
  return __builtin_isfinite((float)x);
}
}  // namespace metal
