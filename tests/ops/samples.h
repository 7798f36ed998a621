// Inputs and comparisons that the tests of ops share.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/rng.h"
#include "ops/dense/copy.h"

namespace frugal::ops {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline constexpr DType kAllTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                      DType::i64, DType::i32, DType::u8,   DType::bool_};

inline Tensor normals(const Shape& shape, uint64_t seed, DType dtype = DType::f32, double scale = 1,
                      double shift = 0) {
  const Tensor x = Tensor::empty(shape, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<double>()[i] =
        shift + scale * static_cast<double>(normal({seed, 0}, static_cast<uint64_t>(i)));
  return cast(x, dtype);
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = contiguous(a), y = contiguous(b);
  return a.numel() == 0 || std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.nbytes())) == 0;
}

// The largest |a - b| / (1 + |b|); infinite where shapes differ or only one is NaN.
inline double error(const Tensor& a, const std::vector<double>& b) {
  const std::vector<double> x = a.to_vector();
  if (x.size() != b.size()) return kInf;
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) != std::isnan(b[i])) return kInf;
    if (std::isnan(x[i]) || x[i] == b[i]) continue;
    worst = std::max(worst, std::abs(x[i] - b[i]) / (1 + std::abs(b[i])));
  }
  return worst;
}

// Checks that f() throws an Error whose message has this part.
template <class F>
void fails(const char* message, F f) {
  CHECK_THROWS_WITH_AS(f(), doctest::Contains(message), Error);
}

// A view with gaps that holds what x holds: every other element of the last axis.
inline Tensor with_gaps(const Tensor& x) {
  Shape wide = x.shape();
  wide[x.dim() - 1] *= 2;
  const Tensor storage = Tensor::full(wide, 7, x.dtype());
  Shape strides = storage.strides();
  strides[x.dim() - 1] = 2;
  const Tensor view = storage.as_strided(x.shape(), strides, 0);
  copy_into(view, x);
  return view;
}

class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : previous_(num_threads()) { set_num_threads(threads); }
  ~ThreadsScope() { set_num_threads(previous_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int previous_;
};

}  // namespace frugal::ops
