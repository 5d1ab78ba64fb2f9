// Signals of a kernel that went wrong: a bad address, a trap, a division by zero, no end in sight.
#pragma once
#include "buffers.h"
#include "shared_memory.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

namespace {
constexpr int FAULTS[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
constexpr int FAULT_COUNT = sizeof FAULTS / sizeof *FAULTS;
constexpr size_t SIGNAL_STACK = 65536;
struct sigaction earlier_actions[FAULT_COUNT];
__thread bool thread_prepared = false;
__thread timer_t deadline_timer;
__thread char* signal_stack = nullptr;
int alarm_signal() { return SIGRTMIN + 7; }

// Code of one kernel library: a thread stopped inside it holds no lock of ours or of the C library.
struct TextRange {
  uintptr_t low, high;
};
TextRange kernel_text;

int find_text(dl_phdr_info* info, size_t, void* result) {
  TextRange& range = *(TextRange*)result;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    uintptr_t low = info->dlpi_addr + segment.p_vaddr, high = low + segment.p_memsz;
    bool code = segment.p_type == PT_LOAD && (segment.p_flags & PF_X);
    if (!code || range.low < low || range.low >= high) continue;
    range = {low, high};
    return 1;
  }
  return 0;
}

TextRange text_of(void (*entry)(void**)) {
  static std::map<uintptr_t, TextRange>& known = *new std::map<uintptr_t, TextRange>;
  auto found = known.find((uintptr_t)entry);
  if (found != known.end()) return found->second;
  TextRange range{(uintptr_t)entry, (uintptr_t)entry + 1};
  dl_iterate_phdr(find_text, &range);
  return known[(uintptr_t)entry] = range;
}

uintptr_t program_counter(ucontext_t* context) {
#if defined(__x86_64__)
  return uintptr_t(context->uc_mcontext.gregs[REG_RIP]);
#else
  return context->uc_mcontext.pc;
#endif
}

bool was_write(ucontext_t* context) {
#if defined(__x86_64__)
  return context->uc_mcontext.gregs[REG_ERR] & 2;
#else
  (void)context;
  return false;
#endif
}

// On return from the signal the thread leaves the kernel; any valid stack will do for that.
void resume_in_abandon_block(ucontext_t* context) {
  uintptr_t stack = (uintptr_t)(signal_stack + SIGNAL_STACK - 64) & ~uintptr_t(15);
#if defined(__x86_64__)
  context->uc_mcontext.gregs[REG_RIP] = (greg_t)(void*)&abandon_block;
  context->uc_mcontext.gregs[REG_RSP] = (greg_t)(stack - 8);
#else
  context->uc_mcontext.pc = (uintptr_t)(void*)&abandon_block;
  context->uc_mcontext.sp = stack;
#endif
}

bool describe_buffer_fault(char* address, bool write, void* pc) {
  for (const TakenBuffer& buffer : taken) {
    if (address < buffer.slot.span - GUARD || address >= buffer.slot.span + buffer.slot.length + GUARD) continue;
    ptrdiff_t offset = address - buffer.data;
    bool inside = offset >= 0 && size_t(offset) < buffer.size;
    if (inside && write && buffer.slot.mode == READ_ONLY)
      fail_at(pc, "write to read-only (const) buffer '%s' at byte %td", buffer.name, offset);
    else
      fail_at(pc, "out of bounds %s at '%s' byte offset %td (size %zu)", write ? "write" : "read", buffer.name,
              offset, buffer.size);
    return true;
  }
  return false;
}

bool describe_shared_fault(char* address, bool write, void* pc) {
  Executor& e = executor;
  if (address < e.arena - GUARD || address >= e.arena + ARENA + GUARD || e.variables.empty()) return false;
  const SharedVariable* nearest = nullptr;
  size_t distance = ~size_t(0);
  for (const SharedVariable& variable : e.variables) {
    size_t away = address < variable.data ? variable.data - address : address - (variable.data + variable.size);
    if (away < distance) {
      distance = away;
      nearest = &variable;
    }
  }
  fail_at(pc, "out of bounds %s at threadgroup '%s' byte offset %td (size %zu)", write ? "write" : "read",
          nearest->name, address - nearest->data, nearest->size);
  return true;
}

void describe_fault(int signal, char* address, bool write, void* pc) {
  if (signal == SIGFPE) return fail_at(pc, "integer division by zero");
  if (signal == SIGILL || signal == SIGTRAP)
    return fail_at(pc, "trap: array index out of bounds, misaligned address or undefined operation");
  if (describe_buffer_fault(address, write, pc) || describe_shared_fault(address, write, pc)) return;
  if (address >= executor.stacks && address < executor.stacks + executor.capacity * STACK)
    return fail_at(pc, "thread stack overflow (%zu KiB)", STACK >> 10);
  fail_at(pc, "out of bounds %s at an address in no buffer", write ? "write" : "read");
}

void on_fault(int signal, siginfo_t* info, void* context_) {
  ucontext_t* context = (ucontext_t*)context_;
  if (!inside_launch || !ksim_thread) {  // not a kernel's: the earlier action meets it again
    for (int i = 0; i < FAULT_COUNT; i++)
      if (FAULTS[i] == signal) sigaction(signal, &earlier_actions[i], nullptr);
    return;
  }
  bool write = (signal == SIGSEGV || signal == SIGBUS) && was_write(context);
  describe_fault(signal, (char*)info->si_addr, write, (void*)(program_counter(context) + 1));
  resume_in_abandon_block(context);
}

void set_alarm(double seconds) {
  itimerspec when{};
  when.it_value.tv_sec = time_t(seconds);
  when.it_value.tv_nsec = long((seconds - double(when.it_value.tv_sec)) * 1e9) + 1;
  timer_settime(deadline_timer, 0, &when, nullptr);
}

void stop_alarm() {
  itimerspec never{};
  timer_settime(deadline_timer, 0, &never, nullptr);
}

// Inside the kernel's own code it stops at once; elsewhere the next thread switch sees `late`.
void on_deadline(int, siginfo_t*, void* context_) {
  ucontext_t* context = (ucontext_t*)context_;
  if (!inside_launch || !ksim_thread) return;
  executor.late = true;
  uintptr_t pc = program_counter(context);
  if (pc < kernel_text.low || pc >= kernel_text.high) return set_alarm(1e-3);
  fail_at((void*)(pc + 1), "kernel ran for more than %g s of processor time", executor.launch->deadline);
  resume_in_abandon_block(context);
}

// Installed once; a later launch only looks whether somebody else took their place.
void catch_faults() {
  struct sigaction current;
  sigaction(SIGSEGV, nullptr, &current);
  if (current.sa_sigaction == on_fault) return;
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < FAULT_COUNT; i++) {
    struct sigaction earlier;
    sigaction(FAULTS[i], &action, &earlier);
    if (earlier.sa_sigaction != on_fault) earlier_actions[i] = earlier;
  }
  action.sa_sigaction = on_deadline;
  action.sa_flags |= SA_RESTART;
  sigaction(alarm_signal(), &action, nullptr);
}

// Each thread that launches gets a timer of its own processor time and a stack for its signals, once.
bool prepare_thread() {
  if (thread_prepared) return true;
  stack_t stack{};
  stack.ss_size = SIGNAL_STACK;
  stack.ss_sp = signal_stack = (char*)malloc(SIGNAL_STACK);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = alarm_signal();
  event._sigev_un._tid = int(syscall(SYS_gettid));
  thread_prepared = signal_stack && sigaltstack(&stack, nullptr) == 0 &&
                    timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &deadline_timer) == 0;
  return thread_prepared;
}
}  // namespace
