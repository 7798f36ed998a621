// Adjustable: a policy that can keep tensors finer or coarser while a run goes on, by one number,
// so that who measures what compression adds to gradients can steer it (optim/variance_guard.h).
#pragma once

namespace frugal::compress {

// Fineness is in bits: from b to b + 1 the variance that rounding adds falls by about ((2^(b+1) -
// 1) / (2^b - 1))^2. What it is exactly, each policy says.
class Adjustable {
 public:
  struct Range {
    double least = 1, most = 16, step = 1;
  };
  virtual ~Adjustable() = default;
  virtual double fineness() const = 0;  // 0: nothing is rounded at random, so there is none to set
  virtual Range fineness_range() const = 0;
  // From the next step on. Returns what it is then: less than `bits` where a budget forbids more.
  // REQUIRES: no graph of this policy is alive. Errors: outside the range; a policy without one.
  virtual double set_fineness(double bits) = 0;
};

}  // namespace frugal::compress
