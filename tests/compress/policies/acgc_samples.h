// Options and distances that the tests of AC-GC share.
#pragma once
#include "compress/policies/acgc_policy.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/sgd.h"

namespace frugal::compress {

inline double squares(const Tensor& x) { return ops::sum_of_squares(ops::contiguous(x)); }

inline double distance2(const Tensor& a, const Tensor& b) {
  double sum = 0;
  const auto x = a.to_vector(), y = b.to_vector();
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sum;
}

inline AcgcOptions small_acgc(int start_bits = AcgcOptions{}.start_bits) {
  AcgcOptions options;
  options.keep.min_elements = 0;
  options.keep.recipes = false;
  options.rounding = Rounding::nearest;
  options.interval = 2;
  options.start_bits = start_bits;
  return options;
}

}  // namespace frugal::compress
