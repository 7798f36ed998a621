// Averaged: an optimizer that also keeps the average of the parameters over its steps.
#pragma once
#include <memory>

#include "optim/ema.h"
#include "optim/optimizer.h"

namespace frugal::optim {

class Averaged : public Optimizer {
 public:
  // `parameters`: those of `inner`. Errors: those of Ema.
  Averaged(std::unique_ptr<Optimizer> inner,
           std::vector<std::pair<std::string, Variable>> parameters, const EmaOptions& options);

  void step(double lr) override;
  void zero_grad() override { inner_->zero_grad(); }
  bool step_leaf(const GradAccumulator& leaf, double lr) override;
  // The state of `inner` and of the averages.
  NamedTensors state() const override { return with_averages(inner_->state()); }
  void load_state(const NamedTensors& state) override;
  NamedTensors own_state() const override { return with_averages(inner_->own_state()); }
  Ema* averages() override { return &average_; }
  distributed::ShardedOptimizer* sharded() override { return inner_->sharded(); }
  std::unique_ptr<Optimizer> without_state() const override;
  void set_momentum(double momentum) override { inner_->set_momentum(momentum); }
  bool capturable() const override { return inner_->capturable(); }
  void take_back() override;

 private:
  NamedTensors with_averages(NamedTensors all) const;
  Averaged(std::unique_ptr<Optimizer> inner, Ema average);
  std::unique_ptr<Optimizer> inner_;
  Ema average_;
};

}  // namespace frugal::optim
