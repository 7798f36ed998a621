#include "optim/given_state.h"

namespace frugal::optim {

GivenState::GivenState(const char* op, const NamedTensors& state) : op_(op) {
  for (const auto& [name, tensor] : state) given_[name] = &tensor;
}

Tensor GivenState::take(const std::string& name, const Shape& shape, DType dtype) {
  const auto found = given_.find(name);
  FRUGAL_CHECK(found != given_.end(), "[{}] expected a state with '{}', got none", op_, name);
  const Tensor& tensor = *found->second;
  FRUGAL_CHECK(tensor.shape() == shape && tensor.dtype() == dtype,
               "[{}] expected '{}' to be {} {}, got {}", op_, name, shape, name_of(dtype),
               describe(tensor));
  given_.erase(found);
  return tensor;
}

void GivenState::check_all_taken() const {
  FRUGAL_CHECK(given_.empty(), "[{}] the state has an unexpected entry '{}'", op_,
               given_.begin()->first);
}

}  // namespace frugal::optim
