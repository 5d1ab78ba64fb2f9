// Atomic functions; each is told to the race detector.
#pragma once
#include "warps.h"

template <class T>
struct ident {
  typedef T t;
};
#ifdef KSIM_FULL
#define KSIM_TELL_ATOMIC(p) (ksim_atomic(p, sizeof *p, 0), ksim_atomic(p, sizeof *p, 1))
#else
#define KSIM_TELL_ATOMIC(p) (void)0
#endif
// One thread runs at a time and none is interrupted here, so plain code is atomic.
#define KSIM_ATOM(name, expr)                   \
  template <class T>                            \
  inline T name(T* p, typename ident<T>::t b) { \
    KSIM_TELL_ATOMIC(p);                        \
    T a = *(volatile T*)p;                      \
    *(volatile T*)p = (T)(expr);                \
    return a;                                   \
  }
KSIM_ATOM(atomicAdd, a + b)
KSIM_ATOM(atomicSub, a - b)
KSIM_ATOM(atomicMin, b < a ? b : a) KSIM_ATOM(atomicMax, a < b ? b : a) KSIM_ATOM(atomicExch, b)
    KSIM_ATOM(atomicAnd, a& b) KSIM_ATOM(atomicOr, a | b) KSIM_ATOM(atomicXor, a ^ b)
        KSIM_ATOM(atomicInc, a >= b ? 0 : a + 1)
            KSIM_ATOM(atomicDec, (a == 0 || a > b) ? b : a - 1) template <class T>
            inline T atomicCAS(T* p, typename ident<T>::t expected, typename ident<T>::t desired) {
  KSIM_TELL_ATOMIC(p);
  T a = *(volatile T*)p;
  if (a == expected) *(volatile T*)p = desired;
  return a;
}
