// How far f32 may be from f64: bounds for tests. They follow from the format and from how many
// terms are added, so that they hold for every order of additions: for every instruction set, every
// library and any number of threads.
//
// A sum of n terms in any order has an error of at most about n u sum|t|, where u is the unit
// roundoff (Higham 2002, section 3.1). Rounding errors of independent terms add up as a random
// walk: about sqrt(n) u sum|t|, and hardly ever more than a small multiple of it (Higham & Mary
// 2019, theorem 3.1). For terms of mean 0 the sum itself has the size sqrt(n), and its partial sums
// do.
#pragma once
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace frugal_test {

// Half of the distance from 1 to the next number.
inline double unit_roundoff(frugal::DType dtype = frugal::DType::f32) {
  using frugal::DType;
  const int digits = dtype == DType::f64    ? 53
                     : dtype == DType::f32  ? 24
                     : dtype == DType::f16  ? 11
                     : dtype == DType::bf16 ? 8
                                            : 53;
  return std::ldexp(1.0, -digits);
}

// What a bound allows beyond the size that is expected. A sum one after the other of independent
// terms has 0.4 sqrt(n) u on average; factors and conversions around it round, too.
inline constexpr double kRoundingSafety = 4;

// Bounds the error of a sum of n independent terms of mean 0, relative to the size of the sum: for
// the distance of two vectors of such sums over the norm of one. Products count as terms.
inline double sum_bound(int64_t n, frugal::DType dtype = frugal::DType::f32) {
  return kRoundingSafety * std::sqrt(static_cast<double>(n) + 1) * unit_roundoff(dtype);
}

// Bounds the absolute error of one such sum, where the terms have the size `term`: the largest of
// many sums is some times as large as usual, and so may its error be.
inline double largest_bound(int64_t n, double term = 1, frugal::DType dtype = frugal::DType::f32) {
  return kRoundingSafety * (static_cast<double>(n) + 4) * unit_roundoff(dtype) * term;
}

// Bounds the relative error of k roundings in a row: of products, quotients and conversions without
// a sum.
inline double rounding_bound(int64_t k, frugal::DType dtype = frugal::DType::f32) {
  return static_cast<double>(k) * unit_roundoff(dtype) * 1.01;
}

// Bounds an op that stores bf16 and adds in f32, for its output and its gradients relative to the
// largest element: eight roundings to bf16, of what it reads, of what it keeps and of what it
// gives. The errors of its sums are far below.
inline double bf16_bound() { return rounding_bound(8, frugal::DType::bf16); }

}  // namespace frugal_test
