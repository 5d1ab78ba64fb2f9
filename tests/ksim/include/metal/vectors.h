// vec<T, N> and packed_vec<T, N> with every swizzle, as properties.
#pragma once
#include "types.h"

namespace metal {
template <class T, int N>
struct vec;
template <class T, int N>
struct packed_vec;
template <class T, int N>
struct vstore;
template <class T>
struct vstore<T, 2> {
  union {
    T d[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
  };
};
template <class T>
struct vstore<T, 3> {
  union {
    T d[4];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
  };
};
template <class T>
struct vstore<T, 4> {
  union {
    T d[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
  };
};
#define KSIM_S2(n, A, B)                                                          \
  constexpr vec<T, 2> g_##n() const { return vec<T, 2>(this->d[A], this->d[B]); } \
  void p_##n(vec<T, 2> v) {                                                       \
    this->d[A] = v.d[0];                                                          \
    this->d[B] = v.d[1];                                                          \
  }                                                                               \
  __declspec(property(get = g_##n, put = p_##n)) vec<T, 2> n;
#define KSIM_S3(n, A, B, C)                                                                   \
  constexpr vec<T, 3> g_##n() const { return vec<T, 3>(this->d[A], this->d[B], this->d[C]); } \
  void p_##n(vec<T, 3> v) {                                                                   \
    this->d[A] = v.d[0];                                                                      \
    this->d[B] = v.d[1];                                                                      \
    this->d[C] = v.d[2];                                                                      \
  }                                                                                           \
  __declspec(property(get = g_##n, put = p_##n)) vec<T, 3> n;
#define KSIM_S4(n, A, B, C, D)                                                                            \
  constexpr vec<T, 4> g_##n() const { return vec<T, 4>(this->d[A], this->d[B], this->d[C], this->d[D]); } \
  void p_##n(vec<T, 4> v) {                                                                               \
    this->d[A] = v.d[0];                                                                                  \
    this->d[B] = v.d[1];                                                                                  \
    this->d[C] = v.d[2];                                                                                  \
    this->d[D] = v.d[3];                                                                                  \
  }                                                                                                       \
  __declspec(property(get = g_##n, put = p_##n)) vec<T, 4> n;
#define KSIM_VOP(op)                                                  \
  friend constexpr vec operator op(vec a, vec b) {                    \
    vec r;                                                            \
    for (int i = 0; i < K; i++) r.d[i] = T(a.d[i] op b.d[i]);         \
    return r;                                                         \
  }                                                                   \
  vec& operator op##=(vec b) {                                        \
    for (int i = 0; i < K; i++) this->d[i] = T(this->d[i] op b.d[i]); \
    return *this;                                                     \
  }
#define KSIM_VCMP(op)                                       \
  friend constexpr vec<bool, K> operator op(vec a, vec b) { \
    vec<bool, K> r;                                         \
    for (int i = 0; i < K; i++) r.d[i] = a.d[i] op b.d[i];  \
    return r;                                               \
  }
#define KSIM_VBODY                                                     \
  typedef T elem;                                                      \
  constexpr vec() = default;                                           \
  constexpr vec(T s) {                                                 \
    for (int i = 0; i < K; i++) this->d[i] = s;                        \
  }                                                                    \
  template <class U>                                                   \
  explicit constexpr vec(const vec<U, K>& o) {                         \
    for (int i = 0; i < K; i++) this->d[i] = T(o.d[i]);                \
  }                                                                    \
  constexpr vec(const packed_vec<T, K>& o) {                           \
    for (int i = 0; i < K; i++) this->d[i] = o.d[i];                   \
  }                                                                    \
  constexpr T& operator[](size_t i) { return this->d[i]; }             \
  constexpr const T& operator[](size_t i) const { return this->d[i]; } \
  KSIM_VOP(+)                                                          \
  KSIM_VOP(-)                                                          \
  KSIM_VOP(*)                                                          \
  KSIM_VOP(/)                                                          \
  KSIM_VOP(%)                                                          \
  KSIM_VOP(&)                                                          \
  KSIM_VOP(|)                                                          \
  KSIM_VOP(^)                                                          \
  KSIM_VOP(<<)                                                         \
  KSIM_VOP(>>)                                                         \
  KSIM_VCMP(==)                                                        \
  KSIM_VCMP(!=)                                                        \
  KSIM_VCMP(<)                                                         \
  KSIM_VCMP(>)                                                         \
  KSIM_VCMP(<=)                                                        \
  KSIM_VCMP(>=)                                                        \
  KSIM_VCMP(&&)                                                        \
  KSIM_VCMP(||)                                                        \
  friend constexpr vec operator-(vec a) {                              \
    for (int i = 0; i < K; i++) a.d[i] = T(-a.d[i]);                   \
    return a;                                                          \
  }                                                                    \
  friend constexpr vec operator~(vec a) {                              \
    for (int i = 0; i < K; i++) a.d[i] = T(~a.d[i]);                   \
    return a;                                                          \
  }                                                                    \
  friend constexpr vec<bool, K> operator!(vec a) {                     \
    vec<bool, K> r;                                                    \
    for (int i = 0; i < K; i++) r.d[i] = !a.d[i];                      \
    return r;                                                          \
  }
template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> : vstore<T, 2> {
  static constexpr int K = 2;
  KSIM_VBODY
  constexpr vec(T a, T b) {
    this->d[0] = a;
    this->d[1] = b;
  }
#define KSIM_N 2
#include "ksim_swizzles.h"
#undef KSIM_N
};
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> : vstore<T, 3> {
  static constexpr int K = 3;
  KSIM_VBODY
  constexpr vec(T a, T b, T c) {
    this->d[0] = a;
    this->d[1] = b;
    this->d[2] = c;
  }
  constexpr vec(vec<T, 2> a, T c) {
    this->d[0] = a.d[0];
    this->d[1] = a.d[1];
    this->d[2] = c;
  }
  constexpr vec(T a, vec<T, 2> c) {
    this->d[0] = a;
    this->d[1] = c.d[0];
    this->d[2] = c.d[1];
  }
#define KSIM_N 3
#include "ksim_swizzles.h"
#undef KSIM_N
};
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> : vstore<T, 4> {
  static constexpr int K = 4;
  KSIM_VBODY
  constexpr vec(T a, T b, T c, T e) {
    this->d[0] = a;
    this->d[1] = b;
    this->d[2] = c;
    this->d[3] = e;
  }
  constexpr vec(vec<T, 2> a, vec<T, 2> b) : vec(a.d[0], a.d[1], b.d[0], b.d[1]) {}
  constexpr vec(vec<T, 2> a, T b, T c) : vec(a.d[0], a.d[1], b, c) {}
  constexpr vec(T a, T b, vec<T, 2> c) : vec(a, b, c.d[0], c.d[1]) {}
  constexpr vec(T a, vec<T, 2> b, T c) : vec(a, b.d[0], b.d[1], c) {}
  constexpr vec(vec<T, 3> a, T b) : vec(a.d[0], a.d[1], a.d[2], b) {}
  constexpr vec(T a, vec<T, 3> b) : vec(a, b.d[0], b.d[1], b.d[2]) {}
#define KSIM_N 4
#include "ksim_swizzles.h"
#undef KSIM_N
};
template <class T, int N>
struct packed_vec {
  T d[N];
  packed_vec() = default;
  packed_vec(const vec<T, N>& v) {
    for (int i = 0; i < N; i++) d[i] = v.d[i];
  }
  packed_vec(T s) {
    for (int i = 0; i < N; i++) d[i] = s;
  }
  T& operator[](size_t i) { return d[i]; }
  const T& operator[](size_t i) const { return d[i]; }
};
#define KSIM_VT(T, n)                     \
  typedef vec<T, 2> n##2;                 \
  typedef vec<T, 3> n##3;                 \
  typedef vec<T, 4> n##4;                 \
  typedef packed_vec<T, 2> packed_##n##2; \
  typedef packed_vec<T, 3> packed_##n##3; \
  typedef packed_vec<T, 4> packed_##n##4;
KSIM_VT(float, float)
KSIM_VT(half, half)
KSIM_VT(bfloat, bfloat)
KSIM_VT(char, char)
KSIM_VT(uchar, uchar)
KSIM_VT(short, short)
KSIM_VT(ushort, ushort)
KSIM_VT(int, int)
KSIM_VT(uint, uint)
KSIM_VT(long, long)
KSIM_VT(ulong, ulong)
typedef vec<bool, 2> bool2;
typedef vec<bool, 3> bool3;
typedef vec<bool, 4> bool4;
}  // namespace metal
