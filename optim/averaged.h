// Exponential averages of parameters, for evaluation, and an optimizer that keeps them.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "optim/optimizer.h"

namespace frugal::optim {

struct EmaOptions {
  double decay = 0.999;
  // Update t, counted from 0, uses min(decay, (1 + t) / (10 + t)), so that the first values are
  // soon forgotten.
  bool warm_up = true;
};

// The averages start as the values at construction, in category `optimizer`. Buffers, such as the
// statistics of batch norm, are not averaged. Not thread-safe.
// Ref: Polyak & Juditsky 1992; Tarvainen & Valpola 2017 (the decay's use in training).
class Ema {
 public:
  using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

  // Errors: decay outside [0, 1).
  Ema(std::vector<std::pair<std::string, Variable>> parameters, const EmaOptions& options);

  // A new average of these parameters, without updates.
  Ema anew() const { return {parameters_, options_}; }

  // Call it after each step: average += (1 - decay) (value - average).  Errors: called while
  // swapped.
  void update();
  // Takes back the count of the last update(), whose work was not done.
  void take_back() { --updates_; }
  int64_t updates() const { return updates_; }
  const Tensor& average(size_t parameter) const { return averages_[parameter]; }

  // For checkpoints: "ema/<parameter>" and "ema_updates" [] i64.
  NamedTensors state() const;
  // Errors: another set of names, wrong shapes or dtypes, called while swapped; then nothing is
  // changed.
  void load_state(const NamedTensors& state);

  // While a Swap lives, the parameters hold the averages. No optimizer may step meanwhile.
  class Swap {
   public:
    explicit Swap(Ema& ema);  // Errors: another Swap lives
    ~Swap();
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    Ema& ema_;
    std::vector<Tensor> values_;
  };

 private:
  std::vector<std::pair<std::string, Variable>> parameters_;
  std::vector<Tensor> averages_;
  EmaOptions options_;
  int64_t updates_ = 0;
  bool swapped_ = false;
};

// An optimizer that also keeps the average of the parameters over its steps.
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
