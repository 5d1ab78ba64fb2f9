// CUDA C++ kernels, as CuPy's RawModule takes them, as C++ (clang 16 or later).
#pragma once
#include "cuda/language.h"
#include "cuda/halves.h"
#include "cuda/math.h"
#include "cuda/integers.h"
#include "cuda/warps.h"
#include "cuda/atomics.h"
#include "cuda/wmma.h"
#include "cuda/ptx.h"
#include "cuda_entry.h"
#include "shared_variable.h"

#define KSIM_DYN(T, name) T* name = (T*)ksim_dynamic_shared()
