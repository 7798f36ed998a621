#include "optim/clip.h"

#include <cmath>

#include "ops/inplace.h"
#include "ops/sgd.h"

namespace frugal::optim {

double grad_norm(const std::vector<Variable>& parameters) {
  double sum = 0;
  for (const Variable& p : parameters)
    if (p.grad().defined()) sum += ops::sum_of_squares(p.grad());
  return std::sqrt(sum);
}

double clip_grad_norm(const std::vector<Variable>& parameters, double max_norm) {
  FRUGAL_CHECK(max_norm > 0, "[clip_grad_norm] expected a norm above 0, got {}", max_norm);
  const double norm = grad_norm(parameters);
  if (std::isfinite(norm) && norm > max_norm)
    for (const Variable& p : parameters)
      if (p.grad().defined()) ops::scale_inplace(p.grad(), max_norm / (norm + 1e-6));
  return norm;
}

void clip_grad_value(const std::vector<Variable>& parameters, double bound) {
  FRUGAL_CHECK(bound > 0, "[clip_grad_value] expected a bound above 0, got {}", bound);
  for (const Variable& p : parameters)
    if (p.grad().defined()) ops::clip_inplace(p.grad(), bound);
}

}  // namespace frugal::optim
