// The loops of spmm over f32 and bf16, compiled once per instruction set and chosen at run time
// (see ops/simd/simd_loops.h).
#pragma once
#include <cstdint>

#include "ops/simd/simd_loops.h"

namespace frugal::ops::simd {

// Plain pointers to the tensors that ops/graph/spmm.h describes; null for those that are undefined.
struct Spmm {
  const int64_t* row_ptr;
  const int32_t* col;
  const float* value;
  const int64_t* entry_counts;
  Input x;  // [cols, width]; x, addend and y have one dtype
  int64_t width;
  int64_t stride;  // elements from one row of addend and of y to the next one
  bool mean;
  float factor;
  const float* bias;
  Input addend;
  float addend_factor;
  Output y;  // [rows, width]
};

// Computes y for rows [first, last).
void spmm_rows(const Spmm& a, int64_t first, int64_t last);
// sum [width]: only the entries [begin, end).
void spmm_piece(const Spmm& a, int64_t begin, int64_t end, float* sum);
// Computes y of a row whose sum came in pieces [pieces, width]; they are added in order.
void spmm_merge(const Spmm& a, int64_t row, const float* sums, int64_t pieces);

}  // namespace frugal::ops::simd
