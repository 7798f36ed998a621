// Work on the rows of [rows, width], with a team of threads for each row: a warp, or a whole block
// for wide rows. A row that fits the registers of its team is read once, however many passes there
// are. For .cu files.
#pragma once
#include <algorithm>

#include "ops/cuda/cuda_vector.h"

namespace frugal::ops::cuda {

// The larger one for across(). It ignores NaN, because the exponentials carry that into the sum.
struct Larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

// How rows are read: N neighbours at once, and up to kElements in the registers of a thread. With
// kElements = 0 every pass reads memory.
template <class T_, int N_, int kElements_, bool kBlock_>
struct RowKind {
  using T = T_;
  static constexpr int N = N_, kElements = kElements_;
  static constexpr bool kBlock = kBlock_;
  static constexpr int kSteps = kElements / N;
  static constexpr int kTeam = kBlock ? 256 : kWarp;   // threads that share a row
  static constexpr int kThreads = kBlock ? 256 : 128;  // threads of a block
  static constexpr int kTeams = kThreads / kTeam;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kTeam; }
  __device__ static int team() { return static_cast<int>(threadIdx.x) / kTeam; }

  // Combines the values of all threads of the team; every thread gets the result. REQUIRES: all
  // threads of the team call it, with kBlock all threads of the block.
  template <class V, class F>
  __device__ static V across(V value, V neutral, F combine) {
    if constexpr (kBlock)
      return across_block(value, neutral, combine);
    else
      return across_warp(value, combine);
  }
  template <class V>
  __device__ static V sum(V value) {
    return across(value, V{}, Sum<V>{});
  }

  // Calls f(step, column) for the places of this thread in a row. If the row is in registers,
  // `step` is a compile-time constant.
  template <class F>
  __device__ __forceinline__ static void places(int64_t width, F f) {
    if constexpr (kElements > 0) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int64_t column = static_cast<int64_t>(step * kTeam + lane()) * N;
        if (column < width) f(step, column);
      }
    } else {
#pragma unroll 4
      for (int64_t column = int64_t{lane()} * N; column < width; column += int64_t{kTeam} * N)
        f(0, column);
    }
  }
};

// One row, as its team sees it.
template <class Kind>
class Row {
 public:
  using T = typename Kind::T;
  static constexpr int N = Kind::N;

  __device__ __forceinline__ Row(const T* x, int64_t width) : x_(x), width_(width) {
    if constexpr (Kind::kElements > 0)
      Kind::places(width, [&](int step, int64_t column) { held_[step] = get_raw<N>(x + column); });
  }
  __device__ __forceinline__ Floats<N> at(int step, int64_t column) const {
    if constexpr (Kind::kElements == 0) {
      return get<N>(x_ + column);
    } else {
      Floats<N> out;
#pragma unroll
      for (int i = 0; i < N; ++i) out.at[i] = load(held_[step].at[i]);
      return out;
    }
  }
  // Calls f(column, value) for every element of this thread, in the order of the columns.
  template <class F>
  __device__ __forceinline__ void each(F f) const {
    Kind::places(width_, [&](int step, int64_t column) {
      const Floats<N> v = at(step, column);
#pragma unroll
      for (int i = 0; i < N; ++i) f(column + i, v.at[i]);
    });
  }
  // The sum of f(column, value) over the row; every thread gets it. Neighbours are added in f32,
  // their sums as V.
  template <class V, class F>
  __device__ __forceinline__ V sum(F f) const {
    V total{};
    Kind::places(width_, [&](int step, int64_t column) {
      const Floats<N> v = at(step, column);
      float part = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) part += f(column + i, v.at[i]);
      total += static_cast<V>(part);
    });
    return Kind::sum(total);
  }
  // Writes y[column] = f(column, value). y may be the row itself.
  template <class F>
  __device__ __forceinline__ void map(T* y, F f) const {
    Kind::places(width_, [&](int step, int64_t column) {
      Floats<N> v = at(step, column);
#pragma unroll
      for (int i = 0; i < N; ++i) v.at[i] = f(column + i, v.at[i]);
      put<N>(y + column, v);
    });
  }

 private:
  const T* x_;
  int64_t width_;
  Vector<T, N> held_[Kind::kSteps > 0 ? Kind::kSteps : 1]{};
};

// Calls f(RowKind{}) with the kind that suits rows of activations T in `tensors`; see
// with_vectors().
template <class T, class F>
void with_row_kind(int64_t width, std::initializer_list<const Tensor*> tensors, F&& f) {
  with_vectors<T>(width, tensors, [&](auto n) {
    constexpr int N = n, kMost = N == 1 ? 8 : 32;  // single elements need more registers
    if (width <= 8 * kWarp)
      f(RowKind<T, N, 8, false>{});
    else if (width <= kMost * kWarp)
      f(RowKind<T, N, kMost, false>{});
    else if (width <= 16 * 256)
      f(RowKind<T, N, 16, true>{});
    else
      f(RowKind<T, N, 0, true>{});
  });
}

// with_row_kind() for work that reads rows only once: no row is held in registers.
template <class T, class F>
void with_pass_kind(int64_t width, std::initializer_list<const Tensor*> tensors, F&& f) {
  with_vectors<T>(width, tensors, [&](auto n) {
    constexpr int N = n;
    if (width <= 32 * kWarp)
      f(RowKind<T, N, 0, false>{});
    else
      f(RowKind<T, N, 0, true>{});
  });
}

// The number of blocks for rows that teams take in turn.
template <class Kind>
Grid grid_of_rows(Kind, int64_t rows) {
  const int64_t most = int64_t{multiprocessors()} * 64;
  return {as_blocks(std::min(ceil_div(rows, Kind::kTeams), most)), Kind::kThreads};
}

}  // namespace frugal::ops::cuda
