// ShardedOptimizer: each rank keeps the optimizer's state of a part of the parameters, and updates
// that part. Ref: Rajbhandari et al. 2020 (ZeRO), stage 1.
#pragma once
#include <functional>
#include <memory>

#include "distributed/communicator.h"
#include "optim/leaf_index.h"
#include "optim/optimizer.h"

namespace frugal::distributed {

// The parameters' elements are shared out evenly. Where the optimizer is elementwise
// (Optimizer::elementwise()), a rank owns a range of the elements of all parameters, one after the
// other: the states of two ranks differ by the bytes of 16 elements. Else it owns whole parameters,
// because their norms or rows are needed: the largest parameter goes first, each to the rank that
// has least.
//
// Parameters and gradients are whole on all ranks. The gradients must be equal there, as
// GradientBuckets makes them. Then the bits of parameters and state are those of one optimizer that
// is not sharded.
//
// All ranks call step(), step_leaf(), state() and load_state() together. An optimizer that others
// read from, such as optim::Averaged, goes around this one and not inside.
// Thread safety: one thread.
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
  // Takes the whole state and keeps the part of this rank.
  // Errors, on all ranks: those of the inner optimizer on any rank; then nothing is changed.
  void load_state(const NamedTensors& state) override;
  bool elementwise() const override { return inner_->elementwise(); }

  // The elements of a parameter that each rank owns. `parameter`: in the order of the groups.
  const Bounds& bounds(size_t parameter) const { return parameters_[parameter].bounds; }

 private:
  struct Parameter {
    std::string name;
    Variable whole;
    Bounds bounds;
    Variable mine;  // shares the bytes of `whole`; undefined if this rank owns nothing of it
    Range range;    // of this rank
    bool is_split() const;
    int owner() const;  // REQUIRES: !is_split()
  };
  void share_ranges();
  void share_wholes();
  void lend_gradient(Parameter& parameter) const;
  void gather(const std::vector<size_t>& parameters) const;
  const Parameter* find(const std::string& entry) const;  // the parameter of a state's entry

  CommunicatorPtr communicator_;
  std::vector<Parameter> parameters_;
  optim::LeafIndex parameter_of_;
  std::unique_ptr<Optimizer> inner_;
};

}  // namespace frugal::distributed
