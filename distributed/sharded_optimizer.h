// ShardedOptimizer: each rank keeps the optimizer's state of a part of the parameters, and updates
// that part. Ref: Rajbhandari et al. 2020 (ZeRO), stages 1 and 2.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "distributed/communicator.h"
#include "optim/optimizer.h"

namespace frugal::distributed {

class GradientBuckets;

// The parameters' elements are shared out evenly. Where the optimizer is elementwise
// (Optimizer::elementwise()), a rank owns a range of the elements of all parameters, one after the
// other: the states of two ranks differ by the bytes of 16 elements. Else it owns whole parameters,
// because their norms or rows are needed: the largest parameter goes first, each to the rank that
// has least.
//
// Stage 1: gradients are whole on all ranks, and equal there, as GradientBuckets makes them.
// Stage 2: a rank has the gradients of its own parts alone, and whole ones stay undefined. They
// come from GradientBuckets with owners(), through take_gradients(), or one by one through
// set_part_gradient(). Parameters are whole on all ranks in both.
//
// The bits of parameters and state are those of one optimizer that is not sharded, which has the
// same gradients. Only the joint norm differs: here it is a sum over parts, so it is equal on all
// ranks and differs from optim::grad_norm() by the rounding of f64. So clipping by it may change
// the last bit of a gradient.
//
// All ranks call step(), step_leaf(), state(), load_state() and the norms together. An optimizer
// that others read from, such as optim::Averaged, goes around this one and not inside. Thread
// safety: one thread.
class ShardedOptimizer final : public Optimizer {
 public:
  // Makes the optimizer that is sharded. It is called with no parameters first, and then with the
  // part of this rank: ranges of parameters are parameters of one axis, with the names of the
  // whole ones.
  using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterGroup>& groups)>;
  // Errors: those of `make`, a parameter that comes twice or is not contiguous; on all ranks, other
  // parameters than on rank 0.
  ShardedOptimizer(CommunicatorPtr communicator, const std::vector<ParameterGroup>& groups,
                   const Make& make);

  // Updates this rank's part, and then brings all parts to all ranks.
  void step(double lr) override;
  void zero_grad() override;
  bool step_leaf(const GradAccumulator& leaf, double lr) override;
  // The state of all ranks, as one optimizer that is not sharded would give it. A checkpoint does
  // not tell how many ranks wrote it. It takes the memory of the whole state on each rank while it
  // lives.
  NamedTensors state() const override;
  NamedTensors own_state() const override { return inner_->state(); }
  ShardedOptimizer* sharded() override { return this; }
  // Takes the whole state and keeps the part of this rank.
  // Errors, on all ranks: those of the inner optimizer on any rank; then nothing is changed.
  void load_state(const NamedTensors& state) override;
  void set_momentum(double momentum) override { inner_->set_momentum(momentum); }
  bool elementwise() const override { return inner_->elementwise(); }

  // The elements of a parameter that each rank owns. `parameter`: in the order of the groups.
  const Bounds& bounds(size_t parameter) const { return parameters_[parameter].bounds; }
  // bounds() of parameters in another order, for GradientBuckets.  Errors: a parameter that this
  // optimizer does not have.
  std::vector<Bounds> owners(const NamedVariables& parameters) const;

  // This rank's part of the gradient of a parameter: as many elements as it owns, or undefined if
  // that is none. It is handed over: functions below may write it. All ranks call this for the same
  // parameters. zero_grad() and step() drop the gradients.
  // Errors: another number of elements or dtype.
  void set_part_gradient(size_t parameter, Tensor part);
  // set_part_gradient() of all parameters that any rank has a gradient of. Does nothing without
  // owners, or with one rank: then gradients are whole.  Errors: other parameters than its own.
  void take_gradients(GradientBuckets& buckets);

  // For each parameter the sum of squares of the gradient of this rank's part, which is what step()
  // uses. Does not ask the other ranks. 0 where this rank owns nothing, there is no gradient, or on
  // `meta`.
  std::vector<double> part_squares() const;
  // The joint 2-norm of the gradients of all parameters, and that of each of them, equal on all
  // ranks. All ranks call these together.
  double gradient_norm() const;
  std::vector<double> gradient_norms() const;
  // The norms of parameters in another order.  Errors: as owners().
  std::vector<double> gradient_norms(const NamedVariables& parameters) const;
  // Multiplies the gradients of this rank's parts.
  void scale_gradients(double factor) const;
  // Does what optim::clip_grad_norm() does: scales the parts so that gradient_norm() is at most
  // max_norm, and returns the norm before that. If it is not finite, nothing changes.  Errors:
  // max_norm <= 0.
  double clip_gradient_norm(double max_norm) const;
  // Limits each element of the parts to [-bound, bound].  Errors: bound <= 0.
  void clip_gradient_value(double bound) const;

 private:
  struct Parameter {
    std::string name;
    Variable whole;
    Bounds bounds;
    Variable mine;       // shares the bytes of `whole`; undefined if this rank owns nothing of it
    Range range;         // elements that this rank owns
    bool given = false;  // its gradient came in parts
    bool is_split() const;
    int owner() const;  // REQUIRES: !is_split()
  };
  void share_ranges();
  void share_wholes();
  void lend_gradient(Parameter& parameter) const;
  // This rank's part of the gradient; undefined: there is none.
  Tensor part_of(const Parameter& parameter) const;
  void gather(const std::vector<size_t>& parameters) const;
  const Parameter* find(const std::string& entry) const;  // the parameter of a state's entry
  size_t number_of(const std::string& name) const;

  CommunicatorPtr communicator_;
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, size_t> numbers_;  // numbers of the parameters by name
  optim::LeafIndex parameter_of_;
  std::unique_ptr<Optimizer> inner_;
};

}  // namespace frugal::distributed
