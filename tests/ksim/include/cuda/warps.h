// Barriers, shuffles, votes and reductions.
#pragma once
#include "language.h"

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline unsigned __activemask() { return ksim_active_lanes(); }

inline void __syncthreads(KSIM_HERE) { ksim_block_collective(nullptr, nullptr, KSIM_ORDER_ALL, KSIM_AT); }
inline void __syncwarp(unsigned mask = ~0u, KSIM_HERE) {
  ksim_warp_collective(nullptr, nullptr, mask, KSIM_ORDER_ALL, KSIM_AT);
}

// A barrier that counts the threads whose predicate holds.
struct ksim_predicate {
  bool holds;
  int count, threads;

  static void complete(void** threads, uint32_t size) {
    int holding = 0, present = 0;
    for (uint32_t i = 0; i < size; i++) {
      if (!threads[i]) continue;
      present++;
      holding += ((ksim_predicate*)threads[i])->holds;
    }
    for (uint32_t i = 0; i < size; i++) {
      if (!threads[i]) continue;
      ((ksim_predicate*)threads[i])->count = holding;
      ((ksim_predicate*)threads[i])->threads = present;
    }
  }
};
inline ksim_predicate ksim_count(int predicate, const char* file, int line) {
  ksim_predicate mine{predicate != 0, 0, 0};
  ksim_block_collective(&ksim_predicate::complete, &mine, KSIM_ORDER_ALL, file, line);
  return mine;
}
inline int __syncthreads_count(int predicate, KSIM_HERE) { return ksim_count(predicate, KSIM_AT).count; }
inline int __syncthreads_or(int predicate, KSIM_HERE) { return ksim_count(predicate, KSIM_AT).count != 0; }
inline int __syncthreads_and(int predicate, KSIM_HERE) {
  ksim_predicate counted = ksim_count(predicate, KSIM_AT);
  return counted.count == counted.threads;
}

// One lane's part in a collective: its value and operand in, its result out.
template <class T>
struct ksim_lane {
  T value, result;
  int operand, width;
};
#define KSIM_EACH_LANE(i, active) \
  for (int i = 0; i < 32; i++)    \
    if ((active) >> i & 1)

// A value from another lane of the `width` neighbours; beyond them the own value, from an absent lane garbage.
#define KSIM_SHFL(name, source_of)                                                        \
  template <class T>                                                                      \
  struct name##_op {                                                                      \
    static void complete(void** lanes_, uint active) {                                    \
      ksim_lane<T>** lanes = (ksim_lane<T>**)lanes_;                                      \
      KSIM_EACH_LANE(lane, active) {                                                      \
        int width = lanes[lane]->width, operand = lanes[lane]->operand;                   \
        int low = lane & ~(width - 1), source = (source_of);                              \
        if (source < low || source >= low + width) source = lane;                         \
        if (active >> source & 1)                                                         \
          lanes[lane]->result = lanes[source]->value;                                     \
        else                                                                              \
          __builtin_memset((void*)&lanes[lane]->result, 0xFF, sizeof(T));                 \
      }                                                                                   \
    }                                                                                     \
  };                                                                                      \
  template <class T>                                                                      \
  inline T name(unsigned mask, T value, int operand, int width = 32, KSIM_HERE) {         \
    ksim_lane<T> mine{value, value, operand, width};                                      \
    ksim_warp_collective(&name##_op<T>::complete, &mine, mask, KSIM_ORDER_NONE, KSIM_AT); \
    return mine.result;                                                                   \
  }
KSIM_SHFL(__shfl_sync, low + (operand & (width - 1)))
KSIM_SHFL(__shfl_xor_sync, lane ^ operand)
KSIM_SHFL(__shfl_down_sync, lane + operand)
KSIM_SHFL(__shfl_up_sync, lane - operand)

struct ksim_ballot {
  static void complete(void** lanes_, uint active) {
    ksim_lane<uint>** lanes = (ksim_lane<uint>**)lanes_;
    uint votes = 0;
    KSIM_EACH_LANE(lane, active) if (lanes[lane]->value) votes |= 1u << lane;
    KSIM_EACH_LANE(lane, active) lanes[lane]->result = votes;
  }
};
inline unsigned __ballot_sync(unsigned mask, int predicate, KSIM_HERE) {
  ksim_lane<uint> mine{predicate != 0, 0, 0, 0};
  ksim_warp_collective(&ksim_ballot::complete, &mine, mask, KSIM_ORDER_NONE, KSIM_AT);
  return mine.result;
}
inline int __any_sync(unsigned mask, int predicate, KSIM_HERE) {
  return __ballot_sync(mask, predicate, KSIM_AT) != 0;
}
inline int __all_sync(unsigned mask, int predicate, KSIM_HERE) {
  return __ballot_sync(mask, !predicate, KSIM_AT) == 0;
}

#define KSIM_RED(name, combined)                                                          \
  template <class T>                                                                      \
  struct name##_op {                                                                      \
    static void complete(void** lanes_, uint active) {                                    \
      ksim_lane<T>** lanes = (ksim_lane<T>**)lanes_;                                      \
      int first = __builtin_ctz(active);                                                  \
      T x = lanes[first]->value;                                                          \
      KSIM_EACH_LANE(lane, active) {                                                      \
        T y = lanes[lane]->value;                                                         \
        if (lane != first) x = (T)(combined);                                             \
      }                                                                                   \
      KSIM_EACH_LANE(lane, active) lanes[lane]->result = x;                               \
    }                                                                                     \
  };                                                                                      \
  template <class T>                                                                      \
  inline T name(unsigned mask, T value, KSIM_HERE) {                                      \
    ksim_lane<T> mine{value, value, 0, 0};                                                \
    ksim_warp_collective(&name##_op<T>::complete, &mine, mask, KSIM_ORDER_NONE, KSIM_AT); \
    return mine.result;                                                                   \
  }
KSIM_RED(__reduce_add_sync, x + y)
KSIM_RED(__reduce_max_sync, x > y ? x : y)
KSIM_RED(__reduce_min_sync, x < y ? x : y)
KSIM_RED(__reduce_or_sync, x | y)
KSIM_RED(__reduce_and_sync, x& y)

struct ksim_match {
  static void complete(void** lanes_, uint active) {
    ksim_lane<uint>** lanes = (ksim_lane<uint>**)lanes_;
    KSIM_EACH_LANE(lane, active) {
      uint equal = 0;
      KSIM_EACH_LANE(other, active) if (lanes[other]->value == lanes[lane]->value) equal |= 1u << other;
      lanes[lane]->result = equal;
    }
  }
};
inline unsigned __match_any_sync(unsigned mask, unsigned value, KSIM_HERE) {
  ksim_lane<uint> mine{value, 0, 0, 0};
  ksim_warp_collective(&ksim_match::complete, &mine, mask, KSIM_ORDER_NONE, KSIM_AT);
  return mine.result;
}
