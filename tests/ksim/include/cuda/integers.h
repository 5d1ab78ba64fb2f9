// Integer and byte-vector intrinsics, cached loads and stores, traps.
#pragma once
#include "language.h"

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
  s &= 31;
  return s ? hi << s | lo >> (32 - s) : hi;
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) {
  s &= 31;
  return s ? lo >> s | hi << (32 - s) : lo;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
  return c;
}
inline int __dp2a_lo(int a, int b, int c) {
  return c + (short)a * (signed char)b + (short)(a >> 16) * (signed char)(b >> 8);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  unsigned long long v = (unsigned long long)y << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    unsigned k = s >> 4 * i & 15, b = (unsigned)(v >> 8 * (k & 7)) & 255;
    if (k & 8) b = b & 128 ? 255 : 0;
    r |= b << 8 * i;
  }
  return r;
}
#define KSIM_SIMD4(n, T, e)                       \
  inline unsigned n(unsigned A, unsigned B) {     \
    unsigned r = 0;                               \
    for (int i = 0; i < 4; i++) {                 \
      T a = (T)(A >> 8 * i), b = (T)(B >> 8 * i); \
      r |= ((unsigned)(e) & 255) << 8 * i;        \
    }                                             \
    return r;                                     \
  }
KSIM_SIMD4(__vadd4, unsigned char, a + b)
KSIM_SIMD4(__vsub4, unsigned char, a - b)
KSIM_SIMD4(__vcmpeq4, unsigned char, a == b ? 255 : 0)
KSIM_SIMD4(__vcmpne4, unsigned char, a != b ? 255 : 0)
KSIM_SIMD4(__vmaxs4, signed char, a > b ? a : b)
KSIM_SIMD4(__vmins4, signed char, a < b ? a : b)
KSIM_SIMD4(__vsubss4, signed char, a - b > 127 ? 127 : a - b < -128 ? -128 : a - b)
KSIM_SIMD4(__vcmpgts4, signed char, a > b ? 255 : 0)
template <class T>
inline T __ldg(const T* p) {
  return *p;
}
template <class T>
inline T __ldcs(const T* p) {
  return *p;
}
template <class T>
inline T __ldcg(const T* p) {
  return *p;
}
template <class T>
inline void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
inline void __stcg(T* p, T v) {
  *p = v;
}
inline void __trap() { ksim_fail("__trap()"); }
inline long long clock64() { return 0; }
inline void __nanosleep(unsigned) {}
#define assert(x)                                 \
  do {                                            \
    if (!(x)) ksim_fail("assert failed: %s", #x); \
  } while (0)
