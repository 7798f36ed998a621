#include "train/metrics/metric_names.h"

#include <algorithm>

namespace frugal::train {

namespace {
using Target = BatchSpec::Target;
}

bool MetricName::measures(Target target) const {
  return std::find(targets.begin(), targets.end(), target) != targets.end();
}

bool MetricName::has_accuracy() const {
  return std::all_of(targets.begin(), targets.end(),
                     [](Target target) { return train::has_accuracy(target); });
}

const std::vector<MetricName>& known_metrics() {
  static const std::vector<Target> classes = {Target::class_of_sample, Target::class_of_pixel,
                                              Target::class_of_token};
  static const std::vector<MetricName> all = {
      {.name = "f1", .targets = classes, .counts_pairs = true},
      {.name = "macro_f1", .targets = classes, .counts_pairs = true},
      {.name = "micro_f1",
       .targets = {Target::labels, Target::class_of_sample},
       .counts_pairs = true},
      {.name = "matthews", .targets = classes, .counts_pairs = true},
      {.name = "perplexity",
       .targets = {Target::class_of_token, Target::class_of_sample},
       .higher_is_better = false},
      {.name = "miou", .targets = {Target::class_of_pixel}, .counts_pairs = true},
      {.name = "dice", .targets = {Target::class_of_pixel}, .counts_pairs = true},
      {.name = "r2", .targets = {Target::values}},
      {.name = "mse", .targets = {Target::values}, .higher_is_better = false},
      {.name = "mae", .targets = {Target::values}, .higher_is_better = false},
      {.name = "map", .targets = {Target::boxes}},
      {.name = "map_50", .targets = {Target::boxes}},
      {.name = "knn", .targets = {Target::views}}};
  return all;
}

const MetricName* find_metric(std::string_view name) {
  const std::vector<MetricName>& all = known_metrics();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const MetricName& metric) { return metric.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string names_of_metrics(Target target) {
  std::vector<std::string> names;
  for (const MetricName& metric : known_metrics())
    if (metric.measures(target)) names.emplace_back(metric.name);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

std::string usual_metric(Target target) {
  switch (target) {
    case Target::class_of_sample:
      return "";
    case Target::labels:
      return "micro_f1";
    case Target::values:
      return "r2";
    case Target::class_of_pixel:
      return "miou";
    case Target::class_of_token:
      return "perplexity";
    case Target::boxes:
      return "map";
    case Target::views:
      return "knn";
  }
  return "";
}

bool has_accuracy(Target target) {
  return target != Target::values && target != Target::boxes && target != Target::views;
}

Target target_of_usual_metric(std::string_view metric) {
  for (const Target target : {Target::labels, Target::values, Target::boxes, Target::views})
    if (usual_metric(target) == metric) return target;
  return Target::class_of_sample;
}

}  // namespace frugal::train
