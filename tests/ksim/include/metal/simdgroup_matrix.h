// 8x8 matrices spread over a simdgroup, two neighbours of one row to a lane.
//
// The lane layout is the one observed on Apple hardware; it is not documented.
#pragma once
#include "simdgroup.h"

namespace metal {
struct LanePlace {
  int row, column;  // of the first of the lane's two elements
};
inline LanePlace lane_place(int lane) {
  int quad = lane / 4;
  return {(quad & 4) + lane / 2 % 4, (quad & 2) * 2 + lane % 2 * 2};
}

template <class T, int ROWS, int COLUMNS>
struct simdgroup_matrix {
  static_assert(ROWS == 8 && COLUMNS == 8, "8x8 only");
  vec<T, 2> own;
  simdgroup_matrix() { __builtin_memset((void*)&own, 0xFF, sizeof own); }
  explicit simdgroup_matrix(T diagonal) {
    LanePlace at = lane_place(ksim_thread->lane);
    own = vec<T, 2>(at.row == at.column ? diagonal : T(0), at.row == at.column + 1 ? diagonal : T(0));
  }
  vec<T, 2>& thread_elements() { return own; }
  const vec<T, 2>& thread_elements() const { return own; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int ROWS = 8, int COLUMNS = ROWS>
inline simdgroup_matrix<T, ROWS, COLUMNS> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, ROWS, COLUMNS> filled;
  filled.own = vec<T, 2>(value);
  return filled;
}

// All lanes must take part, though each reads and writes its own elements only.
inline void meet(const char* file, int line) {
  ksim_warp_collective(nullptr, nullptr, 0, KSIM_ORDER_NONE, file, line);
}

template <class T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& matrix, const T* from, ulong stride = 8,
                           ulong2 origin = ulong2(0ul, 0ul), bool transposed = false, KSIM_HERE) {
  LanePlace at = lane_place(ksim_thread->lane);
  from += origin.y * stride + origin.x;
  if (transposed)
    matrix.own = vec<T, 2>(from[at.column * stride + at.row], from[(at.column + 1) * stride + at.row]);
  else
    matrix.own = vec<T, 2>(from[at.row * stride + at.column], from[at.row * stride + at.column + 1]);
  meet(KSIM_AT);
}
template <class T>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& matrix, T* to, ulong stride = 8,
                            ulong2 origin = ulong2(0ul, 0ul), bool transposed = false, KSIM_HERE) {
  LanePlace at = lane_place(ksim_thread->lane);
  to += origin.y * stride + origin.x;
  for (int i = 0; i < 2; i++) {
    ulong offset = transposed ? (at.column + i) * stride + at.row : at.row * stride + at.column + i;
    to[offset] = matrix.own.d[i];
  }
  meet(KSIM_AT);
}

// One lane's elements of left * right + add; `add` is null for a plain product.
template <class D, class A, class B, class C>
struct LaneProduct {
  vec<A, 2> left;
  vec<B, 2> right;
  const vec<C, 2>* add;
  vec<D, 2> result;

  static void complete(void** lanes_, uint32_t active) {
    LaneProduct** lanes = (LaneProduct**)lanes_;
    if (active != ~0u) ksim_fail("product of simdgroup matrices with inactive lanes (active: 0x%08x)", active);
    float left[8][8], right[8][8];
    for (int lane = 0; lane < 32; lane++) {
      LanePlace at = lane_place(lane);
      for (int i = 0; i < 2; i++) {
        left[at.row][at.column + i] = (float)lanes[lane]->left.d[i];
        right[at.row][at.column + i] = (float)lanes[lane]->right.d[i];
      }
    }
    for (int lane = 0; lane < 32; lane++) {
      LanePlace at = lane_place(lane);
      for (int i = 0; i < 2; i++) {
        float sum = lanes[lane]->add ? (float)lanes[lane]->add->d[i] : 0.0f;
        for (int k = 0; k < 8; k++) sum = __builtin_fmaf(left[at.row][k], right[k][at.column + i], sum);
        lanes[lane]->result.d[i] = (D)sum;
      }
    }
  }
};
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& result, const simdgroup_matrix<A, 8, 8>& left,
                                          const simdgroup_matrix<B, 8, 8>& right,
                                          const simdgroup_matrix<C, 8, 8>& add, KSIM_HERE) {
  LaneProduct<D, A, B, C> mine{left.own, right.own, &add.own, {}};
  ksim_warp_collective(&LaneProduct<D, A, B, C>::complete, &mine, 0, KSIM_ORDER_NONE, KSIM_AT);
  result.own = mine.result;
}
template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& result, const simdgroup_matrix<A, 8, 8>& left,
                               const simdgroup_matrix<B, 8, 8>& right, KSIM_HERE) {
  LaneProduct<D, A, B, D> mine{left.own, right.own, nullptr, {}};
  ksim_warp_collective(&LaneProduct<D, A, B, D>::complete, &mine, 0, KSIM_ORDER_NONE, KSIM_AT);
  result.own = mine.result;
}
}  // namespace metal
