// Unpacks an array of argument addresses into a CUDA kernel's parameters.
#pragma once
#include "ksim.h"

namespace ksim {
enum ArgumentKind { VALUE = 0, POINTER_TO_CONST = 1, POINTER = 2 };

template <class T>
struct remove_reference {
  typedef T type;
};
template <class T>
struct remove_reference<T&> {
  typedef T type;
};
template <class T>
struct is_float {
  static constexpr int value = 0;
};
template <>
struct is_float<float> {
  static constexpr int value = 1;
};
template <>
struct is_float<double> {
  static constexpr int value = 1;
};

template <class P>
struct argument {
  static P get(void* address) { return *(P*)address; }
  static constexpr int kind = VALUE, size = sizeof(P);
};
template <class P>
struct argument<P*> {
  static P* get(void* address) { return (P*)address; }
  static constexpr int kind = POINTER, size = sizeof(P);
};
template <class P>
struct argument<const P*> {
  static const P* get(void* address) { return (const P*)address; }
  static constexpr int kind = POINTER_TO_CONST, size = sizeof(P);
};
template <>
struct argument<void*> {
  static void* get(void* address) { return address; }
  static constexpr int kind = POINTER, size = 1;
};
template <>
struct argument<const void*> {
  static const void* get(void* address) { return address; }
  static constexpr int kind = POINTER_TO_CONST, size = 1;
};

template <int... I>
struct sequence {};
template <int N, int... I>
struct make_sequence : make_sequence<N - 1, N - 1, I...> {};
template <int... I>
struct make_sequence<0, I...> {
  typedef sequence<I...> type;
};

template <class... P, int... I>
inline void invoke_with(void (*kernel)(P...), void** addresses, sequence<I...>) {
  kernel(argument<P>::get(addresses[I])...);
}
template <class... P>
inline void invoke(void (*kernel)(P...), void** addresses) {
  invoke_with(kernel, addresses, typename make_sequence<sizeof...(P)>::type());
}

// Writes kind, is_float, size of every parameter, then -1.
template <class... P>
inline void describe(void (*)(P...), int* out) {
  int fields[] = {argument<P>::kind..., -1}, floats[] = {is_float<typename remove_reference<P>::type>::value..., -1};
  int sizes[] = {argument<P>::size..., -1};
  for (unsigned i = 0; i < sizeof...(P); i++) {
    out[3 * i] = fields[i];
    out[3 * i + 1] = floats[i];
    out[3 * i + 2] = sizes[i];
  }
  out[3 * sizeof...(P)] = -1;
}
}  // namespace ksim
