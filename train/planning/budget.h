// Budget: how much memory a run may take, how that is written, and what a plan for it says.
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

// A plan in numbers.
struct PlanReport {
  const char* kind = "";  // plain, exact or mixed
  int64_t limit_bytes = 0;
  bool of_activations = false;  // the limit is one of kept activations, not of the peak
  int64_t peak_bytes = 0, reserve_bytes = 0, activation_bytes = 0;
  double predicted_variance = 0, average_bits = 0;
  int64_t tensors = 0, raw_tensors = 0, kept_recipes = 0;
  int64_t entropy_saved_bytes = 0;
  uint64_t moved_before = 0;
  int64_t slice_bytes = 0;
  int waiting_bits = 0;
  int64_t checkpointed_blocks = 0;  // kAllBlocks: all
  int64_t margin_bytes = 0;
  bool feasible = true;
  bool operator==(const PlanReport&) const = default;
};

}  // namespace frugal::train
