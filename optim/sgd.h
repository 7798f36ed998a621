// Stochastic gradient descent with momentum, Nesterov's variant and weight decay, as PyTorch
// defines them. Ref: Sutskever et al. 2013.
#pragma once
#include "optim/leaf_index.h"
#include "optim/optimizer.h"
#include "optim/option_keys.h"

namespace frugal::optim {

struct SgdOptions {
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<options::Option<SgdOptions>> list() {
    return {{keys::kMomentum, &SgdOptions::momentum},
            {{"nesterov", options::range::flag(), "sgd, sgd_8bit: Nesterov's momentum."},
             &SgdOptions::nesterov}};
  }
};

class Sgd : public Optimizer {
 public:
  // Errors: momentum outside [0, 1), Nesterov without momentum, a negative weight decay, a
  // parameter that comes twice. state() and load_state(): a name that comes twice.
  explicit Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options = {});
  template <NamedParameters P>
  explicit Sgd(const P& parameters, const SgdOptions& options = {})
      : Sgd(one_group(parameters), options) {}
  void step(double lr) override;
  void zero_grad() override;
  bool step_leaf(const GradAccumulator& leaf, double lr) override;
  NamedTensors state() const override;  // "momentum/<parameter>"
  void load_state(const NamedTensors& state) override;
  std::unique_ptr<Optimizer> without_state() const override;
  void set_momentum(double momentum) override { options_.momentum = checked_momentum(momentum); }
  bool elementwise() const override { return true; }
  bool capturable() const override { return true; }  // step() keeps no count

 private:
  struct Slot {
    std::string name;
    Variable parameter;
    Tensor velocity;  // undefined before the first step and without momentum
    double lr_scale, weight_decay;
  };
  void update(const std::vector<Slot*>& slots, double lr);
  void check_names() const;  // Errors: a name that comes twice
  std::vector<Slot> slots_;
  LeafIndex slot_of_;
  SgdOptions options_;
};

// Makes two groups: parameters with `weight_decay`, and, if asked for, 1-D parameters (norms and
// biases) without.
std::vector<ParameterGroup> decay_groups(
    const std::vector<std::pair<std::string, Variable>>& parameters, double weight_decay,
    bool decay_one_dimensional);

}  // namespace frugal::optim
