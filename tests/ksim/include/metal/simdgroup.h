// Barriers, fences and the operations among the lanes of a simdgroup or quadgroup.
#pragma once
#include "common.h"

namespace metal {
enum class mem_flags : uint32_t {
  mem_none = KSIM_ORDER_NONE,
  mem_device = KSIM_ORDER_DEVICE,
  mem_threadgroup = KSIM_ORDER_THREADGROUP,
  mem_texture = 4
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint32_t(a) | uint32_t(b)); }
enum memory_order {
  memory_order_relaxed,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

// Each kind of memory is ordered only where its flag is given.
inline void threadgroup_barrier(mem_flags flags, KSIM_HERE) {
  ksim_block_collective(nullptr, nullptr, uint32_t(flags), KSIM_AT);
}
inline void simdgroup_barrier(mem_flags flags, KSIM_HERE) {
  ksim_warp_collective(nullptr, nullptr, 0, uint32_t(flags), KSIM_AT);
}
inline void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {}

// One lane's part in a collective: its value and operand in, its result out.
template <class T>
struct LaneValue {
  T value, result;
  uint operand;
};
template <class T, class F>
inline T lane_collective(T value, uint operand, F, const char* file, int line) {
  LaneValue<T> mine{value, value, operand};
  ksim_warp_collective([](void** lanes, uint32_t active) { F::complete((LaneValue<T>**)lanes, active); }, &mine, 0,
                       KSIM_ORDER_NONE, file, line);
  return mine.result;
}
#define KSIM_EACH_LANE(i, active) \
  for (int i = 0; i < 32; i++)    \
    if ((active) >> i & 1)

// A value from another lane. A lane beyond the simdgroup leaves the own value; one that takes no part gives garbage.
#define KSIM_SHUFFLE(name, source_of, beyond)                             \
  template <class T>                                                      \
  struct name##_op {                                                      \
    static void complete(LaneValue<T>** lanes, uint active) {             \
      KSIM_EACH_LANE(lane, active) {                                      \
        int operand = (short)lanes[lane]->operand, source = (source_of);  \
        if (source < 0 || source > 31) {                                  \
          beyond;                                                         \
        } else if (!(active >> source & 1)) {                             \
          __builtin_memset((void*)&lanes[lane]->result, 0xFF, sizeof(T)); \
        } else {                                                          \
          lanes[lane]->result = lanes[source]->value;                     \
        }                                                                 \
      }                                                                   \
    }                                                                     \
  };                                                                      \
  template <class T>                                                      \
  inline T name(T value, ushort operand, KSIM_HERE) {                     \
    return lane_collective(value, operand, name##_op<T>(), KSIM_AT);      \
  }
KSIM_SHUFFLE(simd_shuffle, operand, ksim_fail("simd_shuffle from lane %d at %s", source, "a simdgroup of 32"))
KSIM_SHUFFLE(simd_broadcast, operand, ksim_fail("simd_broadcast from lane %d at %s", source, "a simdgroup of 32"))
KSIM_SHUFFLE(simd_shuffle_xor, lane ^ operand, (void)0)
KSIM_SHUFFLE(simd_shuffle_down, lane + operand, (void)0)
KSIM_SHUFFLE(simd_shuffle_up, lane - operand, (void)0)
KSIM_SHUFFLE(simd_shuffle_rotate_down, (lane + operand) & 31, (void)0)
KSIM_SHUFFLE(simd_shuffle_rotate_up, (lane - operand) & 31, (void)0)
KSIM_SHUFFLE(quad_shuffle, (lane & ~3) + (operand & 3), (void)0)
KSIM_SHUFFLE(quad_broadcast, (lane & ~3) + (operand & 3), (void)0)
KSIM_SHUFFLE(quad_shuffle_xor, lane ^ (operand & 3), (void)0)
KSIM_SHUFFLE(quad_shuffle_down, (lane & 3) + operand < 4 ? lane + operand : lane, (void)0)
KSIM_SHUFFLE(quad_shuffle_up, (lane & 3) >= operand ? lane - operand : lane, (void)0)

template <class T>
struct LaneFill {
  T value, fill, result;
  uint delta, width;
};
template <class T, bool UP>
struct fill_op {
  static void complete(void** lanes_, uint active) {
    LaneFill<T>** lanes = (LaneFill<T>**)lanes_;
    KSIM_EACH_LANE(lane, active) {
      int width = lanes[lane]->width, low = lane & ~(width - 1), delta = lanes[lane]->delta;
      int source = UP ? lane - delta : lane + delta, filler = UP ? source + width : source - width;
      bool inside = source >= low && source < low + width;
      if (inside && (active >> source & 1)) lanes[lane]->result = lanes[source]->value;
      if (!inside && filler >= 0 && filler < 32 && (active >> filler & 1)) lanes[lane]->result = lanes[filler]->fill;
    }
  }
};
#define KSIM_FILL(name, up)                                                                       \
  template <class T>                                                                              \
  inline T name(T value, typename ident<T>::t fill, ushort delta, ushort width = 32, KSIM_HERE) { \
    LaneFill<T> mine{value, fill, value, delta, width};                                           \
    ksim_warp_collective(&fill_op<T, up>::complete, &mine, 0, KSIM_ORDER_NONE, KSIM_AT);          \
    return mine.result;                                                                           \
  }
KSIM_FILL(simd_shuffle_and_fill_up, true)
KSIM_FILL(simd_shuffle_and_fill_down, false)

template <class T>
struct broadcast_first_op {
  static void complete(LaneValue<T>** lanes, uint active) {
    int first = __builtin_ctz(active);
    KSIM_EACH_LANE(lane, active) lanes[lane]->result = lanes[first]->value;
  }
};
template <class T>
inline T simd_broadcast_first(T value, KSIM_HERE) {
  return lane_collective(value, 0, broadcast_first_op<T>(), KSIM_AT);
}

// Reductions add neighbours pairwise, so the sum of floats differs from a serial one, as it does on the device.
#define KSIM_REDUCTION(name, WIDTH, combined)                           \
  template <class T>                                                    \
  struct name##_op {                                                    \
    static void complete(LaneValue<T>** lanes, uint active) {           \
      for (int base = 0; base < 32; base += WIDTH) {                    \
        T values[32];                                                   \
        uint count = 0;                                                 \
        for (int lane = base; lane < base + WIDTH; lane++)              \
          if (active >> lane & 1) values[count++] = lanes[lane]->value; \
        while (count > 1) {                                             \
          uint half_count = count / 2;                                  \
          for (uint k = 0; k < half_count; k++) {                       \
            T x = values[2 * k], y = values[2 * k + 1];                 \
            values[k] = (combined);                                     \
          }                                                             \
          if (count & 1) values[half_count++] = values[count - 1];      \
          count = half_count;                                           \
        }                                                               \
        for (int lane = base; lane < base + WIDTH; lane++)              \
          if (active >> lane & 1) lanes[lane]->result = values[0];      \
      }                                                                 \
    }                                                                   \
  };                                                                    \
  template <class T>                                                    \
  inline T name(T value, KSIM_HERE) {                                   \
    return lane_collective(value, 0, name##_op<T>(), KSIM_AT);          \
  }
KSIM_REDUCTION(simd_sum, 32, T(x + y))
KSIM_REDUCTION(simd_product, 32, T(x* y))
KSIM_REDUCTION(simd_max, 32, metal::max(x, y))
KSIM_REDUCTION(simd_min, 32, metal::min(x, y))
KSIM_REDUCTION(simd_and, 32, T(x& y))
KSIM_REDUCTION(simd_or, 32, T(x | y))
KSIM_REDUCTION(simd_xor, 32, T(x ^ y))
KSIM_REDUCTION(quad_sum, 4, T(x + y))
KSIM_REDUCTION(quad_max, 4, metal::max(x, y))
KSIM_REDUCTION(quad_min, 4, metal::min(x, y))

template <class T, bool INCLUSIVE>
struct prefix_sum_op {
  static void complete(LaneValue<T>** lanes, uint active) {
    T sum = T(0);
    KSIM_EACH_LANE(lane, active) {
      T before = sum;
      sum = T(sum + lanes[lane]->value);
      lanes[lane]->result = INCLUSIVE ? sum : before;
    }
  }
};
template <class T>
inline T simd_prefix_inclusive_sum(T value, KSIM_HERE) {
  return lane_collective(value, 0, prefix_sum_op<T, true>(), KSIM_AT);
}
template <class T>
inline T simd_prefix_exclusive_sum(T value, KSIM_HERE) {
  return lane_collective(value, 0, prefix_sum_op<T, false>(), KSIM_AT);
}

struct simd_vote {
  typedef ulong vote_t;
  ulong lanes;
  explicit simd_vote(ulong set = 0) : lanes(set) {}
  explicit operator ulong() const { return lanes; }
  bool any() const { return lanes; }
  bool all() const { return lanes == 0xffffffffu; }
};
struct ballot_op {
  static void complete(LaneValue<uint>** lanes, uint active) {
    uint votes = 0;
    KSIM_EACH_LANE(lane, active) if (lanes[lane]->value) votes |= 1u << lane;
    KSIM_EACH_LANE(lane, active) lanes[lane]->result = votes;
  }
};
inline uint ballot(bool vote, const char* file, int line) {
  return lane_collective<uint>(vote, 0, ballot_op(), file, line);
}
inline simd_vote simd_ballot(bool vote, KSIM_HERE) { return simd_vote(ballot(vote, KSIM_AT)); }
inline bool simd_any(bool vote, KSIM_HERE) { return ballot(vote, KSIM_AT) != 0; }
inline bool simd_all(bool vote, KSIM_HERE) { return ballot(!vote, KSIM_AT) == 0; }
inline simd_vote simd_active_threads_mask(KSIM_HERE) { return simd_vote(ballot(true, KSIM_AT)); }
inline bool simd_is_first(KSIM_HERE) { return (uint)__builtin_ctz(ballot(true, KSIM_AT)) == ksim_thread->lane; }
}  // namespace metal
