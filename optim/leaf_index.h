// LeafIndex: finds the parameter of an optimizer to which a leaf of the backward pass belongs.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/variable.h"

namespace frugal::optim {

// Parameters may be frozen and thawed at any time. A frozen parameter has no leaf. A thawed one has
// a new leaf, perhaps at the address of an old one. So each result is checked, and looked up again
// if it is out of date. Not thread-safe.
class LeafIndex {
 public:
  // `op` and `name` are for messages.  Errors: a parameter that was added before.
  void add(const char* op, const std::string& name, const Variable& parameter);
  // The number of the parameter in the order of add(), from 0. Nothing if the leaf belongs to none
  // of them.
  std::optional<size_t> find(const GradAccumulator& leaf);

 private:
  std::vector<Variable> parameters_;  // held so that their addresses are not used again
  std::unordered_map<const void*, size_t> by_identity_;
  std::unordered_map<const GradAccumulator*, size_t> by_leaf_;  // entries may be out of date
};

}  // namespace frugal::optim
