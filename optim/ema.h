// Ema: exponential averages of parameters, to evaluate with.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "autograd/variable.h"

namespace frugal::optim {

struct EmaOptions {
  double decay = 0.999;
  // The t-th update, from 0, uses min(decay, (1 + t) / (10 + t)), so that the start is forgotten.
  bool warm_up = true;
};

// The averages begin as the values at construction, in category `optimizer`. Buffers, such as the
// statistics of batch norm, are not averaged. Thread safety: none.
// Ref: Polyak & Juditsky 1992; Tarvainen & Valpola 2017 (the decay's use in training).
class Ema {
 public:
  using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

  // Errors: decay outside [0, 1).
  Ema(std::vector<std::pair<std::string, Variable>> parameters, const EmaOptions& options);

  // After each step: average += (1 - decay) (value - average).  Errors: while swapped.
  void update();
  void take_back() { --updates_; }  // the work of the last update() was not done
  int64_t updates() const { return updates_; }
  const Tensor& average(size_t parameter) const { return averages_[parameter]; }

  // For checkpoints: "ema/<parameter>" and "ema_updates" [] i64.
  NamedTensors state() const;
  // Errors: another set of names, wrong shapes or dtypes; nothing is changed then; while swapped.
  void load_state(const NamedTensors& state);

  // While it lives the parameters are the averages. Nobody may step an optimizer meanwhile.
  class Swap {
   public:
    explicit Swap(Ema& ema);  // Errors: swapped already
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

}  // namespace frugal::optim
