// Threadgroup memory: each variable between pages of its own that cannot be touched.
#pragma once
#include "fibers.h"

#include <sys/mman.h>

namespace {
constexpr size_t ARENA = 256 << 20, SHARED_GUARD = 1 << 20;

// Pages opened by earlier launches, in order; a launch with the same layout needs no system call.
struct OpenPages {
  size_t offset, length;
};
std::vector<OpenPages>& open_pages = *new std::vector<OpenPages>;

void close_pages_from(size_t index) {
  for (size_t i = index; i < open_pages.size(); i++)
    mprotect(executor.arena + open_pages[i].offset, open_pages[i].length, PROT_NONE);
  open_pages.resize(index);
}

char* take_pages(size_t size, size_t align) {
  Executor& e = executor;
  size_t length = whole_pages(size), offset = e.arena_used + SHARED_GUARD, index = e.variables.size();
  if (offset + length + SHARED_GUARD > ARENA) ksim_fail("threadgroup memory of more than %zu bytes", ARENA);
  bool is_open =
      index < open_pages.size() && open_pages[index].offset == offset && open_pages[index].length == length;
  if (!is_open) {
    close_pages_from(index);
    mprotect(e.arena + offset, length, PROT_READ | PROT_WRITE);
    open_pages.push_back({offset, length});
  }
  e.arena_used = offset + length;
  return e.arena + ((offset + length - size) & ~(align - 1));
}

char* new_variable(uint32_t id, size_t size, size_t align, const char* name) {
  Executor& e = executor;
  e.shared_bytes += size;
  if (e.shared_bytes > e.launch->shared_limit)
    ksim_fail("threadgroup memory of %zu bytes exceeds the limit of %u", e.shared_bytes, e.launch->shared_limit);
  char* data = take_pages(size, align);
  memset(data, 0xFF, size);
  if (e.launch->flags & FULL) {
    char* low = (char*)((uintptr_t)data & ~(PAGE - 1));
    Shadow* shadow = (Shadow*)calloc(size, sizeof(Shadow));
    e.regions.push_back({low, data + whole_pages(size), data, data + size, shadow, THREADGROUP, true, name});
  }
  e.variables.push_back({id, data, size, name});
  return data;
}

void begin_shared_memory() {
  Executor& e = executor;
  if (!e.arena) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    e.arena = (char*)mmap(nullptr, ARENA + 2 * GUARD, PROT_NONE, flags, -1, 0) + GUARD;
  }
  e.arena_used = e.shared_bytes = 0;
  e.variables.clear();
  e.dynamic = nullptr;
}

// What a threadgroup leaves behind is not there for the next one.
void forget_shared_contents() {
  for (SharedVariable& variable : executor.variables) memset(variable.data, 0xFF, variable.size);
}
}  // namespace

KSIM_EXPORT void* ksim_shared(uint32_t id, size_t size, size_t align, const char* name) {
  for (SharedVariable& variable : executor.variables)
    if (variable.id == id && variable.size == size) return variable.data;
  return new_variable(id, size, align, name);
}

KSIM_EXPORT void* ksim_dynamic_shared() {
  Executor& e = executor;
  if (!e.dynamic) {
    if (!e.launch->dynamic_shared) ksim_fail("dynamic shared memory is used, but the launch gives none");
    e.dynamic = new_variable(~0u, e.launch->dynamic_shared, 16, "dynamic shared memory");
  }
  return e.dynamic;
}

KSIM_EXPORT char* ksim_shared_window() { return executor.arena; }
