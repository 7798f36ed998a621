// GradientExchange: makes a step's gradients those of all ranks.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "autograd/engine.h"
#include "models/module.h"
#include "train/ranks/ranks.h"

namespace frugal::distributed {
class GradientBuckets;
class ReduceInBackward;
class ShardedOptimizer;
}  // namespace frugal::distributed

namespace frugal::train {

// A step is: backward passes, the last of them with leaf_done(); finish(); scale() and norm(); then
// the update. With one rank, gradients stay what they are. Thread safety: one thread.
class GradientExchange {
 public:
  // in_backward: parameters are updated as soon as their gradients are complete. `optimizer` must
  // outlive this. seed: the rounding of codes between ranks draws from it.
  // Errors, on all ranks: other parameters than on rank 0; OptionError for sharded gradients
  // without a ShardedOptimizer, or codes with in_backward.
  GradientExchange(const Ranks& ranks, Module& model, Optimizer& optimizer,
                   const RanksOptions& options, bool in_backward, uint64_t seed);
  ~GradientExchange();

  // Says which parameters are trained. Call it again when others are.
  void take_parameters_of(Module& model);

  // What the last backward pass of a step calls. It may be left out, as it must be with
  // checkpointed blocks, but not with in_backward. `inner`: with in_backward, it is called with
  // each leaf whose gradient is that of all ranks; else empty.
  LeafFn leaf_done(LeafFn inner);
  // Makes gradients the sums over all ranks: whole on each rank, or with sharded gradients the
  // rank's parts in the optimizer.
  void finish();

  // These work on the gradients of `parameters`, wherever they are.
  void scale(const std::vector<Variable>& parameters, double factor);
  // The joint 2-norm. If it is above `limit`, unless that is 0, gradients are scaled down to it.
  double norm(const std::vector<Variable>& parameters, double limit);
  // The norm of each of the parameters' gradients; empty where there is none. All ranks call it.
  std::vector<std::optional<double>> norms(const std::vector<Variable>& parameters) const;

  // What codes lost so far (distributed::GradientBuckets::state()). All ranks call these together.
  NamedTensors state() const;
  void load_state(const NamedTensors& state);

  // Counts over all steps so far. communication: seconds in which gradients are summed. waiting:
  // seconds in which this rank waits for sums.
  double communication() const { return communication_; }
  double waiting() const { return waiting_; }
  int64_t bytes() const { return bytes_; }            // bytes of the gradients that were summed
  int64_t sent_bytes() const { return sent_bytes_; }  // bytes that this rank sent

 private:
  bool shares_gradients() const;
  distributed::CommunicatorPtr communicator_, sums_;
  RanksOptions options_;
  bool in_backward_;
  uint64_t seed_;
  distributed::ShardedOptimizer* sharded_;  // null: the optimizer is not sharded
  std::unique_ptr<distributed::GradientBuckets> buckets_;
  std::unique_ptr<distributed::ReduceInBackward> reduced_;
  LeafFn inner_;  // what leaf_done() got for this step
  double communication_ = 0, waiting_ = 0;
  int64_t bytes_ = 0, sent_bytes_ = 0;
};

}  // namespace frugal::train
