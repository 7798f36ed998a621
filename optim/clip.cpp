#include "optim/clip.h"

#include "autograd/gradient.h"
#include "ops/dense/inplace.h"
#include "ops/optimizer/clip.h"

namespace frugal::optim {

namespace {

std::vector<Tensor> gradients_of(const std::vector<Variable>& parameters) {
  std::vector<Tensor> gradients;
  for (const Variable& p : parameters)
    if (p.has_grad()) gradients.push_back(p.accumulator()->values());
  return gradients;
}

double number_of(const Tensor& norm) { return norm.device() == kMeta ? 0 : norm.item(); }

}  // namespace

Tensor clip_grad_norm_there(const std::vector<Variable>& parameters, double max_norm) {
  const std::vector<Tensor> gradients = gradients_of(parameters);
  const Tensor norm = ops::joint_norm(gradients);
  if (max_norm > 0) ops::clip_to(gradients, norm, max_norm);
  return norm;
}

double grad_norm(const std::vector<Variable>& parameters) {
  return number_of(clip_grad_norm_there(parameters, 0));
}

double clip_grad_norm(const std::vector<Variable>& parameters, double max_norm) {
  FRUGAL_CHECK(max_norm > 0, "[clip_grad_norm] expected a norm above 0, got {}", max_norm);
  return number_of(clip_grad_norm_there(parameters, max_norm));
}

void clip_grad_value(const std::vector<Variable>& parameters, double bound) {
  FRUGAL_CHECK(bound > 0, "[clip_grad_value] expected a bound above 0, got {}", bound);
  for (const Variable& p : parameters)
    if (p.has_grad()) ops::clip_inplace(p.accumulator()->values(), bound);
}

void scale_grads(const std::vector<Variable>& parameters, double factor) {
  for (const Variable& p : parameters)
    if (p.has_grad()) ops::scale_inplace(p.accumulator()->values(), factor);
}

}  // namespace frugal::optim
