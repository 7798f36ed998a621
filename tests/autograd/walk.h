// What the walkers over the op table share.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/record.h"
#include "autograd/saved_tensor.h"
#include "bench/op_table/op_table.h"
#include "core/rng.h"
#include "ops/dense/copy.h"
#include "tests/stale_memory.h"

namespace frugal::walk {

using op_table::Case;
using op_table::Op;

// A fixed projection of the output, so that every element of the gradient is checked at once.
inline Tensor projection(const Tensor& y) {
  Tensor dy = Tensor::empty(y.shape());
  for (int64_t i = 0; i < y.numel(); ++i)
    dy.mut<float>()[i] =
        static_cast<float>(2 * static_cast<double>(uniform({99, 0}, static_cast<uint64_t>(i))) - 1);
  return to_device(ops::cast(dy, y.dtype()), y.device());
}

struct Result {
  std::vector<double> output;
  std::vector<std::vector<double>> grads;
};

// Runs forward and backward of `f` on `inputs` under `policy`. `stale`: on memory that held NaN.
inline Result run(const std::function<Variable(const Variables&)>& f, Variables inputs,
                  SavePolicy* policy = nullptr, bool stale = true) {
  for (Variable& x : inputs) x.zero_grad();
  Result result;
  Variable y;
  if (stale) frugal_test::leave_nan_behind();
  {
    PolicyScope scope(policy);
    y = f(inputs);
  }
  result.output = y.value().to_vector();
  if (stale) frugal_test::leave_nan_behind();
  if (y.producer() != nullptr)
    backward(y, projection(y.value()), {}, policy ? policy->observer() : nullptr);
  for (const Variable& x : inputs)
    result.grads.push_back(x.grad().defined() ? x.grad().to_vector() : std::vector<double>{});
  return result;
}

inline double largest(const std::vector<double>& v) {
  double m = 0;
  for (double x : v) m = std::max(m, std::abs(x));
  return m;
}

inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double m = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    m = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(m, d);
  }
  return m;
}

// Checks output and gradients. The tolerance is relative to the largest element, or to 1.
inline void compare(const Result& expected, const Result& got, double tolerance) {
  const auto near = [&](const std::vector<double>& a, const std::vector<double>& b) {
    CHECK(distance(a, b) <= tolerance * std::max(1.0, largest(a)));
  };
  near(expected.output, got.output);
  REQUIRE(expected.grads.size() == got.grads.size());
  for (size_t k = 0; k < expected.grads.size(); ++k) {
    CAPTURE(k);
    near(expected.grads[k], got.grads[k]);
  }
}

// Calls f(op, case) for every case of every row, with both names in the failure's message.
template <class F>
void each_case(F f) {
  for (const Op& op : op_table::rows())
    for (const Case& c : op.cases) {
      CAPTURE(op.name);
      CAPTURE(c.name);
      f(op, c);
    }
}

inline int64_t live_bytes(Device device = kCpu) {
  const MemoryReport report = allocator(device).report();
  return report.of(Category::activation) + report.of(Category::packed);
}

}  // namespace frugal::walk
