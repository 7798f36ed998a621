// LeafIndex: which of an optimizer's parameters a leaf of the backward pass belongs to.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/variable.h"

namespace frugal::optim {

// Parameters may be frozen and thawed at any time. A frozen parameter has no leaf, and a thawed one
// has a new leaf, perhaps at the address of an old one; so what is found is checked and, where it
// is out of date, looked up anew. Thread safety: none.
class LeafIndex {
 public:
  // `op`, `name`: for messages.  Errors: the same parameter again.
  void add(const char* op, const std::string& name, const Variable& parameter);
  // The parameter's number in the order of add(), from 0; nothing if the leaf is none of theirs.
  std::optional<size_t> find(const GradAccumulator& leaf);

 private:
  std::vector<Variable> parameters_;  // held, so that no address below is given away
  std::unordered_map<const void*, size_t> by_identity_;
  std::unordered_map<const GradAccumulator*, size_t> by_leaf_;  // perhaps out of date
};

}  // namespace frugal::optim
