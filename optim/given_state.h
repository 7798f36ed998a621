// GivenState: the tensors that a load_state() is given, each of which it takes once. Internal to
// optim.
#pragma once
#include <map>
#include <string>

#include "core/named_tensors.h"

namespace frugal::optim {

// REQUIRES: the state outlives it.
class GivenState {
 public:
  // op: for messages.
  GivenState(const char* op, const NamedTensors& state);

  bool has(const std::string& name) const { return given_.contains(name); }
  // Errors: none of that name; another shape or dtype.
  Tensor take(const std::string& name, const Shape& shape, DType dtype);
  // Errors: a tensor that was not taken.
  void check_all_taken() const;

 private:
  const char* op_;
  std::map<std::string, const Tensor*> given_;
};

}  // namespace frugal::optim
