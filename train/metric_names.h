// The metrics that evaluations may have beside the loss.
#pragma once
#include <array>
#include <string_view>

namespace frugal::train {

struct MetricName {
  std::string_view name;
  bool has_accuracy = true;  // targets are counted as right, too: Task::has_accuracy()
};
// In the order of reports. BatchSpec::metric is the name of one of these, or empty.
inline constexpr std::array<MetricName, 8> kMetrics{{{"f1"},
                                                     {"micro_f1"},
                                                     {"matthews"},
                                                     {"perplexity"},
                                                     {"miou"},
                                                     {"r2", false},
                                                     {"map", false},
                                                     {"knn", false}}};

// Of data with this metric, or none.
inline bool has_accuracy(std::string_view metric) {
  for (const MetricName& known : kMetrics)
    if (known.name == metric) return known.has_accuracy;
  return true;
}

}  // namespace frugal::train
