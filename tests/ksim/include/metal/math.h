// Metal's floating-point functions: the C library's in single precision, rounded once to the type asked for.
#pragma once
#include "vectors.h"

namespace metal {
#define KSIM_F1(name, expression)                                           \
  inline float name(float x) { return expression; }                         \
  inline half name(half x_) {                                               \
    float x = x_;                                                           \
    return (half)(expression);                                              \
  }                                                                         \
  inline bfloat name(bfloat x_) {                                           \
    float x = x_;                                                           \
    return (bfloat)(expression);                                            \
  }                                                                         \
  template <class T, int N>                                                 \
  inline enable_if_t<is_floating_point_v<T>, vec<T, N>> name(vec<T, N> v) { \
    for (int i = 0; i < N; i++) v.d[i] = name(v.d[i]);                      \
    return v;                                                               \
  }
#define KSIM_F2(name, expression)                                                                           \
  inline float name(float x, float y) { return expression; }                                                \
  inline half name(half x_, half y_) {                                                                      \
    float x = x_, y = y_;                                                                                   \
    return (half)(expression);                                                                              \
  }                                                                                                         \
  inline bfloat name(bfloat x_, bfloat y_) {                                                                \
    float x = x_, y = y_;                                                                                   \
    return (bfloat)(expression);                                                                            \
  }                                                                                                         \
  template <class T, int N>                                                                                 \
  inline enable_if_t<is_floating_point_v<T>, vec<T, N>> name(vec<T, N> a, typename ident<vec<T, N>>::t b) { \
    for (int i = 0; i < N; i++) a.d[i] = name(a.d[i], b.d[i]);                                              \
    return a;                                                                                               \
  }                                                                                                         \
  template <class U, class T, int N>                                                                        \
  inline enable_if_t<is_arithmetic_v<U> && is_floating_point_v<T>, vec<T, N>> name(U a, vec<T, N> b) {      \
    return name(vec<T, N>(T(a)), b);                                                                        \
  }
#include "math_functions.h"
namespace precise {
#include "math_functions.h"
}
namespace fast {
#include "math_functions.h"
}

inline float ldexp(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
inline half ldexp(half x, int exponent) { return (half)__builtin_ldexpf(x, exponent); }
inline int ilogb(float x) { return __builtin_ilogbf(x); }
inline float frexp(float x, int& exponent) { return __builtin_frexpf(x, &exponent); }
inline float modf(float x, float& whole) { return __builtin_modff(x, &whole); }
inline float sincos(float x, float& cosine) {
  cosine = __builtin_cosf(x);
  return __builtin_sinf(x);
}
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline half fma(half a, half b, half c) { return (half)__builtin_fmaf(a, b, c); }
inline bfloat fma(bfloat a, bfloat b, bfloat c) { return (bfloat)__builtin_fmaf(a, b, c); }
template <class T, int N>
inline vec<T, N> fma(vec<T, N> a, typename ident<vec<T, N>>::t b, typename ident<vec<T, N>>::t c) {
  for (int i = 0; i < N; i++) a.d[i] = fma(a.d[i], b.d[i], c.d[i]);
  return a;
}
}  // namespace metal
