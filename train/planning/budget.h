// Budget: how much memory a run may take, and how that is written.
#pragma once
#include <cstdint>
#include <string>

namespace frugal::train {

// What compression.memory_budget says: bytes ("2 GiB", "500 MB"), or a share of what the same run
// takes with everything raw ("1/6", or the same as "6x"); of the peak, or with " activations" of
// what is kept when backward begins ("13 MiB activations", "1/16 activations").
struct Budget {
  int64_t bytes = 0;
  double share = 0;  // instead of bytes, where not 0
  bool activations = false;
};
// Errors: OptionError, which names `path`.
Budget parse_budget(const std::string& text, const std::string& path);

}  // namespace frugal::train
