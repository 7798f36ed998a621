// Budget: how much memory a run may take, and how that is written.
#pragma once
#include <cstdint>
#include <string>

namespace frugal::train {

// What compression.memory_budget says: bytes ("2 GiB", "500 MB"), or a share of what this run takes
// with everything raw ("1/6", which may be written "6x"). It limits the peak, or with "
// activations" what is kept when backward begins ("13 MiB activations", "1/16 activations").
struct Budget {
  int64_t bytes = 0;
  double share = 0;  // instead of bytes, where not 0
  bool activations = false;
};
// Errors: OptionError, which names `path`.
Budget parse_budget(const std::string& text, const std::string& path);

}  // namespace frugal::train
