// Barriers, shuffles, votes and reductions.
#pragma once
#include "language.h"

inline void __syncthreads(KSIM_HERE) { ksim_block_collective(nullptr, nullptr, KSIM_ORDER_ALL, KSIM_AT); }
struct ksim_pred {
  int v, r;
};
template <int OP>
inline int ksim_syncp(int v, const char* f, int l) {
  ksim_pred a{v, 0};
  ksim_block_collective(
      [](void** p, uint32_t n) {
        int c = 0, t = 0;
        for (uint32_t i = 0; i < n; i++)
          if (p[i]) {
            t++;
            c += ((ksim_pred*)p[i])->v != 0;
          }
        int r = OP == 0 ? c : OP == 1 ? c > 0 : c == t;
        for (uint32_t i = 0; i < n; i++)
          if (p[i]) ((ksim_pred*)p[i])->r = r;
      },
      &a, KSIM_ORDER_ALL, f, l);
  return a.r;
}
inline int __syncthreads_count(int v, KSIM_HERE) { return ksim_syncp<0>(v, KSIM_AT); }
inline int __syncthreads_or(int v, KSIM_HERE) { return ksim_syncp<1>(v, KSIM_AT); }
inline int __syncthreads_and(int v, KSIM_HERE) { return ksim_syncp<2>(v, KSIM_AT); }
inline void __syncwarp(unsigned m = ~0u, KSIM_HERE) {
  ksim_warp_collective(nullptr, nullptr, m, KSIM_ORDER_ALL, KSIM_AT);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline unsigned __activemask() { return ksim_active_lanes(); }
template <class T>
struct SA {
  T v, r;
  uint s;
  int w;
};
#define KSIM_EACH               \
  for (uint i = 0; i < 32; i++) \
    if (act >> i & 1)
#define KSIM_SHFL(name, src)                                                              \
  template <class T>                                                                      \
  struct name##_f {                                                                       \
    static void go(void** q_, uint act) {                                                 \
      SA<T>** p = (SA<T>**)q_;                                                            \
      KSIM_EACH {                                                                         \
        int w = p[i]->w, s = (int)p[i]->s, lo = i & ~(w - 1), hi = lo + w - 1, q = (src); \
        if (q < lo || q > hi) q = i;                                                      \
        if (!(act >> q & 1)) {                                                            \
          __builtin_memset((void*)&p[i]->r, 0xFF, sizeof(T));                             \
        } else                                                                            \
          p[i]->r = p[q]->v;                                                              \
      }                                                                                   \
    }                                                                                     \
  };                                                                                      \
  template <class T>                                                                      \
  inline T name(unsigned m, T v, int s, int w = 32, KSIM_HERE) {                          \
    SA<T> a{v, v, (uint)s, w};                                                            \
    ksim_warp_collective(&name##_f<T>::go, &a, m, KSIM_ORDER_NONE, KSIM_AT);              \
    return a.r;                                                                           \
  }
KSIM_SHFL(__shfl_sync, lo + (s & (w - 1)))
KSIM_SHFL(__shfl_xor_sync, (int)i ^ s)
KSIM_SHFL(__shfl_down_sync, (int)i + s)
KSIM_SHFL(__shfl_up_sync, (int)i - s)
struct ksim_bal {
  static void go(void** q, uint act) {
    SA<uint>** p = (SA<uint>**)q;
    uint m = 0;
    KSIM_EACH if (p[i]->v) m |= 1u << i;
    KSIM_EACH {
      p[i]->r = m;
      p[i]->s = act;
    }
  }
};
inline unsigned __ballot_sync(unsigned m, int pr, KSIM_HERE) {
  SA<uint> a{pr != 0, 0, 0, 0};
  ksim_warp_collective(&ksim_bal::go, &a, m, KSIM_ORDER_NONE, KSIM_AT);
  return a.r;
}
inline int __any_sync(unsigned m, int pr, KSIM_HERE) { return __ballot_sync(m, pr, KSIM_AT) != 0; }
inline int __all_sync(unsigned m, int pr, KSIM_HERE) { return __ballot_sync(m, !pr, KSIM_AT) == 0; }
#define KSIM_RED(name, op)                                                   \
  template <class T>                                                         \
  struct name##_f {                                                          \
    static void go(void** q, uint act) {                                     \
      SA<T>** p = (SA<T>**)q;                                                \
      bool f = true;                                                         \
      T x{};                                                                 \
      KSIM_EACH {                                                            \
        T y = p[i]->v;                                                       \
        x = f ? y : (T)(op);                                                 \
        f = false;                                                           \
      }                                                                      \
      KSIM_EACH p[i]->r = x;                                                 \
    }                                                                        \
  };                                                                         \
  template <class T>                                                         \
  inline T name(unsigned m, T v, KSIM_HERE) {                                \
    SA<T> a{v, v, 0, 0};                                                     \
    ksim_warp_collective(&name##_f<T>::go, &a, m, KSIM_ORDER_NONE, KSIM_AT); \
    return a.r;                                                              \
  }
KSIM_RED(__reduce_add_sync, x + y)
KSIM_RED(__reduce_max_sync, x > y ? x : y)
KSIM_RED(__reduce_min_sync, x < y ? x : y)
KSIM_RED(__reduce_or_sync, x | y)
KSIM_RED(__reduce_and_sync, x& y)
struct ksim_match {
  static void go(void** q, uint act) {
    SA<uint>** p = (SA<uint>**)q;
    KSIM_EACH {
      uint m = 0;
      for (uint j = 0; j < 32; j++)
        if ((act >> j & 1) && p[j]->v == p[i]->v) m |= 1u << j;
      p[i]->r = m;
    }
  }
};
inline unsigned __match_any_sync(unsigned m, unsigned v, KSIM_HERE) {
  SA<uint> a{v, 0, 0, 0};
  ksim_warp_collective(&ksim_match::go, &a, m, KSIM_ORDER_NONE, KSIM_AT);
  return a.r;
}
