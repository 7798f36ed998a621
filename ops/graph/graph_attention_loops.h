// The loops of graph attention over entries [begin, end) of one row: f64 plain, f32 compiled once
// per instruction set and chosen at run time (see ops/simd/simd_loops.h).
#pragma once
#include <cstdint>

#include "core/rng.h"

namespace frugal::ops::simd {

inline constexpr int64_t kMaxHeads = 128;

// Plain pointers to the tensors that ops/graph/graph_attention.h describes; null for those that a
// loop does not need.
template <class T>
struct GraphAttention {
  const int64_t* row_ptr;
  const int32_t* col;
  const int32_t* position;  // [entries]: the position in by_row of each entry of by_col
  int64_t heads, width;
  const T *h, *a_src, *a_dst;
  T slope;
  bool drops;
  RngKey key;
  uint32_t bound;           // 24-bit words from here on are kept
  T scale;                  // kept coefficients are multiplied by this
  const T* lse = nullptr;   // [V, heads]
  const T* dy = nullptr;    // [V, heads, width]
  const T* mean = nullptr;  // [V, heads]: sum of c_e <dy[i], h[j]> over the edges into i
};

// out [2, heads]: the largest logit and the sum of exp(logit - largest). REQUIRES: begin < end.
void attention_sums(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                    float* out);
void attention_sums(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                    double* out);
// out [heads, width]: the sum of c_e h[j].
void attention_values(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out);
void attention_values(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out);
// out [3, heads]: sums over the edges into `row` of c g, l c g and l p, where g = <dy[i], h[j]>,
// p is the coefficient before dropout and l the slope at its logit.
void attention_target(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out);
void attention_target(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out);
// Takes entries of by_col. out [heads, width] and then [heads]: the sums over the edges from `row`
// of c dy[i] and of l (c g - p mean[i]).
void attention_source(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out);
void attention_source(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out);

}  // namespace frugal::ops::simd
