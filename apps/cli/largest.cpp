#include "apps/cli/largest.h"

#include <algorithm>
#include <cmath>

#include "apps/config/config_readers.h"
#include "apps/config/config_table.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "core/integers.h"

namespace frugal::apps {
namespace {

constexpr int64_t kLeastSide = 32;
constexpr int64_t kFewSamples = 8;  // for the step that makes the optimizer's state
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
      config.model.options["layers"] = value;
      return;
    case Growth::width:
      config.model.options["width"] = value;
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
      return config.model.integer("layers").value_or(0);
    case Growth::width:
      return config.model.integer("width").value_or(0);
    case Growth::resolution:
      return reads_image_size(config) ? config.data.image_size
             : config.data.shape      ? config.data.shape->front()
                                      : 0;
  }
  return 0;
}

// The largest value of first, first + step, ... up to `most`, if peaks grow with it.
Largest largest_of_even(const SearchRange& range, int64_t step, int64_t own, int64_t memory,
                        const std::function<int64_t(int64_t)>& peak_of) {
  const int64_t first = range.first, most = first + (range.most - first) / step * step;
  const auto on_grid = [&](double value) {
    const auto steps = std::floor((value - static_cast<double>(first)) / static_cast<double>(step));
    return first + step * static_cast<int64_t>(std::max(steps, 0.0));
  };
  const auto probe = [&](int64_t value) { return Point{value, peak_of(value)}; };
  const auto fits = [&](const Point& point) { return point.peak <= memory; };
  // Where a straight line through two points meets `memory`; peaks are nearly straight in the batch
  // and the depth.
  const auto meets = [&](const Point& a, const Point& b) {
    const auto rise = static_cast<double>(b.peak - a.peak);
    return rise > 0 ? static_cast<double>(a.value) + static_cast<double>(b.value - a.value) *
                                                         static_cast<double>(memory - a.peak) / rise
                    : 2.0 * static_cast<double>(b.value);
  };
  Point low = probe(std::min(on_grid(static_cast<double>(own)), most)), high;
  if (!fits(low)) {
    high = low;
    if (low.value > first) low = probe(first);
    while (!fits(low)) {
      if (low.value == range.least) return {0, low.peak, false};
      low = probe(low.value - 1);
    }
    if (low.value < first) return {low.value, low.peak, false};
  } else {
    // No value is tried that is much larger than the memory.
    constexpr int64_t kFactor = 4;
    double next = 2.0 * static_cast<double>(low.value);
    for (;;) {
      if (low.value == most) return {low.value, low.peak, true};
      const int64_t least = low.value + step;
      high = probe(
          std::clamp(on_grid(next), least, std::min(most, std::max(least, kFactor * low.value))));
      if (!fits(high)) break;
      // A little more than the line says, so that the answer comes to lie between two values.
      next = meets(low, high) + 2.0 * static_cast<double>(step);
      low = high;
    }
  }
  for (int round = 1; high.value - low.value > step; ++round) {
    const double middle = static_cast<double>(low.value + high.value) / 2;
    const Point between = probe(std::clamp(on_grid(round % 4 == 0 ? middle : meets(low, high)),
                                           low.value + step, high.value - step));
    (fits(between) ? low : high) = between;
  }
  return {low.value, low.peak, false};
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
  switch (growth) {
    case Growth::batch:
      return "data.batch_size";
    case Growth::layers:
      return "model.layers";
    case Growth::width:
      return "model.width";
    case Growth::resolution:
      break;
  }
  return reads_image_size(config) ? "data.image_size" : "data.shape";
}

LargestSearch::LargestSearch(const Config& config, Growth growth) : growth_(growth) {
  const std::string path = key_of(config, growth);
  if (!is_read(config, path))
    throw ConfigError(path, fmt::format("expected a run that reads the key, which is to grow; "
                                        "{} with the data {} does not",
                                        config.model.name, config.data.name));
  const ModelSizes sizes = model_sizes(config.model);
  if (growth == Growth::layers) {
    range_.first = sizes.least_layers;
    range_.step = sizes.layers_step;
  } else if (growth == Growth::width) {
    range_.first = range_.step = sizes.width_step;
  } else if (growth == Growth::resolution) {
    range_.step = sizes.side_step;
    range_.first = ceil_div(kLeastSide, range_.step) * range_.step;
  } else {
    range_.first = range_.step = kBatchStep;
  }
  const bool mixes = config.data.mixup > 0 || config.data.cutmix > 0;
  range_.least = growth != Growth::batch ? range_.first : mixes ? 2 : 1;
  range_.most = range_.first + (most_of(path) - range_.first) / range_.step * range_.step;
  const bool uneven = growth == Growth::resolution && kLeastSide % range_.step == 0;
  range_.coarse = uneven ? kLeastSide : range_.step;
}

int64_t LargestSearch::peak_of(Config config, int64_t value) {
  set_value(config, growth_, value);
  resolve(config);
  const int64_t samples = config.data.batch_size;
  const bool fixed = growth_ == Growth::batch;
  // Steps of small and of large batches keep the input in two ways.
  std::unique_ptr<MetaStep>& meta =
      steps_[fixed ? int64_t{batch_spec(config).releases_input} : value];
  if (meta == nullptr)
    meta = std::make_unique<MetaStep>(meta_run(config), std::min(samples, kFewSamples));
  const auto policy =
      make_policy(make_choice(config.compression), kMeta, static_cast<uint64_t>(config.run.seed));
  const int64_t peak = meta->step(policy.get(), samples, checkpointed_blocks(config.train)).peak;
  if (steps_.size() > kKeptSteps) steps_.clear();
  return peak;
}

Largest find_largest(const SearchRange& range, int64_t own, int64_t memory,
                     const std::function<int64_t(int64_t)>& peak_of) {
  FRUGAL_ASSERT(range.coarse % range.step == 0);
  Largest found = largest_of_even(range, range.coarse, own, memory, peak_of);
  // From the greatest value down, so that the first one that fits is the answer.
  const auto try_down = [&](int64_t from, int64_t to, int64_t step) {
    for (int64_t value = from; value > to; value -= step) {
      const int64_t peak = peak_of(value);
      if (peak > memory) continue;
      found = {value, peak, false};
      return;
    }
  };
  if (range.coarse == range.step || found.value < range.first) return found;
  const auto at_most = [&](int64_t value, int64_t step) {
    return found.value + (std::min(value, range.most) - found.value) / step * step;
  };
  // The next coarse value is known not to fit.
  constexpr int64_t kAhead = 3;
  try_down(at_most(found.value + kAhead * range.coarse, range.coarse), found.value + range.coarse,
           range.coarse);
  try_down(at_most(found.value + range.coarse - range.step, range.step), found.value, range.step);
  found.limited = found.value == range.most;
  return found;
}

Largest LargestSearch::find(const Config& given, int64_t memory) {
  Config config = given;
  if (!config.compression.memory_budget.empty())
    throw ConfigError("compression.memory_budget",
                      fmt::format("expected none where the largest {} is asked for, got {}",
                                  key_of(config, growth_), config.compression.memory_budget));
  config.compression.entropy = false;
  return find_largest(range_, own_value(config, growth_), memory,
                      [&](int64_t value) { return peak_of(config, value); });
}

Largest find_largest(const Config& config, Growth growth, int64_t memory) {
  return LargestSearch(config, growth).find(config, memory);
}

}  // namespace frugal::apps
