#include "autograd/variable.h"

#include "autograd/node.h"

namespace frugal {

struct Variable::Impl {
  Tensor value;
  std::shared_ptr<Node> producer;
  std::shared_ptr<GradAccumulator> accumulator;
  bool is_held = false;
};

Variable::Variable(Tensor value, bool requires_grad) : impl_(std::make_shared<Impl>()) {
  impl_->value = std::move(value);
  set_requires_grad(requires_grad);
}

Variable Variable::parameter(Tensor value) {
  Variable variable(std::move(value), true);
  variable.impl_->is_held = true;
  return variable;
}

Variable Variable::constant(Tensor value) {
  Variable variable(std::move(value));
  variable.impl_->is_held = true;
  return variable;
}

Variable make_output(Tensor value, std::shared_ptr<Node> producer) {
  Variable variable(std::move(value));
  variable.impl_->producer = std::move(producer);
  return variable;
}

const Tensor& Variable::value() const {
  FRUGAL_CHECK(defined(), "[variable] expected a variable, got an undefined one");
  return impl_->value;
}

bool Variable::requires_grad() const {
  return defined() && (impl_->producer != nullptr || impl_->accumulator != nullptr);
}

bool Variable::is_held() const { return defined() && impl_->is_held; }
void Variable::set_held() { impl_->is_held = true; }

void Variable::set_requires_grad(bool requires_grad) {
  FRUGAL_CHECK(impl_->producer == nullptr, "[requires_grad] expected a leaf, got the output of {}",
               impl_->producer->op);
  if (!requires_grad) {
    impl_->accumulator.reset();
    return;
  }
  FRUGAL_CHECK(is_floating(impl_->value.dtype()),
               "[requires_grad] expected a floating tensor, got {}", describe(impl_->value));
  if (impl_->accumulator == nullptr) impl_->accumulator = std::make_shared<GradAccumulator>();
}

const Tensor& Variable::grad() const {
  static const Tensor none;
  return defined() && impl_->accumulator != nullptr ? impl_->accumulator->whole() : none;
}

bool Variable::has_grad() const {
  return defined() && impl_->accumulator != nullptr && impl_->accumulator->defined();
}

void Variable::set_grad(Tensor grad) {
  FRUGAL_CHECK(defined() && impl_->accumulator != nullptr,
               "[set_grad] expected a leaf that requires grad");
  impl_->accumulator->set(std::move(grad));
}

void Variable::zero_grad() {
  if (defined() && impl_->accumulator != nullptr) impl_->accumulator->set({});
}

void Variable::set_value(Tensor value) {
  FRUGAL_CHECK(defined() && impl_->producer == nullptr,
               "[set_value] expected a leaf, got the output of an op");
  impl_->value = std::move(value);
}

Variable Variable::detach() const {
  Variable same(value());
  same.impl_->is_held = impl_->is_held;
  return same;
}

const std::shared_ptr<Node>& Variable::producer() const {
  static const std::shared_ptr<Node> none;
  return defined() ? impl_->producer : none;
}

const std::shared_ptr<GradAccumulator>& Variable::accumulator() const {
  static const std::shared_ptr<GradAccumulator> none;
  return defined() ? impl_->accumulator : none;
}

}  // namespace frugal
