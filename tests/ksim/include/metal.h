// Metal Shading Language kernels as C++ (clang 16 or later).
//
// Only what compute kernels use, and no standard header beyond <stdint.h>: a name such as ::exp(double) would make
// the kernel's own calls ambiguous. Kernels must also pass metal_lint.py, since this is more lenient than Metal.
#pragma once
#define __METAL_VERSION__ 310
#define __METAL__ 1

#include "metal/types.h"
#include "metal/vectors.h"
#include "metal/matrices.h"
#include "metal/math.h"
#include "metal/common.h"
#include "metal/integers.h"
#include "metal/simdgroup.h"
#include "metal/simdgroup_matrix.h"
#include "metal/atomics.h"
#include "metal/attributes.h"
#include "shared_variable.h"

#define M_PI_F 3.14159265358979323846f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f
#define M_SQRT2_F 1.41421356237309504880f
#define MAXFLOAT 3.402823466e38f
#define HALF_MAX 65504.0h
#define MAXHALF 65504.0h
#define FLT_MAX 3.402823466e38f
#define FLT_MIN 1.17549435e-38f
#define FLT_EPSILON 1.1920929e-7f
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

using namespace metal;
typedef half float16_t;
typedef bfloat bfloat16_t;

// Address spaces are checked elsewhere (address_spaces.py).
#define device
#define thread
#define threadgroup
#define kernel
#define constant const
