// matrix<T, C, R>: C columns of vec<T, R>.
#pragma once
#include "vectors.h"

namespace metal {
template <class T, int C, int R>
struct matrix {
  vec<T, R> c[C];
  constexpr matrix() = default;
  constexpr explicit matrix(T s) {
    for (int i = 0; i < C; i++) {
      c[i] = vec<T, R>(T(0));
      if (i < R) c[i].d[i] = s;
    }
  }
  template <class... V, class = enable_if_t<sizeof...(V) == C && (C > 1)>>
  constexpr matrix(V... v) : c{vec<T, R>(v)...} {}
  template <class U>
  explicit constexpr matrix(const matrix<U, C, R>& o) {
    for (int i = 0; i < C; i++) c[i] = vec<T, R>(o.c[i]);
  }
  constexpr vec<T, R>& operator[](size_t i) { return c[i]; }
  constexpr const vec<T, R>& operator[](size_t i) const { return c[i]; }
  friend matrix operator+(matrix a, const matrix& b) {
    for (int i = 0; i < C; i++) a.c[i] += b.c[i];
    return a;
  }
  friend matrix operator-(matrix a, const matrix& b) {
    for (int i = 0; i < C; i++) a.c[i] -= b.c[i];
    return a;
  }
  friend matrix operator*(matrix a, T s) {
    for (int i = 0; i < C; i++) a.c[i] *= vec<T, R>(s);
    return a;
  }
  friend matrix operator*(T s, matrix a) { return a * s; }
  friend vec<T, R> operator*(const matrix& a, vec<T, C> v) {
    vec<T, R> r = a.c[0] * vec<T, R>(v.d[0]);
    for (int i = 1; i < C; i++) r += a.c[i] * vec<T, R>(v.d[i]);
    return r;
  }
  friend vec<T, C> operator*(vec<T, R> v, const matrix& a) {
    vec<T, C> r;
    for (int i = 0; i < C; i++) {
      T s = 0;
      for (int j = 0; j < R; j++) s += v.d[j] * a.c[i].d[j];
      r.d[i] = s;
    }
    return r;
  }
};
template <class T, int C, int R, int K>
matrix<T, K, R> operator*(const matrix<T, C, R>& a, const matrix<T, K, C>& b) {
  matrix<T, K, R> r;
  for (int k = 0; k < K; k++) r.c[k] = a * b.c[k];
  return r;
}
template <class T, int C, int R>
matrix<T, R, C> transpose(const matrix<T, C, R>& a) {
  matrix<T, R, C> r;
  for (int i = 0; i < C; i++)
    for (int j = 0; j < R; j++) r.c[j].d[i] = a.c[i].d[j];
  return r;
}
#define KSIM_MT(T)                \
  typedef matrix<T, 2, 2> T##2x2; \
  typedef matrix<T, 2, 3> T##2x3; \
  typedef matrix<T, 2, 4> T##2x4; \
  typedef matrix<T, 3, 2> T##3x2; \
  typedef matrix<T, 3, 3> T##3x3; \
  typedef matrix<T, 3, 4> T##3x4; \
  typedef matrix<T, 4, 2> T##4x2; \
  typedef matrix<T, 4, 3> T##4x3; \
  typedef matrix<T, 4, 4> T##4x4;
KSIM_MT(float)
KSIM_MT(half)
KSIM_MT(bfloat)

}  // namespace metal
