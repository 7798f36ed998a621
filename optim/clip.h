// Clipping and scaling of gradients.
#pragma once
#include <vector>

#include "autograd/variable.h"

namespace frugal::optim {

// Scales all gradients so that their joint 2-norm is at most max_norm. Returns the norm before
// that. If the norm is not finite, nothing changes and the caller decides.  Errors: max_norm <= 0.
double clip_grad_norm(const std::vector<Variable>& parameters, double max_norm);

// Limits each gradient element to [-bound, bound].  Errors: bound <= 0.
void clip_grad_value(const std::vector<Variable>& parameters, double bound);

// Multiplies all gradients by a number.
void scale_grads(const std::vector<Variable>& parameters, double factor);

// The joint 2-norm of all gradients.
double grad_norm(const std::vector<Variable>& parameters);

// The joint 2-norm as [] f64 on the device of the gradients, so that the host need not wait for it.
// If max_norm is above 0, it scales as clip_grad_norm() does.
Tensor clip_grad_norm_there(const std::vector<Variable>& parameters, double max_norm);

}  // namespace frugal::optim
