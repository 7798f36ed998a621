#include "models/detection/sampler.h"

#include <algorithm>

namespace frugal::models {
namespace {

// `count` of the places: the first ones, or those whose random numbers are the smallest.
void keep(std::vector<int64_t>& places, int64_t count, const std::optional<RngKey>& key) {
  if (static_cast<int64_t>(places.size()) <= count) return;
  if (key) {
    const auto number = [&](int64_t place) {
      const auto words = philox(*key, static_cast<uint64_t>(place));
      return words[0] | static_cast<uint64_t>(words[1]) << 32;
    };
    std::sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
      const uint64_t x = number(a), y = number(b);
      return x < y || (x == y && a < b);
    });
  }
  places.resize(static_cast<size_t>(count));
}

}  // namespace

std::vector<int64_t> choose_balanced(const std::vector<int64_t>& labels,
                                     const SamplerOptions& options,
                                     const std::optional<RngKey>& key) {
  std::vector<int64_t> chosen, negative;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] > 0) chosen.push_back(static_cast<int64_t>(i));
    if (labels[i] == 0) negative.push_back(static_cast<int64_t>(i));
  }
  keep(chosen, static_cast<int64_t>(static_cast<double>(options.count) * options.positive), key);
  keep(negative, options.count - static_cast<int64_t>(chosen.size()), key);
  chosen.insert(chosen.end(), negative.begin(), negative.end());
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace frugal::models
