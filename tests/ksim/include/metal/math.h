// Metal's floating-point functions: the C library's, rounded once to the type asked for.
#pragma once
#include "vectors.h"

namespace metal {
#define KSIM_F1(name, expr)                      \
  inline float name(float x) { return expr; }    \
  inline half name(half x_) {                    \
    float x = x_;                                \
    return (half)(expr);                         \
  }                                              \
  inline bfloat name(bfloat x_) {                \
    float x = x_;                                \
    return (bfloat)(expr);                       \
  }                                              \
  template <int N>                               \
  inline vec<float, N> name(vec<float, N> v) {   \
    for (int i = 0; i < N; i++) {                \
      float x = v.d[i];                          \
      v.d[i] = (expr);                           \
    }                                            \
    return v;                                    \
  }                                              \
  template <int N>                               \
  inline vec<half, N> name(vec<half, N> v) {     \
    for (int i = 0; i < N; i++) {                \
      float x = v.d[i];                          \
      v.d[i] = (half)(expr);                     \
    }                                            \
    return v;                                    \
  }                                              \
  template <int N>                               \
  inline vec<bfloat, N> name(vec<bfloat, N> v) { \
    for (int i = 0; i < N; i++) {                \
      float x = v.d[i];                          \
      v.d[i] = (bfloat)(expr);                   \
    }                                            \
    return v;                                    \
  }
#define KSIM_F1S                                                                                                    \
  KSIM_F1(exp, __builtin_expf(x))                                                                                   \
  KSIM_F1(exp2, __builtin_exp2f(x))                                                                                 \
  KSIM_F1(exp10, __builtin_exp2f(x * 3.321928094887362f)) KSIM_F1(log, __builtin_logf(x))                           \
      KSIM_F1(log2, __builtin_log2f(x)) KSIM_F1(log10, __builtin_log10f(x)) KSIM_F1(sqrt, __builtin_sqrtf(x))       \
          KSIM_F1(rsqrt, 1.0f / __builtin_sqrtf(x)) KSIM_F1(sin, __builtin_sinf(x)) KSIM_F1(cos, __builtin_cosf(x)) \
              KSIM_F1(tan, __builtin_tanf(x)) KSIM_F1(tanh, __builtin_tanhf(x)) KSIM_F1(sinh, __builtin_sinhf(x))   \
                  KSIM_F1(cosh, __builtin_coshf(x)) KSIM_F1(asin, __builtin_asinf(x))                               \
                      KSIM_F1(acos, __builtin_acosf(x)) KSIM_F1(atan, __builtin_atanf(x))                           \
                          KSIM_F1(floor, __builtin_floorf(x)) KSIM_F1(ceil, __builtin_ceilf(x))                     \
                              KSIM_F1(trunc, __builtin_truncf(x)) KSIM_F1(rint, __builtin_rintf(x))                 \
                                  KSIM_F1(round, __builtin_roundf(x)) KSIM_F1(fabs, __builtin_fabsf(x))             \
                                      KSIM_F1(fract, x - __builtin_floorf(x)) KSIM_F1(saturate, x < 0   ? 0.f       \
                                                                                                : x > 1 ? 1.f       \
                                                                                                        : x)        \
                                          KSIM_F1(sign, x > 0   ? 1.f                                               \
                                                        : x < 0 ? -1.f                                              \
                                                                : 0.f)
KSIM_F1S
namespace precise {
KSIM_F1S
}
namespace fast {
KSIM_F1S
}
#define KSIM_F2(name, expr)                                                                                 \
  inline float name(float x, float y) { return expr; }                                                      \
  inline half name(half x_, half y_) {                                                                      \
    float x = x_, y = y_;                                                                                   \
    return (half)(expr);                                                                                    \
  }                                                                                                         \
  inline bfloat name(bfloat x_, bfloat y_) {                                                                \
    float x = x_, y = y_;                                                                                   \
    return (bfloat)(expr);                                                                                  \
  }                                                                                                         \
  template <class T, int N>                                                                                 \
  inline enable_if_t<is_floating_point_v<T>, vec<T, N>> name(vec<T, N> a, typename ident<vec<T, N>>::t b) { \
    for (int i = 0; i < N; i++) a.d[i] = name(a.d[i], b.d[i]);                                              \
    return a;                                                                                               \
  }                                                                                                         \
  template <class U, class T, int N>                                                                        \
  inline enable_if_t<is_arithmetic_v<U> && is_floating_point_v<T>, vec<T, N>> name(U a, vec<T, N> b) {      \
    for (int i = 0; i < N; i++) b.d[i] = name(T(a), b.d[i]);                                                \
    return b;                                                                                               \
  }
#define KSIM_F2S                                                                        \
  KSIM_F2(pow, __builtin_powf(x, y))                                                    \
  KSIM_F2(powr, __builtin_powf(x, y))                                                   \
  KSIM_F2(fmod, __builtin_fmodf(x, y)) KSIM_F2(atan2, __builtin_atan2f(x, y))           \
      KSIM_F2(copysign, __builtin_copysignf(x, y)) KSIM_F2(fmin, __builtin_fminf(x, y)) \
          KSIM_F2(fmax, __builtin_fmaxf(x, y)) KSIM_F2(step, y < x ? 0.f : 1.f) KSIM_F2(divide, x / y)
KSIM_F2S
namespace precise {
KSIM_F2S
}
namespace fast {
KSIM_F2S
}
inline float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline half fma(half a, half b, half c) { return (half)__builtin_fmaf(a, b, c); }
inline bfloat fma(bfloat a, bfloat b, bfloat c) { return (bfloat)__builtin_fmaf(a, b, c); }
template <class T, int N>
inline vec<T, N> fma(vec<T, N> a, typename ident<vec<T, N>>::t b, typename ident<vec<T, N>>::t c) {
  for (int i = 0; i < N; i++) a.d[i] = fma(a.d[i], b.d[i], c.d[i]);
  return a;
}
}  // namespace metal
