// A balanced choice of anchors and proposals. On the host.
#pragma once
#include <optional>
#include <vector>

#include "core/rng.h"

namespace frugal::models {

struct SamplerOptions {
  int64_t count = 256;    // how many are chosen
  double positive = 0.5;  // the share of positive ones among them, at most
};

// labels: above 0 positive, 0 negative, below 0 neither. Gives the chosen places, rising. Without a
// key the first ones are chosen, else random ones, each with the same probability.
// Ref: Ren et al. 2015, section 3.1.3; torchvision's BalancedPositiveNegativeSampler.
std::vector<int64_t> choose_balanced(const std::vector<int64_t>& labels,
                                     const SamplerOptions& options,
                                     const std::optional<RngKey>& key);

}  // namespace frugal::models
