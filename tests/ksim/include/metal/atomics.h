// Relaxed atomics. Each is told to the race detector, which knows that atomics need no barrier among themselves.
#pragma once
#include "simdgroup.h"

namespace metal {
template <class T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<ulong> atomic_ulong;

// A plain access after an atomic one is one of its own: the compiler must not reuse what the atomic one saw.
#define KSIM_FORGET_VALUES() asm volatile("" ::: "memory")
#ifdef KSIM_FULL
#define KSIM_TELL_ATOMIC(object, write) ksim_atomic(object, sizeof *object, write)
#else
#define KSIM_TELL_ATOMIC(object, write) (void)0
#endif

template <class T>
inline T atomic_load_explicit(const volatile atomic<T>* object, memory_order) {
  KSIM_TELL_ATOMIC(object, 0);
  T loaded;
  __atomic_load((T*)&object->value, &loaded, __ATOMIC_RELAXED);
  return loaded;
}
template <class T>
inline void atomic_store_explicit(volatile atomic<T>* object, typename ident<T>::t desired, memory_order) {
  KSIM_TELL_ATOMIC(object, 1);
  __atomic_store((T*)&object->value, &desired, __ATOMIC_RELAXED);
  KSIM_FORGET_VALUES();
}
template <class T>
inline T atomic_exchange_explicit(volatile atomic<T>* object, typename ident<T>::t desired, memory_order) {
  KSIM_TELL_ATOMIC(object, 0);
  KSIM_TELL_ATOMIC(object, 1);
  T before;
  __atomic_exchange((T*)&object->value, &desired, &before, __ATOMIC_RELAXED);
  KSIM_FORGET_VALUES();
  return before;
}
template <class T>
inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, T* expected,
                                                  typename ident<T>::t desired, memory_order, memory_order) {
  KSIM_TELL_ATOMIC(object, 0);
  KSIM_TELL_ATOMIC(object, 1);
  return __atomic_compare_exchange((T*)&object->value, expected, &desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
// One thread runs at a time and none is interrupted here. The accesses are atomic only because the compiler does not
// tell the race detector of those.
#define KSIM_FETCH(name, combined)                                                                            \
  template <class T>                                                                                          \
  inline T atomic_fetch_##name##_explicit(volatile atomic<T>* object, typename ident<T>::t b, memory_order) { \
    KSIM_TELL_ATOMIC(object, 0);                                                                              \
    KSIM_TELL_ATOMIC(object, 1);                                                                              \
    T a;                                                                                                      \
    __atomic_load((T*)&object->value, &a, __ATOMIC_RELAXED);                                                  \
    T after = (T)(combined);                                                                                  \
    __atomic_store((T*)&object->value, &after, __ATOMIC_RELAXED);                                             \
    KSIM_FORGET_VALUES();                                                                                     \
    return a;                                                                                                 \
  }
KSIM_FETCH(add, a + b)
KSIM_FETCH(sub, a - b)
KSIM_FETCH(min, b < a ? b : a)
KSIM_FETCH(max, a < b ? b : a)
KSIM_FETCH(and, a& b)
KSIM_FETCH(or, a | b)
KSIM_FETCH(xor, a ^ b)
}  // namespace metal
