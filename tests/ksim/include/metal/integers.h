// Metal's integer functions and as_type.
#pragma once
#include "vectors.h"

namespace metal {
#define KSIM_BITS(T, U)                                                                                            \
  inline T popcount(T x) { return (T)__builtin_popcountll((U)x); }                                                 \
  inline T clz(T x) { return (U)x ? (T)(__builtin_clzll((U)x) - (64 - 8 * (int)sizeof(T))) : (T)(8 * sizeof(T)); } \
  inline T ctz(T x) { return (U)x ? (T)__builtin_ctzll((U)x) : (T)(8 * sizeof(T)); }                               \
  inline T rotate(T x, T n) {                                                                                      \
    n &= 8 * sizeof(T) - 1;                                                                                        \
    return n ? (T)((U)x << n | (U)x >> (8 * sizeof(T) - n)) : x;                                                   \
  }                                                                                                                \
  inline T reverse_bits(T x) {                                                                                     \
    U r = 0, u = (U)x;                                                                                             \
    for (unsigned i = 0; i < 8 * sizeof(T); i++) {                                                                 \
      r = (U)(r << 1 | (u & 1));                                                                                   \
      u >>= 1;                                                                                                     \
    }                                                                                                              \
    return (T)r;                                                                                                   \
  }                                                                                                                \
  inline T extract_bits(T x, uint o, uint b) {                                                                     \
    if (!b) return 0;                                                                                              \
    unsigned s = 8 * sizeof(T) - o - b;                                                                            \
    return (T)((T)((U)x << s) >> (s + o));                                                                         \
  }                                                                                                                \
  inline T insert_bits(T x, T y, uint o, uint b) {                                                                 \
    U m = (U)((b >= 8 * sizeof(T) ? ~0ull : (1ull << b) - 1) << o);                                                \
    return (T)(((U)x & ~m) | (((U)y << o) & m));                                                                   \
  }
KSIM_BITS(uchar, uchar)
KSIM_BITS(char, uchar)
KSIM_BITS(ushort, ushort)
KSIM_BITS(short, ushort)
KSIM_BITS(uint, uint)
KSIM_BITS(int, uint)
KSIM_BITS(ulong, ulong)
KSIM_BITS(long, ulong)
inline uint mulhi(uint a, uint b) { return (uint)((ulong)a * b >> 32); }
inline float4 unpack_unorm4x8_to_float(uint x) {
  return float4((x & 255) / 255.f, (x >> 8 & 255) / 255.f, (x >> 16 & 255) / 255.f, (x >> 24) / 255.f);
}

template <class D, class S>
struct asimpl {
  static D go(const S& s) {
    static_assert(sizeof(D) == sizeof(S), "as_type size mismatch");
    D d;
    __builtin_memcpy(&d, &s, sizeof(D));
    return d;
  }
};

}  // namespace metal
#define as_type ksim_as_type
template <class D, class S>
inline D ksim_as_type(const S& s) {
  return metal::asimpl<D, S>::go(s);
}
