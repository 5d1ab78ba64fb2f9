// 8x8 matrices spread over a simdgroup, two elements of one row to a lane.
//
// The lane layout is the one observed on Apple hardware; it is not documented.
#pragma once
#include "simdgroup.h"

namespace metal {
inline int matrix_row(int l) {
  int q = l / 4;
  return (q & 4) + ((l / 2) % 4);
}
inline int matrix_column(int l) {
  int q = l / 4;
  return (q & 2) * 2 + (l % 2) * 2;
}
template <class T, int R, int C>
struct simdgroup_matrix {
  static_assert(R == 8 && C == 8, "8x8 only");
  vec<T, 2> e;
  simdgroup_matrix() { __builtin_memset((void*)&e, 0xFF, sizeof e); }
  explicit simdgroup_matrix(T diag) {
    int l = ksim_thread->lane, r = matrix_row(l), c = matrix_column(l);
    e = vec<T, 2>(r == c ? diag : T(0), r == c + 1 ? diag : T(0));
  }
  vec<T, 2>& thread_elements() { return e; }
  const vec<T, 2>& thread_elements() const { return e; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int R = 8, int C = R>
inline simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) {
  simdgroup_matrix<T, R, C> m;
  m.e = vec<T, 2>(v);
  return m;
}
template <class T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* p, ulong ld = 8, ulong2 org = ulong2(0ul, 0ul),
                           bool tr = false, KSIM_HERE) {
  int l = ksim_thread->lane, r = matrix_row(l), c = matrix_column(l);
  p += org.y * ld + org.x;
  if (tr)
    m.e = vec<T, 2>(p[c * ld + r], p[(c + 1) * ld + r]);
  else
    m.e = vec<T, 2>(p[r * ld + c], p[r * ld + c + 1]);
  ksim_warp_collective(nullptr, nullptr, 0, KSIM_ORDER_NONE, KSIM_AT);  // all lanes must take part
}
template <class T>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* p, ulong ld = 8, ulong2 org = ulong2(0ul, 0ul),
                            bool tr = false, KSIM_HERE) {
  int l = ksim_thread->lane, r = matrix_row(l), c = matrix_column(l);
  p += org.y * ld + org.x;
  if (tr) {
    p[c * ld + r] = m.e.d[0];
    p[(c + 1) * ld + r] = m.e.d[1];
  } else {
    p[r * ld + c] = m.e.d[0];
    p[r * ld + c + 1] = m.e.d[1];
  }
  ksim_warp_collective(nullptr, nullptr, 0, KSIM_ORDER_NONE, KSIM_AT);
}
template <class D, class A, class B, class C>
struct MMA {
  const vec<A, 2>* a;
  const vec<B, 2>* b;
  const vec<C, 2>* c;
  vec<D, 2> d;
};
template <class D, class A, class B, class C>
struct mma_f {
  static void go(void** p_, uint32_t act) {
    typedef MMA<D, A, B, C> M;
    M** p = (M**)p_;
    if (act != ~0u) ksim_fail("simdgroup_multiply_accumulate with inactive lanes (mask 0x%08x)", act);
    float a[8][8], b[8][8];
    for (int l = 0; l < 32; l++) {
      int r = matrix_row(l), c = matrix_column(l);
      for (int k = 0; k < 2; k++) {
        a[r][c + k] = (float)p[l]->a->d[k];
        b[r][c + k] = (float)p[l]->b->d[k];
      }
    }
    for (int l = 0; l < 32; l++) {
      int r = matrix_row(l), c = matrix_column(l);
      for (int k = 0; k < 2; k++) {
        float s = p[l]->c ? (float)p[l]->c->d[k] : 0.f;
        for (int j = 0; j < 8; j++) s = __builtin_fmaf(a[r][j], b[j][c + k], s);
        p[l]->d.d[k] = (D)s;
      }
    }
  }
};
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c,
                                          KSIM_HERE) {
  MMA<D, A, B, C> m{&a.e, &b.e, &c.e, {}};
  ksim_warp_collective(&mma_f<D, A, B, C>::go, &m, 0, KSIM_ORDER_NONE, KSIM_AT);
  d.e = m.d;
}
template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                               const simdgroup_matrix<B, 8, 8>& b, KSIM_HERE) {
  MMA<D, A, B, D> m{&a.e, &b.e, nullptr, {}};
  ksim_warp_collective(&mma_f<D, A, B, D>::go, &m, 0, KSIM_ORDER_NONE, KSIM_AT);
  d.e = m.d;
}

}  // namespace metal
