#include "optim/optimizer.h"

#include "core/error.h"

namespace frugal::optim {

void LeafIndex::add(const char* op, const std::string& name, const Variable& parameter) {
  FRUGAL_CHECK(parameter.defined(), "[{}] expected a parameter '{}', got an undefined one", op,
               name);
  FRUGAL_CHECK(by_identity_.emplace(parameter.identity(), parameters_.size()).second,
               "[{}] expected each parameter once, got '{}' again", op, name);
  parameters_.push_back(parameter);
}

std::optional<size_t> LeafIndex::find(const GradAccumulator& leaf) {
  const auto known = by_leaf_.find(&leaf);
  if (known != by_leaf_.end() && parameters_[known->second].accumulator().get() == &leaf)
    return known->second;
  by_leaf_.clear();
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (const auto& its = parameters_[i].accumulator(); its != nullptr)
      by_leaf_.emplace(its.get(), i);
  const auto found = by_leaf_.find(&leaf);
  if (found == by_leaf_.end()) return std::nullopt;
  return found->second;
}

}  // namespace frugal::optim
