// Optimizer: updates parameters in place from their gradients.
#pragma once
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/variable.h"

namespace frugal {

namespace distributed {
class ShardedOptimizer;
}
namespace optim {
class Ema;
}

struct ParameterGroup {
  NamedVariables parameters;
  double lr_scale = 1;                      // multiplies the schedule's rate
  std::optional<double> weight_decay = {};  // without one: the options' of the optimizer
};

// What Module::parameters() gives: things with a name and a pointer to a Variable.
template <class P>
concept NamedParameters = requires(const P& parameters) {
  { parameters.begin()->name } -> std::convertible_to<std::string>;
  { *parameters.begin()->parameter } -> std::convertible_to<Variable>;
};

// Names and handles, as groups and decay_groups() take them.
template <NamedParameters P>
NamedVariables named_variables(const P& parameters) {
  NamedVariables all;
  for (const auto& p : parameters) all.emplace_back(p.name, *p.parameter);
  return all;
}

// All parameters in one group.
template <NamedParameters P>
std::vector<ParameterGroup> one_group(const P& parameters) {
  return {{named_variables(parameters), 1, {}}};
}

class Optimizer {
 public:
  using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

  virtual ~Optimizer() = default;
  // One update at learning rate `lr`, which is multiplied by lr_scale. Parameters without a
  // gradient do not change. Errors: a rate that is negative or not finite.
  virtual void step(double lr) = 0;
  // Drops the gradients of all its parameters.
  virtual void zero_grad() = 0;
  // Does for one parameter, whose gradient this is, what step() does for all. Returns false if the
  // parameter is none of the optimizer's. Errors: those of step().
  virtual bool step_leaf(const GradAccumulator& leaf, double lr) = 0;
  // The state for checkpoints, as named tensors in category `optimizer`. Empty before the first
  // step.
  virtual NamedTensors state() const = 0;
  // Errors: unexpected names or wrong shapes; then the optimizer is unchanged.
  virtual void load_state(const NamedTensors& state) = 0;
  // The part of state() that this process keeps, without asking other processes.
  virtual NamedTensors own_state() const { return state(); }

  // The averages of parameters, which are evaluated in their place. Null: there are none.
  virtual optim::Ema* averages() { return nullptr; }
  // The optimizer, or the one inside, that shares its state out among ranks. Null: none does.
  virtual distributed::ShardedOptimizer* sharded() { return nullptr; }

  // The momentum from the next step on; of Adam and its kin beta1. A schedule that cycles it
  // (Schedule::momentum) is followed by calling this before each step. Optimizers start with the
  // momentum of their options, and no state holds it.
  // Errors: an optimizer without a momentum; a value outside (0, 1).
  virtual void set_momentum(double /*momentum*/) {
    FRUGAL_CHECK(false,
                 "[optimizer] expected an optimizer with a momentum or a beta1, such as sgd or "
                 "adam, for a schedule that cycles it");
  }

  // A new optimizer with these options and parameters, before its first step, for steps on `meta`
  // (train/planning/meta_step.h). Null, the default: this optimizer cannot give one.
  virtual std::unique_ptr<Optimizer> without_state() const { return nullptr; }

  // Does the update of an element depend on the gradients and the state of that element alone, and
  // not on its place? Then a part of a parameter may be updated as a parameter of its own
  // (distributed/sharded_optimizer.h). Each tensor of the state has the shape of its parameter, or
  // [] and one value for all elements.
  virtual bool elementwise() const { return false; }

  // For steps that are captured (train/captured_step.h): does step() do the same work at every call
  // once its state exists? Arguments that kernels take late (core/cuda/cuda_late_kernel.h) may
  // differ.
  virtual bool capturable() const { return false; }
  // Takes back what the last step() counted, because its work was not done.
  // REQUIRES: capturable(); the gradients that step() found are still there.
  virtual void take_back() {}

 protected:
  static double checked_momentum(double momentum) {
    FRUGAL_CHECK(momentum > 0 && momentum < 1, "[optimizer] expected a momentum in (0, 1), got {}",
                 momentum);
    return momentum;
  }
};

}  // namespace frugal

namespace frugal::optim {

// Finds the parameter of an optimizer to which a leaf of the backward pass belongs.
// Parameters may be frozen and thawed at any time. A frozen parameter has no leaf. A thawed one has
// a new leaf, perhaps at the address of an old one. So each result is checked, and looked up again
// if it is out of date. Not thread-safe.
class LeafIndex {
 public:
  // `op` and `name` are for messages.  Errors: a parameter that was added before.
  void add(const char* op, const std::string& name, const Variable& parameter);
  // The number of the parameter in the order of add(), from 0. Nothing if the leaf belongs to none
  // of them.
  std::optional<size_t> find(const GradAccumulator& leaf);

 private:
  std::vector<Variable> parameters_;  // held so that their addresses are not used again
  std::unordered_map<const void*, size_t> by_identity_;
  std::unordered_map<const GradAccumulator*, size_t> by_leaf_;  // entries may be out of date
};

}  // namespace frugal::optim
