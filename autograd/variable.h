// Variable: a Tensor that may take part in a graph. It is another type than Tensor, so that a
// kernel cannot touch the graph. A copy of a Variable is another handle to the same value and
// gradient.
#pragma once
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace frugal {

struct Node;

class GradAccumulator;

class Variable {
 public:
  Variable() = default;                                         // undefined
  explicit Variable(Tensor value, bool requires_grad = false);  // a leaf
  static Variable parameter(Tensor value);  // a leaf that requires grad, and is held
  static Variable constant(Tensor value);   // a leaf that requires none, and is held

  bool defined() const { return impl_ != nullptr; }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  int64_t size(int axis) const { return value().size(axis); }
  DType dtype() const { return value().dtype(); }
  Device device() const { return value().device(); }

  bool requires_grad() const;  // as a leaf, or because its producer has a gradient to compute
  bool is_held() const;        // its bytes outlive the step anyway, so saving them costs nothing
  void set_held();             // for a view of a held variable, which has the same bytes
  void set_requires_grad(bool requires_grad);  // leaves only
  const Tensor& grad() const;                  // undefined until a backward pass reached this leaf
  bool has_grad() const;
  void set_grad(Tensor grad);
  void zero_grad();                          // drops the gradient
  void set_value(Tensor value);              // leaves only; for loading and device moves
  Variable operator[](int64_t index) const;  // select(*this, 0, index), see autograd/operators.h
  Variable detach() const;  // a leaf with this value, without gradient; held if this is held

  const std::shared_ptr<Node>& producer() const;  // nullptr for a leaf
  // nullptr unless this is a leaf that requires a gradient.
  const std::shared_ptr<GradAccumulator>& accumulator() const;
  bool is_sole_handle() const { return impl_.use_count() == 1; }
  const void* identity() const { return impl_.get(); }  // equal for handles of one variable

 private:
  friend Variable make_output(Tensor value, std::shared_ptr<Node> producer);
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

using Variables = std::vector<Variable>;
using NamedVariables = std::vector<std::pair<std::string, Variable>>;

}  // namespace frugal
