// A variable in threadgroup memory: its declaration is rewritten to this macro (rewrite.py).
#pragma once
#include "ksim.h"

#define KSIM_SHARED(id, T, name, dimensions, align)                                                     \
  typedef T ksim_shared_type_##id dimensions;                                                           \
  ksim_shared_type_##id& name = *(ksim_shared_type_##id*)ksim_shared(id, sizeof(ksim_shared_type_##id), \
                                                                     (align)           ? (align)        \
                                                                     : alignof(T) > 16 ? alignof(T)     \
                                                                                       : 16,            \
                                                                     #name)
