#include "apps/config/planned_run.h"

#include "apps/config/keys/config_readers.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/profile_file.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "core/integers.h"

namespace frugal::apps {
namespace {

using train::Growing;
using train::Growth;

constexpr int64_t kLeastSide = 32;
constexpr int64_t kBatchStep = 8;

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

train::SearchRange range_of(const Config& config, Growth growth) {
  const std::string path = key_of(config, growth);
  train::SearchRange range;
  const ModelSizes sizes = model_sizes(config.model);
  if (growth == Growth::layers) {
    range.first = sizes.least_layers;
    range.step = sizes.layers_step;
  } else if (growth == Growth::width) {
    range.first = range.step = sizes.width_step;
  } else if (growth == Growth::resolution) {
    range.step = sizes.side_step;
    range.first = ceil_div(kLeastSide, range.step) * range.step;
  } else {
    range.first = range.step = kBatchStep;
  }
  const bool mixes = config.data.mixup > 0 || config.data.cutmix > 0;
  range.least = growth != Growth::batch ? range.first : mixes ? 2 : 1;
  range.most = range.first + (most_of(path) - range.first) / range.step * range.step;
  const bool uneven = growth == Growth::resolution && kLeastSide % range.step == 0;
  range.coarse = uneven ? kLeastSide : range.step;
  return range;
}

MetaRun limited(MetaRun run, const Config& config) {
  run.gradient_accumulation = batches_of_step(config);
  return run;
}

PlannerOptions planner_options(const Config& config) {
  PlannerOptions options;
  options.run = limited(meta_run(config), config);
  options.run.has_blocks = is_read(config, "train.checkpointing");
  options.choice = make_choice(config.compression);
  options.seed = static_cast<uint64_t>(config.run.seed);
  const std::string& budget = config.compression.memory_budget;
  options.budget = parse_budget(budget.empty() ? "1x" : budget, "compression.memory_budget");
  options.device = Device::parse(config.run.device);
  options.batch = config.data.batch_size;
  options.test_batch = config.data.test_batch();
  options.checkpointed_blocks = checkpointed_blocks(config.train);
  options.recompute = config.compression.budget_recompute;
  options.workspace_limit = config.run.workspace_limit;
  return options;
}

// What a run does in the way that it would do with other keys in its file: the widths of a profile
// are recorded for keys.
void add_profile(train::Way& way, const Config& config) {
  if (config.compression.profile.empty()) return;
  Json document = to_json(config);
  remove_keys_of_presets(document);
  apply_sets(document, {"compression.offload=", "train.checkpointing=false"});
  apply_sets(document, keys_of(way));
  Config with = parse_config(document);
  with.data.opened = config.data.opened;
  resolve(with);
  way.choice.profile = with.compression.known_widths;
}

}  // namespace

std::string key_of(const Config& config, Growth growth) {
  const std::string path = growth == Growth::batch    ? "data.batch_size"
                           : growth == Growth::layers ? "model.layers"
                           : growth == Growth::width  ? "model.width"
                           : reads_image_size(config) ? "data.image_size"
                                                      : "data.shape";
  if (!is_read(config, path))
    throw ConfigError(path, fmt::format("expected a run that reads the key, which is to grow; "
                                        "{} with the data {} does not",
                                        config.model.name, config.data.name));
  return path;
}

train::Way way_of(const Config& config) {
  return {.name = "own",
          .choice = make_choice(config.compression),
          .checkpointed_blocks = checkpointed_blocks(config.train)};
}

train::PlannedRun planned_run(const Config& config) {
  train::PlannedRun run;
  run.options = planner_options(config);
  run.counts_kernels = counts_kernels(config);
  const OptimConfig& optim = config.optim;
  if (optim.name == "adamw" || (optim.name == "sgd" && optim.value("momentum").number() > 0)) {
    Config in_8bit = config;
    in_8bit.optim.name += "_8bit";
    run.make_8bit_optimizer = [in_8bit](Module& model) { return make_optimizer(in_8bit, model); };
  }
  run.growing = [config](Growth growth) {
    return Growing{range_of(config, growth), own_value(config, growth),
                   [config, growth](int64_t value) {
                     Config grown = config;
                     set_value(grown, growth, value);
                     resolve(grown);
                     return Growing::Grown{limited(meta_run(grown), grown), grown.data.batch_size};
                   }};
  };
  run.complete = [config](train::Way& way) { add_profile(way, config); };
  return run;
}

std::vector<std::string> keys_of(const train::Way& way) {
  std::vector<std::string> keys;
  switch (way.kind) {
    case train::Way::own:
      return keys;
    case train::Way::bits:
      if (way.choice.bits() == 0)
        keys = {"compression.preset=lossless", "compression.recipes=false"};
      else
        keys = {"compression.preset=safe",
                fmt::format("compression.bits={}", static_cast<int>(way.choice.bits())),
                "compression.gact.adaptive=false", "compression.entropy=false"};
      break;
    case train::Way::preset:
      keys = {"compression.preset=" + way.named};
      break;
    case train::Way::level:
      keys = {"compression.policy=actnn", "compression.level=" + way.named};
      break;
    case train::Way::growth:
      keys = {"compression.policy=acgc",
              fmt::format("compression.acgc.growth={}",
                          std::get<compress::AcgcOptions>(way.choice.policy).e)};
  }
  if (way.checkpointed_blocks > 0)
    keys.insert(keys.end(), {"train.checkpointing=true", "train.checkpointed_blocks=0"});
  if (!way.choice.offload) return keys;
  keys.push_back("compression.offload=" + Json(way.choice.offload->directory).dump());
  if (way.chooses_window)
    keys.push_back(
        fmt::format("compression.advanced.offload_window={}MiB", way.choice.offload->window >> 20));
  return keys;
}

std::vector<std::string> keys_of(const train::Recommendation::Row& row, const Config& config) {
  std::vector<std::string> keys;
  if (row.with.recomputed) keys.emplace_back("train.checkpointing=true");
  if (row.with.in_backward) keys.emplace_back("optim.in_backward=true");
  if (row.with.in_8bit) keys.push_back(fmt::format("optim.name={}_8bit", config.optim.name));
  if (row.budget > 0)
    keys.push_back(fmt::format("compression.memory_budget={}MiB", row.budget >> 20));
  return keys;
}

}  // namespace frugal::apps
