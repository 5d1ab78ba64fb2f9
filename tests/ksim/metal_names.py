"""The names that a kernel may use without declaring them: Metal Shading Language 3.1, compute only.

Source: Metal Shading Language Specification 3.1, sections 2 (types), 4 (address spaces), 5 (attributes) and 6
(standard library).
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SCALARS = (
    "bool",
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "half",
    "float",
    "bfloat",
)
SCALAR_BYTES = {
    **dict.fromkeys(_words("bool char uchar int8_t uint8_t"), 1),
    **dict.fromkeys(_words("short ushort int16_t uint16_t half float16_t bfloat bfloat16_t"), 2),
    **dict.fromkeys(
        _words("int uint int32_t uint32_t float atomic_int atomic_uint atomic_float atomic_bool"), 4
    ),
    **dict.fromkeys(_words("long ulong int64_t uint64_t size_t ptrdiff_t atomic_ulong"), 8),
}
VECTORS = {f"{name}{n}": (name, n) for name in _SCALARS for n in (2, 3, 4)}
PACKED_VECTORS = {
    f"packed_{vector}": parts for vector, parts in VECTORS.items() if not vector.startswith("bool")
}
MATRICES = {
    f"{name}{c}x{r}": (name, c, r) for name in ("half", "float") for c in (2, 3, 4) for r in (2, 3, 4)
}
TYPES = frozenset({*SCALAR_BYTES, *VECTORS, *PACKED_VECTORS, *MATRICES}) | _words(
    """
    array atomic auto intptr_t matrix mem_flags memory_order numeric_limits packed_vec signed simd_vote
    simdgroup_bfloat8x8 simdgroup_float8x8 simdgroup_half8x8 simdgroup_matrix thread_scope uintptr_t
    unsigned vec void
    """
)
ADDRESS_SPACES = _words(
    """
    constant device thread threadgroup
    """
)
KEYWORDS = _words(
    """
    alignas alignof break case class const const_cast constexpr continue decltype default do else enum
    explicit extern false for if inline kernel namespace nullptr operator private public
    reinterpret_cast restrict return sizeof static static_assert static_cast struct switch template this
    true typedef typename union using volatile while
    """
)
# C++ that Metal lacks, types that no GPU has, and Metal's keywords for what is no compute kernel: no variable
# may be called like one of these.
FORBIDDEN = _words(
    """
    asm catch char16_t char32_t co_await co_return co_yield coherent concept delete double dynamic_cast
    export fragment goto mutable new noexcept object_data ray_data register requires thread_local
    threadgroup_imageblock throw try typeid vertex virtual wchar_t
    """
)
ATTRIBUTES = _words(
    """
    buffer dispatch_quadgroups_per_threadgroup dispatch_simdgroups_per_threadgroup
    dispatch_threads_per_threadgroup function_constant grid_origin grid_size host_name kernel
    max_total_threads_per_threadgroup quadgroup_index_in_threadgroup quadgroups_per_threadgroup
    simdgroup_index_in_threadgroup simdgroups_per_threadgroup thread_execution_width
    thread_index_in_quadgroup thread_index_in_simdgroup thread_index_in_threadgroup
    thread_position_in_grid thread_position_in_threadgroup threadgroup threadgroup_position_in_grid
    threadgroups_per_grid threads_per_grid threads_per_simdgroup threads_per_threadgroup
    """
)
FUNCTIONS = _words(
    """
    abs absdiff acos acosh addsat all any as_type asin asinh atan atan2 atanh
    atomic_compare_exchange_weak_explicit atomic_exchange_explicit atomic_fetch_add_explicit
    atomic_fetch_and_explicit atomic_fetch_max_explicit atomic_fetch_min_explicit
    atomic_fetch_or_explicit atomic_fetch_sub_explicit atomic_fetch_xor_explicit atomic_load_explicit
    atomic_store_explicit atomic_thread_fence ceil clamp clz copysign cos cosh cospi cross ctz
    determinant distance distance_squared divide dot exp exp10 exp2 extract_bits fabs faceforward fdim
    floor fma fmax fmax3 fmedian3 fmin fmin3 fmod fract frexp hadd ilogb insert_bits isfinite isinf
    isnan isnormal isordered isunordered ldexp length length_squared log log10 log2 mad24 madhi madsat
    make_filled_simdgroup_matrix max max3 median3 min min3 mix modf mul24 mulhi nextafter normalize not
    pack_float_to_snorm4x8 pack_float_to_unorm4x8 pack_half_to_snorm4x8 pack_half_to_unorm4x8 popcount
    pow powr quad_all quad_and quad_any quad_ballot quad_broadcast quad_broadcast_first quad_is_first
    quad_max quad_min quad_or quad_product quad_shuffle quad_shuffle_down quad_shuffle_up
    quad_shuffle_xor quad_sum quad_xor reflect refract reverse_bits rhadd rint rotate round rsqrt
    saturate select sign signbit simd_active_threads_mask simd_all simd_and simd_any simd_ballot
    simd_broadcast simd_broadcast_first simd_is_first simd_is_helper_thread simd_max simd_min simd_or
    simd_prefix_exclusive_product simd_prefix_exclusive_sum simd_prefix_inclusive_product
    simd_prefix_inclusive_sum simd_product simd_shuffle simd_shuffle_and_fill_down
    simd_shuffle_and_fill_up simd_shuffle_down simd_shuffle_rotate_down simd_shuffle_rotate_up
    simd_shuffle_up simd_shuffle_xor simd_sum simd_xor simdgroup_barrier simdgroup_load
    simdgroup_multiply simdgroup_multiply_accumulate simdgroup_store sin sincos sinh sinpi smoothstep
    sqrt step subsat tan tanh tanpi threadgroup_barrier transpose trunc unpack_snorm4x8_to_float
    unpack_snorm4x8_to_half unpack_unorm4x8_to_float unpack_unorm4x8_to_half
    """
)
CONSTANTS = _words(
    """
    CHAR_BIT CHAR_MAX CHAR_MIN FLT_DIG FLT_EPSILON FLT_MANT_DIG FLT_MAX FLT_MAX_10_EXP FLT_MAX_EXP
    FLT_MIN FLT_MIN_10_EXP FLT_MIN_EXP FLT_RADIX HALF_EPSILON HALF_MAX HALF_MIN HUGE_VALF HUGE_VALH
    INFINITY INT_MAX INT_MIN LONG_MAX LONG_MIN M_1_PI_F M_2_PI_F M_2_SQRTPI_F M_E_F M_LN10_F M_LN2_F
    M_LOG10E_F M_LOG2E_F M_PI_2_F M_PI_4_F M_PI_F M_SQRT1_2_F M_SQRT2_F MAXFLOAT MAXHALF mem_device
    mem_none mem_threadgroup memory_order_relaxed NAN SHRT_MAX SHRT_MIN thread_scope_device
    thread_scope_simdgroup thread_scope_thread thread_scope_threadgroup UCHAR_MAX UINT_MAX ULONG_MAX
    USHRT_MAX
    """
)
NAMESPACES = _words(
    """
    fast metal precise
    """
)
TRAITS = _words(
    """
    conditional conditional_t enable_if enable_if_t false_type integral_constant is_arithmetic
    is_arithmetic_v is_convertible is_convertible_v is_floating_point is_floating_point_v is_integral
    is_integral_v is_same is_same_v is_signed is_signed_v is_unsigned is_unsigned_v remove_cv
    remove_cv_t remove_reference remove_reference_t true_type
    """
)
# Of simd_vote, numeric_limits, simdgroup matrices and traits; a vector's are swizzles.
MEMBERS = _words(
    """
    all any epsilon infinity lowest max min quiet_NaN thread_elements type value vote_t
    """
)
# What MLX puts before every kernel: mlx/backend/metal/kernels/utils.h and the headers that it includes.
MLX_PREAMBLE = _words(
    """
    bfloat16_t bfloat16_to_uint16 cast_to ceildiv complex32_t complex64_t complex_t ConditionalType
    elem_to_loc elem_to_loc_1 elem_to_loc_2 elem_to_loc_2_nd elem_to_loc_3 elem_to_loc_3_nd float16_t
    hypot instantiate_default_limit instantiate_float_limit instantiate_metal_math_funcs
    instantiate_metal_simd_comm_funcs instantiate_metal_simd_reduction_funcs is_complex_v
    is_lane_convertible_v Limits log1p LoopedElemToLoc MLX_MTL_PRAGMA_UNROLL schedule_row_tile
    simd_shuffle simd_shuffle_and_fill_up simd_shuffle_down simd_shuffle_up uint16_to_bfloat16
    WorkPerThread
    """
)
LIBRARY = TYPES | FUNCTIONS | CONSTANTS | NAMESPACES | TRAITS
