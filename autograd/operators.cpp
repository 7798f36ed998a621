#include "autograd/operators.h"

#include <ostream>

#include "autograd/node.h"

namespace frugal {

Variable select(const Variable& x, int axis, int64_t index) {
  const Shape shape = x.value().select(axis, index).shape();  // with its errors
  if (index < 0) index += x.size(axis);
  return reshape(slice(x, axis, index, index + 1), shape);
}

Variable Variable::operator[](int64_t index) const { return select(*this, 0, index); }

std::string to_string(const Variable& x, const PrintOptions& options) {
  if (!x.defined()) return "an undefined variable";
  std::string text = to_string(x.value(), options);
  if (x.producer() != nullptr) return text + ", by " + x.producer()->op;
  return x.requires_grad() ? text + ", requires grad" : text;
}

std::ostream& operator<<(std::ostream& out, const Variable& x) { return out << to_string(x); }

}  // namespace frugal
