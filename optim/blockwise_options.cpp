#include "optim/blockwise_options.h"

#include <algorithm>

#include "core/fnv.h"

namespace frugal::optim {

std::vector<std::string> embedding_names() { return {"embed", "wte.", "wpe."}; }

void check_blockwise_options(const char* op, const BlockwiseOptions& options) {
  FRUGAL_CHECK(options.least_elements >= 0, "[{}] expected least_elements of at least 0, got {}",
               op, options.least_elements);
}

bool is_blockwise(const BlockwiseOptions& options, const std::string& name,
                  const Variable& parameter) {
  const auto& texts = options.full_precision;
  const auto& tables = options.tables;
  return parameter.value().numel() >= options.least_elements &&
         std::find(tables.begin(), tables.end(), name) == tables.end() &&
         std::none_of(texts.begin(), texts.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

RngKey rounding_key(const BlockwiseOptions& options, const std::string& name, int64_t step) {
  Fnv1a hash;
  hash.add(name);
  return {options.seed ^ hash.value(), static_cast<uint64_t>(step)};
}

}  // namespace frugal::optim
