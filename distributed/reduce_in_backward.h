// ReduceInBackward: adds each gradient over the ranks in the backward pass, and hands it on.
#pragma once
#include <deque>
#include <memory>

#include "autograd/gradient.h"
#include "distributed/gradient_buckets.h"

namespace frugal::distributed {

// For updates in the backward pass (optim.in_backward): each gradient is summed in place, and then
// `inner` is called with its leaf, as backward() would call it in a process that has the whole
// batch. `inner` may update the parameter and drop the gradient. So at most `window` bytes of
// gradients live, and the one that came last. Sparse rows are made whole.
//
// Leaves are handed on in the order in which they come. When that happens depends on their bytes
// alone and not on timing. So `inner` may begin operations of all ranks, as
// ShardedOptimizer::step_leaf() does. Operations of one communicator run one after the other: with
// a channel of its own for the sums (Communicator::channel()), what `inner` begins does not wait
// for the sums of the leaves behind it.
// Thread safety: one thread.
class ReduceInBackward {
 public:
  // Leaves of other variables than `parameters` are left out, and `inner` is not called for them.
  // Errors, on all ranks: see check_same_parameters(); a parameter that comes twice; an empty
  // `inner`; a window below 0.
  ReduceInBackward(CommunicatorPtr communicator, NamedVariables parameters, LeafFn inner,
                   int64_t window = 25 << 20);

  // For the one backward pass of a step. With one rank it is `inner`.
  // REQUIRES: this outlives the backward pass.
  // Errors: leaves that come in another order on other ranks end the job. The message has their
  // names.
  LeafFn leaf_done();

  // Waits for all sums and calls `inner` for the leaves that are left.
  // Errors: ranks that were told of different numbers of leaves end the job.
  void finish();

  // What the last finished step did. A bucket is one gradient.
  using Step = GradientBuckets::Step;
  const Step& last() const { return last_; }

 private:
  struct Sum {
    std::shared_ptr<GradAccumulator> leaf;
    int64_t bytes = 0;
    Pending pending;
  };
  void hand_on_first();

  CommunicatorPtr communicator_;
  NamedVariables parameters_;
  LeafFn inner_;
  int64_t window_;
  optim::LeafIndex parameter_of_;
  std::deque<Sum> sums_;
  int64_t under_way_ = 0;  // bytes of sums_
  OperationTimes times_;
  Step now_, last_;
};

}  // namespace frugal::distributed
