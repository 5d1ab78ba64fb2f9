// Metal as OpenCL C++ without a generic address space, to be parsed only: clang then refuses a pointer that is given
// an address in another space. What values functions give is of no interest here, so most are mere declarations.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef signed char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
typedef __bf16 bfloat;
typedef half float16_t;
typedef bfloat bfloat16_t;

#define device __global
#define threadgroup __local
#define thread __private
#define constant __constant
// Words of OpenCL that are plain names in Metal, or types of another kind.
#define atomic_int ksim_atomic_int
#define atomic_uint ksim_atomic_uint
#define atomic_float ksim_atomic_float
#define atomic_ulong ksim_atomic_ulong
#define global ksim_global
#define local ksim_local
#define generic ksim_generic
#define read_only ksim_read_only
#define write_only ksim_write_only
#define read_write ksim_read_write
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT 3.402823466e38f
#define FLT_MAX 3.402823466e38f
#define FLT_MIN 1.17549435e-38f
#define FLT_EPSILON 1.1920929e-7f
#define HALF_MAX 65504.0f
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979323846f
#define M_LN2_F 0.693147180559945309417f
#define M_LOG2E_F 1.44269504088896340736f

namespace metal {
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
template <class T, int N>
using packed_vec = vec<T, N>;
#define KSIM_VECTORS(T)            \
  typedef vec<T, 2> T##2;          \
  typedef vec<T, 3> T##3;          \
  typedef vec<T, 4> T##4;          \
  typedef vec<T, 2> packed_##T##2; \
  typedef vec<T, 3> packed_##T##3; \
  typedef vec<T, 4> packed_##T##4;
KSIM_VECTORS(char)
KSIM_VECTORS(uchar)
KSIM_VECTORS(short)
KSIM_VECTORS(ushort)
KSIM_VECTORS(int)
KSIM_VECTORS(uint)
KSIM_VECTORS(long)
KSIM_VECTORS(ulong)
KSIM_VECTORS(half)
KSIM_VECTORS(float)
// What a comparison of vectors gives.
typedef int2 bool2;
typedef int3 bool3;
typedef int4 bool4;

template <class T, int C, int R>
struct matrix {
  vec<T, R> columns[C];
  thread vec<T, R>& operator[](int i) { return columns[i]; }
  matrix() = default;
  matrix(const thread matrix& other) thread = default;
  thread matrix& operator=(matrix other) thread;
  friend vec<T, R> operator*(const thread matrix& a, vec<T, C> b);
  friend vec<T, C> operator*(vec<T, R> a, const thread matrix& b);
};
typedef matrix<float, 2, 2> float2x2;
typedef matrix<float, 3, 3> float3x3;
typedef matrix<float, 4, 4> float4x4;
typedef matrix<half, 2, 2> half2x2;
typedef matrix<half, 4, 4> half4x4;

// A vector or matrix from anything: Metal's float4(a, b) is rewritten to this.
template <class V, class... Parts>
V ksim_make(Parts... parts);
template <class T, class S>
T as_type(S value);

// With two types the wider one, a vector's, is the result's.
template <class A, class B>
struct ksim_pair {
  typedef A type;
};
template <class T, class B, int N>
struct ksim_pair<B, T __attribute__((ext_vector_type(N)))> {
  typedef vec<T, N> type;
};
template <class T, class U, int N, int M>
struct ksim_pair<U __attribute__((ext_vector_type(M))), T __attribute__((ext_vector_type(N)))> {
  typedef vec<U, M> type;
};

#define KSIM_UNARY(name) \
  template <class T>     \
  T name(T x);
#define KSIM_BINARY(name)     \
  template <class A, class B> \
  typename ksim_pair<A, B>::type name(A a, B b);
#define KSIM_TERNARY(name)             \
  template <class A, class B, class C> \
  typename ksim_pair<A, B>::type name(A a, B b, C c);
#define KSIM_TO_BOOL(name) \
  template <class T>       \
  bool name(T x);
#define KSIM_REDUCES(name)  \
  template <class T, int N> \
  T name(vec<T, N> x);

#include "msl_lint_functions.h"
namespace precise {
#include "msl_lint_functions.h"
}
namespace fast {
#include "msl_lint_functions.h"
}
KSIM_UNARY(abs)
KSIM_UNARY(popcount)
KSIM_UNARY(clz)
KSIM_UNARY(ctz)
KSIM_UNARY(reverse_bits)
KSIM_UNARY(normalize)
KSIM_BINARY(min)
KSIM_BINARY(max)
KSIM_BINARY(mulhi)
KSIM_BINARY(mul24)
KSIM_BINARY(absdiff)
KSIM_BINARY(addsat)
KSIM_BINARY(subsat)
KSIM_BINARY(rotate)
KSIM_TERNARY(min3)
KSIM_TERNARY(max3)
KSIM_TERNARY(median3)
KSIM_TERNARY(mad24)
KSIM_TERNARY(clamp)
KSIM_TERNARY(mix)
KSIM_TERNARY(select)
KSIM_TERNARY(extract_bits)
KSIM_TO_BOOL(all)
KSIM_TO_BOOL(any)
KSIM_TO_BOOL(isnan)
KSIM_TO_BOOL(isinf)
KSIM_TO_BOOL(isfinite)
KSIM_TO_BOOL(signbit)
KSIM_REDUCES(length)
KSIM_REDUCES(length_squared)
template <class T, int N>
T dot(vec<T, N> a, vec<T, N> b);
template <class T>
T sincos(T x, thread T& cosine);
template <class T>
T modf(T x, thread T& whole);
template <class T>
T frexp(T x, thread int& exponent);
float4 unpack_unorm4x8_to_float(uint x);
template <class T>
struct numeric_limits {
  static constexpr T infinity() { return T(); }
  static constexpr T max() { return T(); }
  static constexpr T min() { return T(); }
  static constexpr T lowest() { return T(); }
  static constexpr T epsilon() { return T(); }
  static constexpr T quiet_NaN() { return T(); }
};

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
mem_flags operator|(mem_flags a, mem_flags b);
enum memory_order { memory_order_relaxed };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
void threadgroup_barrier(mem_flags flags);
void simdgroup_barrier(mem_flags flags);
void atomic_thread_fence(mem_flags flags, memory_order order, thread_scope scope = thread_scope_device);

KSIM_UNARY(simd_sum)
KSIM_UNARY(simd_product)
KSIM_UNARY(simd_max)
KSIM_UNARY(simd_min)
KSIM_UNARY(simd_and)
KSIM_UNARY(simd_or)
KSIM_UNARY(simd_xor)
KSIM_UNARY(simd_broadcast_first)
KSIM_UNARY(simd_prefix_inclusive_sum)
KSIM_UNARY(simd_prefix_exclusive_sum)
KSIM_UNARY(quad_sum)
KSIM_UNARY(quad_max)
KSIM_UNARY(quad_min)
#define KSIM_SHUFFLE(name) \
  template <class T>       \
  T name(T value, ushort lane);
KSIM_SHUFFLE(simd_shuffle)
KSIM_SHUFFLE(simd_shuffle_xor)
KSIM_SHUFFLE(simd_shuffle_up)
KSIM_SHUFFLE(simd_shuffle_down)
KSIM_SHUFFLE(simd_shuffle_rotate_up)
KSIM_SHUFFLE(simd_shuffle_rotate_down)
KSIM_SHUFFLE(simd_broadcast)
KSIM_SHUFFLE(quad_shuffle)
KSIM_SHUFFLE(quad_shuffle_xor)
KSIM_SHUFFLE(quad_shuffle_up)
KSIM_SHUFFLE(quad_shuffle_down)
KSIM_SHUFFLE(quad_broadcast)
template <class T>
T simd_shuffle_and_fill_up(T value, T fill, ushort delta, ushort width = 32);
template <class T>
T simd_shuffle_and_fill_down(T value, T fill, ushort delta, ushort width = 32);
struct simd_vote {
  typedef ulong vote_t;
  ulong lanes;
  explicit operator ulong() const { return lanes; }
  bool any() const { return lanes; }
  bool all() const { return lanes; }
};
simd_vote simd_ballot(bool vote);
simd_vote simd_active_threads_mask();
bool simd_any(bool vote);
bool simd_all(bool vote);
bool simd_is_first();

template <class T, int R, int C>
struct simdgroup_matrix {
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  simdgroup_matrix(const thread simdgroup_matrix& other) thread = default;
  thread simdgroup_matrix& operator=(simdgroup_matrix other) thread;  // a temporary is in no space
  explicit simdgroup_matrix(T diagonal) {}
  thread vec<T, 2>& thread_elements() { return elements; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int R = 8, int C = R>
simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T value);
#define KSIM_MATRIX_MEMORY(space)                                                                 \
  template <class T>                                                                              \
  void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& m, const space T* from, ulong stride = 8, \
                      ulong2 origin = 0ul, bool transpose = false);                               \
  template <class T>                                                                              \
  void simdgroup_store(const thread simdgroup_matrix<T, 8, 8>& m, space T* to, ulong stride = 8,  \
                       ulong2 origin = 0ul, bool transpose = false);
KSIM_MATRIX_MEMORY(device)
KSIM_MATRIX_MEMORY(threadgroup)
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d, thread simdgroup_matrix<A, 8, 8>& a,
                                   thread simdgroup_matrix<B, 8, 8>& b, thread simdgroup_matrix<C, 8, 8>& c);
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d, thread simdgroup_matrix<A, 8, 8>& a,
                        thread simdgroup_matrix<B, 8, 8>& b);

template <class T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<ulong> atomic_ulong;
template <class T>
struct ksim_same {
  typedef T type;
};
#define KSIM_FETCH(name, space)                                                                   \
  template <class T>                                                                              \
  T atomic_##name##_explicit(volatile space atomic<T>* object, typename ksim_same<T>::type value, \
                             memory_order order);
#define KSIM_ATOMICS(space)                                                                        \
  KSIM_FETCH(fetch_add, space)                                                                     \
  KSIM_FETCH(fetch_sub, space)                                                                     \
  KSIM_FETCH(fetch_min, space)                                                                     \
  KSIM_FETCH(fetch_max, space)                                                                     \
  KSIM_FETCH(fetch_and, space)                                                                     \
  KSIM_FETCH(fetch_or, space)                                                                      \
  KSIM_FETCH(fetch_xor, space)                                                                     \
  KSIM_FETCH(exchange, space)                                                                      \
  KSIM_FETCH(store, space)                                                                         \
  template <class T>                                                                               \
  T atomic_load_explicit(const volatile space atomic<T>* object, memory_order order);              \
  template <class T>                                                                               \
  bool atomic_compare_exchange_weak_explicit(volatile space atomic<T>* object, thread T* expected, \
                                             typename ksim_same<T>::type desired, memory_order, memory_order);
KSIM_ATOMICS(device)
KSIM_ATOMICS(threadgroup)
}  // namespace metal
using namespace metal;
