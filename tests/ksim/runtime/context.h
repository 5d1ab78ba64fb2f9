// Switching between fibers: callee-saved registers on the fiber's own stack.
#pragma once
#include "state.h"

extern "C" void ksim_switch(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl ksim_switch
.hidden ksim_switch
.type ksim_switch,@function
ksim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
namespace {
void* new_stack(char* top, void (*function)()) {
  void** stack = (void**)((uintptr_t)top & ~uintptr_t(15));
  *--stack = nullptr;  // a return address would be here: rsp % 16 == 8 at a function's entry
  *--stack = (void*)function;
  for (int i = 0; i < 6; i++) *--stack = nullptr;
  return stack;
}
}  // namespace
#elif defined(__aarch64__)
asm(R"(
.text
.globl ksim_switch
.hidden ksim_switch
.type ksim_switch,@function
ksim_switch:
  sub sp, sp, #176
  stp x19,x20,[sp,#0]
  stp x21,x22,[sp,#16]
  stp x23,x24,[sp,#32]
  stp x25,x26,[sp,#48]
  stp x27,x28,[sp,#64]
  stp x29,x30,[sp,#80]
  stp d8,d9,[sp,#96]
  stp d10,d11,[sp,#112]
  stp d12,d13,[sp,#128]
  stp d14,d15,[sp,#144]
  mov x9,sp
  str x9,[x0]
  mov sp,x1
  ldp x19,x20,[sp,#0]
  ldp x21,x22,[sp,#16]
  ldp x23,x24,[sp,#32]
  ldp x25,x26,[sp,#48]
  ldp x27,x28,[sp,#64]
  ldp x29,x30,[sp,#80]
  ldp d8,d9,[sp,#96]
  ldp d10,d11,[sp,#112]
  ldp d12,d13,[sp,#128]
  ldp d14,d15,[sp,#144]
  add sp, sp, #176
  ret
)");
namespace {
void* new_stack(char* top, void (*function)()) {
  void** stack = (void**)(((uintptr_t)top & ~uintptr_t(15)) - 176);
  memset(stack, 0, 176);
  stack[11] = (void*)function;
  return stack;
}
}  // namespace
#endif
