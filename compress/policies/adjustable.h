// Adjustable: a policy that one number makes finer or coarser while a run goes on. The variance
// guard (optim/variance_guard.h) sets it by how much compression adds to the gradient's variance.
#pragma once

namespace frugal::compress {

// Fineness is in bits: from b to b + 1 the variance that rounding adds falls by about ((2^(b+1) -
// 1) / (2^b - 1))^2. Each policy says what exactly its fineness is.
class Adjustable {
 public:
  struct Range {
    double least = 1, most = 16, step = 1;
  };
  virtual ~Adjustable() = default;
  virtual double fineness() const = 0;  // 0: nothing is rounded at random, so it cannot be set
  virtual Range fineness_range() const = 0;
  // From the next step on. Returns the fineness from then on, which is less than `bits` where a
  // budget forbids more.
  // REQUIRES: no graph of this policy is alive. Errors: outside the range; a policy without one.
  virtual double set_fineness(double bits) = 0;
};

}  // namespace frugal::compress
