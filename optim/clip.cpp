#include "optim/clip.h"

#include <cmath>

#include "autograd/gradient.h"
#include "ops/inplace.h"
#include "ops/sgd.h"

namespace frugal::optim {

namespace {

std::vector<Tensor> gradients_of(const std::vector<Variable>& parameters) {
  std::vector<Tensor> gradients;
  for (const Variable& p : parameters)
    if (p.has_grad()) gradients.push_back(p.accumulator()->values());
  return gradients;
}

}  // namespace

double grad_norm(const std::vector<Variable>& parameters) {
  return std::sqrt(ops::sum_of_squares(gradients_of(parameters)));
}

double clip_grad_norm(const std::vector<Variable>& parameters, double max_norm) {
  FRUGAL_CHECK(max_norm > 0, "[clip_grad_norm] expected a norm above 0, got {}", max_norm);
  const double norm = grad_norm(parameters);
  if (std::isfinite(norm) && norm > max_norm)
    ops::scale_all(gradients_of(parameters), max_norm / (norm + 1e-6));
  return norm;
}

void clip_grad_value(const std::vector<Variable>& parameters, double bound) {
  FRUGAL_CHECK(bound > 0, "[clip_grad_value] expected a bound above 0, got {}", bound);
  for (const Variable& p : parameters)
    if (p.has_grad()) ops::clip_inplace(p.accumulator()->values(), bound);
}

}  // namespace frugal::optim
