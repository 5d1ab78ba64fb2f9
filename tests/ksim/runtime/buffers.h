// Buffers between unmapped zones. Freed ones are kept by size, so that a launch needs no system call.
#pragma once
#include "state.h"

#include <sys/mman.h>
#include <unistd.h>

namespace {
constexpr uint8_t SLACK = 0xA5;
constexpr size_t KEPT_BYTES = size_t(512) << 20, KEPT_SLOTS = 256;

// `span` is what the kernel sees; an input has a second, writable view of the same pages.
struct Slot {
  char *span, *host;
  size_t length;
  uint32_t mode;
};
struct TakenBuffer {
  Slot slot;
  char* data;
  size_t size;
  const char* name;
};
std::map<std::pair<size_t, uint32_t>, std::vector<Slot>>& kept =
    *new std::map<std::pair<size_t, uint32_t>, std::vector<Slot>>;
size_t kept_bytes = 0, kept_slots = 0;
std::vector<TakenBuffer>& taken = *new std::vector<TakenBuffer>;

bool map_slot(Slot& slot, size_t length, uint32_t mode) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char* base = (char*)mmap(nullptr, length + 2 * GUARD, PROT_NONE, flags, -1, 0);
  if (base == MAP_FAILED) return false;
  slot = {base + GUARD, base + GUARD, length, mode};
  if (mode == WRITABLE) return mprotect(slot.span, length, PROT_READ | PROT_WRITE) == 0;
  int file = memfd_create("ksim", MFD_CLOEXEC);
  bool mapped = file >= 0 && ftruncate(file, off_t(length)) == 0;
  if (mapped) {
    void* seen = mmap(slot.span, length, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0);
    slot.host = (char*)mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    mapped = seen != MAP_FAILED && slot.host != MAP_FAILED;
  }
  if (file >= 0) close(file);
  return mapped;
}

void unmap_slot(const Slot& slot) {
  munmap(slot.span - GUARD, slot.length + 2 * GUARD);
  if (slot.host != slot.span) munmap(slot.host, slot.length);
}

bool take_slot(Slot& slot, size_t length, uint32_t mode) {
  std::vector<Slot>& free_slots = kept[{length, mode}];
  if (free_slots.empty()) return map_slot(slot, length, mode);
  slot = free_slots.back();
  free_slots.pop_back();
  kept_bytes -= length;
  kept_slots--;
  return true;
}

void keep_slot(const Slot& slot) {
  if (kept_bytes + slot.length > KEPT_BYTES || kept_slots == KEPT_SLOTS) {
    for (auto& [size, slots] : kept)
      for (const Slot& old : slots) unmap_slot(old);
    kept.clear();
    kept_bytes = kept_slots = 0;
  }
  kept[{slot.length, slot.mode}].push_back(slot);
  kept_bytes += slot.length;
  kept_slots++;
}

// The data ends where the unmapped zone begins, up to 15 bytes of slack that keep its start aligned.
bool take_buffer(KsimBuffer& buffer) {
  size_t length = whole_pages(buffer.size), offset = (length - buffer.size) & ~size_t(15);
  Slot slot;
  if (!take_slot(slot, length, buffer.mode)) return false;
  memset(slot.host, SLACK, offset);
  if (buffer.source)
    memcpy(slot.host + offset, buffer.source, buffer.size);
  else
    memset(slot.host + offset, 0xFF, buffer.size);
  memset(slot.host + offset + buffer.size, SLACK, length - offset - buffer.size);
  buffer.data = slot.span + offset;
  buffer.host = slot.host + offset;
  taken.push_back({slot, buffer.data, buffer.size, buffer.name});
  return true;
}

bool slack_touched(const TakenBuffer& buffer) {
  if (buffer.slot.mode == READ_ONLY) return false;
  bool touched = false;
  for (const char* p = buffer.slot.span; p < buffer.data; p++) touched |= uint8_t(*p) != SLACK;
  for (const char* p = buffer.data + buffer.size; p < buffer.slot.span + buffer.slot.length; p++)
    touched |= uint8_t(*p) != SLACK;
  return touched;
}

void track_buffers() {
  for (const TakenBuffer& buffer : taken) {
    bool writable = buffer.slot.mode == WRITABLE, fresh = false;
    for (uint32_t i = 0; i < executor.launch->buffer_count; i++)
      if (executor.launch->buffers[i].data == buffer.data) fresh = !executor.launch->buffers[i].source;
    Shadow* shadow = writable ? (Shadow*)calloc(buffer.size + 1, sizeof(Shadow)) : nullptr;
    executor.regions.push_back({buffer.slot.span, buffer.slot.span + buffer.slot.length, buffer.data,
                                buffer.data + buffer.size, shadow, DEVICE, fresh, buffer.name});
  }
}
}  // namespace

// Gives the buffers of a launch back; they must not be read afterwards.
KSIM_EXPORT void ksim_release() {
  for (const TakenBuffer& buffer : taken) keep_slot(buffer.slot);
  taken.clear();
}
