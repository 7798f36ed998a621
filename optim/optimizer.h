// Optimizer: updates parameters in place from their gradients.
#pragma once
#include <string>
#include <vector>

#include "autograd/variable.h"

namespace frugal {

struct ParameterGroup {
  std::vector<std::pair<std::string, Variable>> parameters;
  double lr_scale = 1;  // multiplies the schedule's rate
  double weight_decay = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update at learning rate `lr` (before lr_scale); parameters without a gradient are left
  // alone.
  virtual void step(double lr) = 0;
  // State for checkpoints: names and tensors, empty before the first step. Errors (load): missing,
  // unexpected, wrong shape.
  virtual std::vector<std::pair<std::string, Tensor>> state() const = 0;
  virtual void load_state(const std::vector<std::pair<std::string, Tensor>>& state) = 0;
};

}  // namespace frugal
