// Metal's scalar types, type traits and numeric limits in plain C++.
#pragma once
#include "../ksim.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;
#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_CONST const
#define KSIM_HERE const char *f_ = __builtin_FILE(), int l_ = __builtin_LINE()
#define KSIM_AT f_, l_
constexpr half operator""h(long double v) { return (half)v; }
constexpr bfloat operator"" bf(long double v) { return (bfloat)(float)v; }

namespace metal {
template <class T>
struct ident {
  typedef T t;
};
template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;
template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  constexpr operator T() const { return V; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <bool B>
using bool_constant = integral_constant<bool, B>;
template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class A, class B>
constexpr bool is_same_v = is_same<A, B>::value;
template <bool B, class X, class Y>
struct conditional {
  typedef X type;
};
template <class X, class Y>
struct conditional<false, X, Y> {
  typedef Y type;
};
template <bool B, class X, class Y>
using conditional_t = typename conditional<B, X, Y>::type;
template <class T>
struct remove_reference {
  typedef T type;
};
template <class T>
struct remove_reference<T&> {
  typedef T type;
};
template <class T>
struct remove_cv {
  typedef T type;
};
template <class T>
struct remove_cv<const T> {
  typedef T type;
};
template <class T>
struct remove_cv<volatile T> {
  typedef T type;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
struct is_floating_point : false_type {};
template <>
struct is_floating_point<float> : true_type {};
template <>
struct is_floating_point<half> : true_type {};
template <>
struct is_floating_point<bfloat> : true_type {};
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
struct is_integral : bool_constant<__is_integral(T)> {};
template <class T>
constexpr bool is_integral_v = __is_integral(T);
template <class T>
constexpr bool is_signed_v = is_floating_point_v<T> || __is_signed(T);
template <class T>
constexpr bool is_unsigned_v = __is_unsigned(T);
template <class A, class B>
constexpr bool is_convertible_v = __is_convertible(A, B);
template <class A, class B>
struct is_convertible : bool_constant<__is_convertible(A, B)> {};
template <class T>
constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;

template <class T>
struct numeric_limits;
#define KSIM_NL(T, MN, MX, LO, INF, EPS)                               \
  template <>                                                          \
  struct numeric_limits<T> {                                           \
    static constexpr T min() { return (T)(MN); }                       \
    static constexpr T max() { return (T)(MX); }                       \
    static constexpr T lowest() { return (T)(LO); }                    \
    static constexpr T infinity() { return (T)(INF); }                 \
    static constexpr T epsilon() { return (T)(EPS); }                  \
    static constexpr T quiet_NaN() { return (T)(__builtin_nanf("")); } \
  };
KSIM_NL(float, 1.17549435e-38f, 3.402823466e38f, -3.402823466e38f, __builtin_inff(), 1.1920929e-7f)
KSIM_NL(half, 6.103515625e-5f, 65504.f, -65504.f, __builtin_inff(), 9.765625e-4f)
KSIM_NL(bfloat, 1.17549435e-38f, 3.3895314e38f, -3.3895314e38f, __builtin_inff(), 7.8125e-3f)
#undef KSIM_NL
#define KSIM_NL(T, MN, MX)                     \
  template <>                                  \
  struct numeric_limits<T> {                   \
    static constexpr T min() { return MN; }    \
    static constexpr T max() { return MX; }    \
    static constexpr T lowest() { return MN; } \
  };
KSIM_NL(signed char, -128, 127)
KSIM_NL(char, -128, 127)
KSIM_NL(uchar, 0, 255)
KSIM_NL(short, -32768, 32767)
KSIM_NL(ushort, 0, 65535)
KSIM_NL(int, -2147483647 - 1, 2147483647)
KSIM_NL(uint, 0, 4294967295u)
KSIM_NL(long, -9223372036854775807l - 1, 9223372036854775807l)
KSIM_NL(ulong, 0, 18446744073709551615ul)
#undef KSIM_NL

}  // namespace metal
