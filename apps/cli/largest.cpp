#include "apps/cli/largest.h"

#include <algorithm>
#include <cmath>

#include "apps/config/config_readers.h"
#include "apps/config/config_table.h"
#include "apps/config/make_model.h"
#include "apps/config/make_policy.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "core/integers.h"

namespace frugal::apps {
namespace {

constexpr int64_t kLeastSide = 32;
constexpr int64_t kFewSamples = 8;  // of the step that makes the optimizer's state
constexpr int64_t kBatchStep = 8;
constexpr size_t kKeptSteps = 32;

// The largest value of the key's schema.
int64_t most_of(const std::string& path) {
  for (const Section& section : config_sections())
    for (const Field& field : section.fields) {
      if (section.path(field) != path) continue;
      const Json& schema = field.schema.contains("items") ? field.schema["items"] : field.schema;
      return schema.at("maximum").get<int64_t>();
    }
  FRUGAL_ASSERT(false);
  return 0;
}

bool reads_image_size(const Config& config) { return is_read(config, "data.image_size"); }

void set_value(Config& config, Growth growth, int64_t value) {
  switch (growth) {
    case Growth::batch:
      config.data.batch_size = value;
      return;
    case Growth::layers:
      config.model.layers = value;
      return;
    case Growth::width:
      config.model.width = value;
      return;
    case Growth::resolution:
      if (reads_image_size(config)) {
        config.data.image_size = value;
      } else {
        std::vector<int64_t>& shape =
            config.data.shape ? *config.data.shape : config.data.shape.emplace(3, 3);
        shape[0] = shape[1] = value;
      }
  }
}

struct Point {
  int64_t value = 0, peak = 0;
};

// What the run has; 0: it follows from the network.
int64_t own_value(const Config& config, Growth growth) {
  switch (growth) {
    case Growth::batch:
      return config.data.batch_size;
    case Growth::layers:
      return config.model.layers.value_or(0);
    case Growth::width:
      return config.model.width.value_or(0);
    case Growth::resolution:
      return reads_image_size(config) ? config.data.image_size
             : config.data.shape      ? config.data.shape->front()
                                      : 0;
  }
  return 0;
}

}  // namespace

Growth growth_named(const std::string& name) {
  if (name == "batch") return Growth::batch;
  if (name == "layers") return Growth::layers;
  if (name == "width") return Growth::width;
  FRUGAL_ASSERT(name == "resolution");
  return Growth::resolution;
}

std::string key_of(const Config& config, Growth growth) {
  constexpr const char* kKeys[] = {"data.batch_size", "model.layers", "model.width", "data.shape"};
  if (growth == Growth::resolution && reads_image_size(config)) return "data.image_size";
  return kKeys[static_cast<size_t>(growth)];
}

LargestSearch::LargestSearch(const Config& config, Growth growth) : growth_(growth) {
  const std::string path = key_of(config, growth);
  if (!is_read(config, path))
    throw ConfigError(path, fmt::format("expected a run that reads the key, which is to grow; "
                                        "{} with the data {} does not",
                                        config.model.name, config.data.name));
  const ModelSizes sizes = model_sizes(config.model);
  if (growth == Growth::layers) {
    first_ = sizes.least_layers;
    step_ = sizes.layers_step;
  } else if (growth == Growth::width) {
    first_ = step_ = sizes.width_step;
  } else if (growth == Growth::resolution) {
    step_ = sizes.side_step;
    first_ = ceil_div(kLeastSide, step_) * step_;
  } else {
    first_ = step_ = kBatchStep;
  }
  const bool mixes = config.data.mixup > 0 || config.data.cutmix > 0;
  least_ = growth != Growth::batch ? first_ : mixes ? 2 : 1;
  most_ = first_ + (most_of(path) - first_) / step_ * step_;
}

int64_t LargestSearch::peak_of(Config config, int64_t value) {
  set_value(config, growth_, value);
  resolve(config);
  const int64_t samples = config.data.batch_size;
  const bool fixed = growth_ == Growth::batch;
  std::unique_ptr<MetaStep>& meta = steps_[fixed ? 0 : value];
  if (meta == nullptr)
    meta = std::make_unique<MetaStep>(meta_run(config), std::min(samples, kFewSamples));
  const auto policy = make_draft_policy(config.compression, static_cast<uint64_t>(config.run.seed));
  const int64_t peak = meta->step(policy.get(), samples, checkpointed_blocks(config.train)).peak;
  if (steps_.size() > kKeptSteps) steps_.clear();
  return peak;
}

Largest LargestSearch::find(const Config& given, int64_t memory) {
  Config config = given;
  if (!config.compression.memory_budget.empty())
    throw ConfigError("compression.memory_budget",
                      fmt::format("expected none where the largest {} is asked for, got {}",
                                  key_of(config, growth_), config.compression.memory_budget));
  config.compression.entropy = false;
  const auto on_grid = [&](double value) {
    const auto steps =
        std::floor((value - static_cast<double>(first_)) / static_cast<double>(step_));
    return first_ + step_ * static_cast<int64_t>(std::max(steps, 0.0));
  };
  const auto probe = [&](int64_t value) { return Point{value, peak_of(config, value)}; };
  const auto fits = [&](const Point& point) { return point.peak <= memory; };
  // Where a straight line through two points meets `memory`; peaks are nearly straight in the batch
  // and the depth.
  const auto meets = [&](const Point& a, const Point& b) {
    const auto rise = static_cast<double>(b.peak - a.peak);
    return rise > 0 ? static_cast<double>(a.value) + static_cast<double>(b.value - a.value) *
                                                         static_cast<double>(memory - a.peak) / rise
                    : 2.0 * static_cast<double>(b.value);
  };
  Point low = probe(std::min(on_grid(static_cast<double>(own_value(config, growth_))), most_)),
        high;
  if (!fits(low)) {
    high = low;
    if (low.value > first_) low = probe(first_);
    while (!fits(low)) {
      if (low.value == least_) return {0, low.peak, false};
      low = probe(low.value - 1);
    }
    if (low.value < first_) return {low.value, low.peak, false};
  } else {
    // No value is tried that is much larger than the memory.
    constexpr int64_t kFactor = 4;
    double next = 2.0 * static_cast<double>(low.value);
    for (;;) {
      if (low.value == most_) return {low.value, low.peak, true};
      const int64_t least = low.value + step_;
      high = probe(
          std::clamp(on_grid(next), least, std::min(most_, std::max(least, kFactor * low.value))));
      if (!fits(high)) break;
      // A little more than the line says, so that the answer comes to lie between two values.
      next = meets(low, high) + 2.0 * static_cast<double>(step_);
      low = high;
    }
  }
  for (int round = 1; high.value - low.value > step_; ++round) {
    const double middle = static_cast<double>(low.value + high.value) / 2;
    const Point between = probe(std::clamp(on_grid(round % 4 == 0 ? middle : meets(low, high)),
                                           low.value + step_, high.value - step_));
    (fits(between) ? low : high) = between;
  }
  return {low.value, low.peak, false};
}

Largest find_largest(const Config& config, Growth growth, int64_t memory) {
  return LargestSearch(config, growth).find(config, memory);
}

}  // namespace frugal::apps
