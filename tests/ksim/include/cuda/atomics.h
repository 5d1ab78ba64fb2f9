// Atomic functions; each is told to the race detector.
#pragma once
#include "warps.h"

template <class T>
struct ident {
  typedef T t;
};
// A plain access after an atomic one is one of its own: the compiler must not reuse what the atomic one saw.
#define KSIM_FORGET_VALUES() asm volatile("" ::: "memory")
#ifdef KSIM_FULL
#define KSIM_TELL_ATOMIC(p) (ksim_atomic(p, sizeof *p, 0), ksim_atomic(p, sizeof *p, 1))
#else
#define KSIM_TELL_ATOMIC(p) (void)0
#endif
// One thread runs at a time and none is interrupted here. The accesses are atomic only because the compiler does not
// tell the race detector of those.
#define KSIM_ATOM(name, combined)                \
  template <class T>                             \
  inline T name(T* p, typename ident<T>::t b) {  \
    KSIM_TELL_ATOMIC(p);                         \
    T a;                                         \
    __atomic_load(p, &a, __ATOMIC_RELAXED);      \
    T after = (T)(combined);                     \
    __atomic_store(p, &after, __ATOMIC_RELAXED); \
    KSIM_FORGET_VALUES();                        \
    return a;                                    \
  }
KSIM_ATOM(atomicAdd, a + b)
KSIM_ATOM(atomicSub, a - b)
KSIM_ATOM(atomicMin, b < a ? b : a)
KSIM_ATOM(atomicMax, a < b ? b : a)
KSIM_ATOM(atomicExch, b)
KSIM_ATOM(atomicAnd, a& b)
KSIM_ATOM(atomicOr, a | b)
KSIM_ATOM(atomicXor, a ^ b)
KSIM_ATOM(atomicInc, a >= b ? 0 : a + 1)
KSIM_ATOM(atomicDec, (a == 0 || a > b) ? b : a - 1)
template <class T>
inline T atomicCAS(T* p, typename ident<T>::t expected, typename ident<T>::t desired) {
  KSIM_TELL_ATOMIC(p);
  T found = expected;
  __atomic_compare_exchange(p, &found, &desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return found;
}
