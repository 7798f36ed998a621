// Batch norm over the batches of several processes.
#pragma once
#include <functional>

#include "core/tensor.h"

namespace frugal::ops {

// Brings the rows of all processes together: a row [k] f64 on the host becomes [processes, k], in
// an order that is the same on all processes.
using GatherRows = std::function<Tensor(const Tensor& row)>;

// While it lives, batch norms that this thread runs in training take their statistics over all
// rows of all processes, forward and backward. The gradients of weight and bias are those of this
// process's rows: who adds the gradients of all parameters over the processes adds them, too. All
// processes run the same batch norms in the same order. It holds for a forward pass and for its
// backward pass, with what they rebuild. A process may have no rows, where all together have two.
//
// On CUDA the statistics go through the host, so a step cannot be captured. On `meta` nothing is
// gathered.
// Ref: Chan et al. 1979, equation 2.1 (how counts, means and sums of squares are put together).
class SharedStatistics {
 public:
  explicit SharedStatistics(GatherRows gather);
  ~SharedStatistics();
  SharedStatistics(const SharedStatistics&) = delete;
  SharedStatistics& operator=(const SharedStatistics&) = delete;

 private:
  GatherRows gather_;
  const GatherRows* previous_;
};

// For batch norm. Tells whether a SharedStatistics lives and the device has values.
bool shares_statistics(Device device);
// mean and variance [C] f64 of these rows become those of all rows. Returns the number of all rows.
// REQUIRES: shares_statistics().
int64_t share_moments(const Tensor& mean, const Tensor& variance, int64_t rows);
// sums f64 of these rows become those of all rows. Returns the number of all rows.
// REQUIRES: shares_statistics().
int64_t share_sums(const Tensor& sums, int64_t rows);

}  // namespace frugal::ops
