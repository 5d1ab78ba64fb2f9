// nvcuda::wmma, 16x16x16.
#pragma once
#include "warps.h"

namespace nvcuda {
namespace wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
template <class U, int M, int N, int K, class T, class L = void>
struct fragment {
  static constexpr int num_elements = 8;
  T x[8];
  fragment() { __builtin_memset((void*)x, 0xFF, sizeof x); }
};
template <class F, class T>
inline void fill_fragment(F& f, T v) {
  for (auto& e : f.x) e = v;
}
template <class T>
struct isrow {
  static constexpr bool v = true;
};
template <>
struct isrow<col_major> {
  static constexpr bool v = false;
};
inline void rc(int e, int& r, int& c) {
  int i = (int)ksim_thread->lane * 8 + e;
  r = i / 16;
  c = i % 16;
}
template <class U, class T, class L, class S>
inline void load_matrix_sync(fragment<U, 16, 16, 16, T, L>& f, const S* p, unsigned ld, KSIM_HERE) {
  for (int e = 0; e < 8; e++) {
    int r, c;
    rc(e, r, c);
    f.x[e] = isrow<L>::v ? p[r * ld + c] : p[c * ld + r];
  }
  ksim_warp_collective(nullptr, nullptr, ~0u, KSIM_ORDER_NONE, KSIM_AT);
}
template <class T>
inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& f, const T* p, unsigned ld, layout_t lo,
                             KSIM_HERE) {
  for (int e = 0; e < 8; e++) {
    int r, c;
    rc(e, r, c);
    f.x[e] = lo == mem_row_major ? p[r * ld + c] : p[c * ld + r];
  }
  ksim_warp_collective(nullptr, nullptr, ~0u, KSIM_ORDER_NONE, KSIM_AT);
}
template <class T>
inline void store_matrix_sync(T* p, const fragment<accumulator, 16, 16, 16, T>& f, unsigned ld, layout_t lo,
                              KSIM_HERE) {
  for (int e = 0; e < 8; e++) {
    int r, c;
    rc(e, r, c);
    (lo == mem_row_major ? p[r * ld + c] : p[c * ld + r]) = f.x[e];
  }
  ksim_warp_collective(nullptr, nullptr, ~0u, KSIM_ORDER_NONE, KSIM_AT);
}
template <class TA, class TC>
struct mm {
  const TA *a, *b;
  const TC* c;
  TC d[8];
};
template <class TA, class LA, class LB, class TC>
inline void mma_sync(fragment<accumulator, 16, 16, 16, TC>& d, const fragment<matrix_a, 16, 16, 16, TA, LA>& a,
                     const fragment<matrix_b, 16, 16, 16, TA, LB>& b, const fragment<accumulator, 16, 16, 16, TC>& c,
                     KSIM_HERE) {
  typedef mm<TA, TC> M;
  M m{a.x, b.x, c.x, {}};
  ksim_warp_collective(
      [](void** q, uint32_t act) {
        M** p = (M**)q;
        if (act != ~0u) ksim_fail("wmma with inactive lanes");
        float A[16][16], B[16][16];
        for (int i = 0; i < 256; i++) {
          A[i / 16][i % 16] = (float)p[i / 8]->a[i % 8];
          B[i / 16][i % 16] = (float)p[i / 8]->b[i % 8];
        }
        for (int i = 0; i < 256; i++) {
          float s = (float)p[i / 8]->c[i % 8];
          for (int k = 0; k < 16; k++) s = __builtin_fmaf(A[i / 16][k], B[k][i % 16], s);
          p[i / 8]->d[i % 8] = (TC)s;
        }
      },
      &m, ~0u, KSIM_ORDER_NONE, KSIM_AT);
  for (int e = 0; e < 8; e++) d.x[e] = m.d[e];
}
}  // namespace wmma
}  // namespace nvcuda
