// PerSample: a policy that knows each sample again in later epochs.
#pragma once
#include "core/tensor.h"

namespace frugal::compress {

class PerSample {
 public:
  virtual ~PerSample() = default;
  // The samples of the forward pass that comes next: indices in their data set, [N] i64 on the
  // host; undefined: not known. Errors: an index below 0.
  virtual void set_samples(const Tensor& samples) = 0;
};

}  // namespace frugal::compress
