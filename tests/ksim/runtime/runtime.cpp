// The executor of kernels compiled as C++: one fiber a GPU thread, threadgroups one after another.
#include "launch.h"

__attribute__((visibility("default"))) __thread KsimFiber* ksim_thread = nullptr;
__attribute__((visibility("default"))) __thread KsimBlock* ksim_block = nullptr;

// Rounding to bfloat16, which libgcc has only since version 13.
KSIM_EXPORT __bf16 __truncsfbf2(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  bool nan = (bits & 0x7fffffff) > 0x7f800000;
  uint16_t upper = uint16_t(nan ? (bits >> 16) | 64 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  __bf16 result;
  memcpy(&result, &upper, 2);
  return result;
}
KSIM_EXPORT __bf16 __truncdfbf2(double value) { return __truncsfbf2((float)value); }
