// Inline PTX: tests/ksim/ptx.py rewrites asm statements into calls of these.
#pragma once
#include "warps.h"

namespace ksim_ptx {
struct MA {
  uint a[4], b[2];
  float c[4];
  int ci[4];
  float d[4];
  int di[4];
};
template <class H>
inline float h16(uint w, int k) {
  H h;
  unsigned short u = (unsigned short)(w >> 16 * k);
  __builtin_memcpy(&h, &u, 2);
  return (float)h;
}
template <class H>
inline void mma16816(float& d0, float& d1, float& d2, float& d3, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1,
                     float c0, float c1, float c2, float c3, KSIM_HERE) {
  MA m{{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
  ksim_warp_collective(
      [](void** q, uint32_t act) {
        MA** p = (MA**)q;
        if (act != ~0u) ksim_fail("mma.sync with inactive lanes");
        float A[16][16], B[16][8];
        for (int l = 0; l < 32; l++) {
          int g = l / 4, t = l % 4;
          for (int k = 0; k < 2; k++) {
            for (int r = 0; r < 4; r++) A[g + 8 * (r & 1)][t * 2 + k + 8 * (r >> 1)] = h16<H>(p[l]->a[r], k);
            for (int r = 0; r < 2; r++) B[t * 2 + k + 8 * r][g] = h16<H>(p[l]->b[r], k);
          }
        }
        for (int l = 0; l < 32; l++) {
          int g = l / 4, t = l % 4;
          for (int e = 0; e < 4; e++) {
            int r = g + 8 * (e >> 1), c = t * 2 + (e & 1);
            float s = p[l]->c[e];
            for (int k = 0; k < 16; k++) s = __builtin_fmaf(A[r][k], B[k][c], s);
            p[l]->d[e] = s;
          }
        }
      },
      &m, ~0u, KSIM_ORDER_NONE, KSIM_AT);
  d0 = m.d[0];
  d1 = m.d[1];
  d2 = m.d[2];
  d3 = m.d[3];
}
inline void mma_m16n8k16_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3, uint a0, uint a1, uint a2,
                                         uint a3, uint b0, uint b1, float c0, float c1, float c2, float c3,
                                         KSIM_HERE) {
  mma16816<_Float16>(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3, KSIM_AT);
}
inline void mma_m16n8k16_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3, uint a0, uint a1, uint a2,
                                           uint a3, uint b0, uint b1, float c0, float c1, float c2, float c3,
                                           KSIM_HERE) {
  mma16816<__bf16>(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3, KSIM_AT);
}
// Rows of K signed bytes: `a` holds K / 8 words of a lane, `b` half as many.
template <int K>
inline void mma168s8(MA& m, const char* f, int l) {
  ksim_warp_collective(
      [](void** q, uint32_t act) {
        MA** p = (MA**)q;
        if (act != ~0u) ksim_fail("mma.sync with inactive lanes");
        signed char A[16][K], B[K][8];
        for (int l = 0; l < 32; l++) {
          int g = l / 4, t = l % 4;
          for (int k = 0; k < 4; k++) {
            for (int r = 0; r < K / 8; r++)
              A[g + 8 * (r & 1)][t * 4 + k + 16 * (r >> 1)] = (signed char)(p[l]->a[r] >> 8 * k);
            for (int r = 0; r < K / 16; r++) B[t * 4 + k + 16 * r][g] = (signed char)(p[l]->b[r] >> 8 * k);
          }
        }
        for (int l = 0; l < 32; l++) {
          int g = l / 4, t = l % 4;
          for (int e = 0; e < 4; e++) {
            int r = g + 8 * (e >> 1), c = t * 2 + (e & 1), s = p[l]->ci[e];
            for (int k = 0; k < K; k++) s += A[r][k] * B[k][c];
            p[l]->di[e] = s;
          }
        }
      },
      &m, ~0u, KSIM_ORDER_NONE, f, l);
}
inline void mma_m16n8k32_s32_s8_s8_s32(int& d0, int& d1, int& d2, int& d3, uint a0, uint a1, uint a2, uint a3,
                                       uint b0, uint b1, int c0, int c1, int c2, int c3, KSIM_HERE) {
  MA m{{a0, a1, a2, a3}, {b0, b1}, {}, {c0, c1, c2, c3}};
  mma168s8<32>(m, KSIM_AT);
  d0 = m.di[0];
  d1 = m.di[1];
  d2 = m.di[2];
  d3 = m.di[3];
}
inline void mma_m16n8k16_s32_s8_s8_s32(int& d0, int& d1, int& d2, int& d3, uint a0, uint a1, uint b0, int c0, int c1,
                                       int c2, int c3, KSIM_HERE) {
  MA m{{a0, a1}, {b0}, {}, {c0, c1, c2, c3}};
  mma168s8<16>(m, KSIM_AT);
  d0 = m.di[0];
  d1 = m.di[1];
  d2 = m.di[2];
  d3 = m.di[3];
}
struct LM {
  const char* addr;
  uint r[4];
};
template <int N, bool T>
inline void ldmatrix(LM& m, const char* f, int l) {
  ksim_warp_collective(
      [](void** q, uint32_t act) {
        LM** p = (LM**)q;
        for (int x = 0; x < N; x++)
          for (int i = 0; i < 32; i++)
            if (act >> i & 1) {
              unsigned short h[2];
              for (int k = 0; k < 2; k++) {
                int row = T ? (i % 4) * 2 + k : i / 4, col = T ? i / 4 : (i % 4) * 2 + k;
                const char* s = p[x * 8 + row]->addr + 2 * col;
                ksim_access(s, 2, 0);
                __builtin_memcpy(&h[k], s, 2);
              }
              p[i]->r[x] = h[0] | (uint)h[1] << 16;
            }
      },
      &m, ~0u, KSIM_ORDER_NONE, f, l);
}
#define KSIM_LDM(sfx, T)                                                                       \
  inline void ldmatrix_x1##sfx(uint& a, const void* p, KSIM_HERE) {                            \
    LM m{(const char*)p};                                                                      \
    ldmatrix<1, T>(m, KSIM_AT);                                                                \
    a = m.r[0];                                                                                \
  }                                                                                            \
  inline void ldmatrix_x2##sfx(uint& a, uint& b, const void* p, KSIM_HERE) {                   \
    LM m{(const char*)p};                                                                      \
    ldmatrix<2, T>(m, KSIM_AT);                                                                \
    a = m.r[0];                                                                                \
    b = m.r[1];                                                                                \
  }                                                                                            \
  inline void ldmatrix_x4##sfx(uint& a, uint& b, uint& c, uint& d, const void* p, KSIM_HERE) { \
    LM m{(const char*)p};                                                                      \
    ldmatrix<4, T>(m, KSIM_AT);                                                                \
    a = m.r[0];                                                                                \
    b = m.r[1];                                                                                \
    c = m.r[2];                                                                                \
    d = m.r[3];                                                                                \
  }
KSIM_LDM(, false)
KSIM_LDM(_trans, true)
inline void cp_async(void* d, const void* s, int n) {
  ksim_access(s, n, 0);
  ksim_access(d, n, 1);
  __builtin_memcpy(d, s, n);
}
// a shared address is an offset into the executor's arena, so it fits 32 bits as on the device
inline void* sh(unsigned long long a) { return ksim_shared_window() + a; }
inline void nop() {}
inline void cvt_f32_f16(float& to, unsigned short bits) { to = ksim_raw<__half>(ksim_bits<_Float16>(bits)); }
inline void cvt_rn_f16_f32(unsigned short& bits, float from) { bits = ksim_bits<unsigned short>((_Float16)from); }
}  // namespace ksim_ptx
inline size_t __cvta_generic_to_shared(const void* p) { return (size_t)((const char*)p - ksim_shared_window()); }
