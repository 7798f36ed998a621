#include "optim/blockwise_options.h"

#include <algorithm>

namespace frugal::optim {
namespace {

// FNV-1a. It is the same on every machine, unlike std::hash.
uint64_t hash(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace

void check_blockwise_options(const char* op, const BlockwiseOptions& options) {
  FRUGAL_CHECK(options.least_elements >= 0, "[{}] expected least_elements of at least 0, got {}",
               op, options.least_elements);
}

bool is_blockwise(const BlockwiseOptions& options, const std::string& name,
                  const Variable& parameter) {
  const auto& names = options.full_precision;
  return parameter.value().numel() >= options.least_elements &&
         std::none_of(names.begin(), names.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

RngKey rounding_key(const BlockwiseOptions& options, const std::string& name, int64_t step) {
  return {options.seed ^ hash(name), static_cast<uint64_t>(step)};
}

}  // namespace frugal::optim
