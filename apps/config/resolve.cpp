#include "apps/config/resolve.h"

#include <algorithm>

#include "apps/config/data/make_data.h"
#include "apps/config/keys/config_readers.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/keys/keys_of_options.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/profile_file.h"
#include "apps/config/train_options.h"
#include "compress/policies/policy_kind.h"
#include "core/log.h"
#include "train/planning/planner.h"
#include "train/update_time.h"

namespace frugal::apps {
void resolve_rounding(CompressionConfig& config, const std::string& device) {
  if (config.rounding) return;
  const bool dithered =
      config.policy != PolicyKind::acgc &&
      compress::rounding_on(Device::parse(device)) == compress::Rounding::dithered;
  config.rounding = dithered ? compress::Rounding::dithered : compress::Rounding::stochastic;
}

namespace {

// The published rule of acgc rounds to nearest and rebuilds nothing.
void resolve_published(CompressionConfig& config) {
  if (config.policy != PolicyKind::acgc || config.acgc.rule != compress::acgc::Rule::published)
    return;
  if (config.rounding && *config.rounding != compress::Rounding::nearest)
    throw ConfigError(
        "compression.advanced.rounding",
        fmt::format("expected auto or nearest with compression.acgc.rule published, got {}",
                    *config.rounding == compress::Rounding::dithered ? "dithered" : "stochastic"));
  config.rounding = compress::Rounding::nearest;
  config.recipes = false;
}

void check_widths(const CompressionConfig& config) {
  const bool adaptive = has_adaptive_widths(config);
  const int most = config.policy == PolicyKind::actnn && adaptive ? 8 : 16;
  if (config.bits != 0 && !(1 <= config.bits && config.bits <= most))
    throw ConfigError(
        "compression.bits",
        fmt::format("expected 0, or 1 to {}{}, got {}", most,
                    most == 8 ? " with the adaptive widths of policy actnn" : "", config.bits));
  if (config.policy == PolicyKind::actnn && config.actnn.products_only && adaptive)
    throw ConfigError("compression.actnn.products_only",
                      "expected false with adaptive widths, which every tensor has; got true");
}

// What ranks cannot do together. config.distributed.ranks says how many there are.
void check_ranks(const Config& config) {
  const int ranks = config.distributed.ranks;
  if (ranks == 1) return;
  if (config.run.cuda_graphs)
    throw ConfigError("cuda_graphs",
                      fmt::format("expected false with {} ranks: gradients are added up over the "
                                  "ranks through the host, which no captured step does",
                                  ranks));
  if (config.train.in_backward.value_or(false) && config.distributed.compress_gradients > 0)
    throw ConfigError("distributed.compress_gradients",
                      fmt::format("expected 0 with optim.in_backward and {} ranks, because what "
                                  "codes lose cannot wait for the next step",
                                  ranks));
  if (config.compression.policy == PolicyKind::actnn && config.compression.actnn.use_gradient)
    throw ConfigError("compression.actnn.use_gradient",
                      fmt::format("expected false with {} ranks: each knows the gradients of its "
                                  "own samples only",
                                  ranks));
}

}  // namespace

namespace {

// What does not depend on the data.
void resolve_keys(Config& config);

}  // namespace

void resolve(Config& config) {
  naming_files(config, [&] {
    check_ranks(config);
    resolve_data(config);
    resolve_model(config, batch_spec(config));
    resolve_keys(config);
  });
}

void resolve_if_data_are_there(Config& config) {
  const auto without_data = [&](const Error& why) {
    log().warn("[config] {}; what follows from the data stays null", why.what());
    resolve_keys(config);
  };
  Config whole = config;
  try {
    resolve(whole);
    config = whole;
  } catch (const ConfigError& e) {
    if (e.path() != "data.dir" && e.path() != "data.vocabulary" && e.path() != "data.class_names")
      throw;
    without_data(e);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {  // what data hold
    without_data(e);
  }
}

namespace {

void resolve_keys(Config& config) {
  // Elsewhere the policy chooses it: runs that keep everything whole stored null before it counted
  // there, and they may be resumed.
  if (!config.compression.slice_bytes && (packs(config) || rebuilds(config)))
    config.compression.slice_bytes = compress::slice_bytes_on(Device::parse(config.run.device));
  if (family_of(config.model) == Family::graph && config.data.sampler == "full" &&
      (config.compression.track_interval > 0 || config.compression.tracking.guard > 0))
    throw ConfigError("compression.advanced.track_interval",
                      "expected 0, as the guard, with the data.sampler full: batches are all the "
                      "same, so gradients have no variance to compare with");
  check_widths(config.compression);
  if (!config.compression.memory_budget.empty()) {
    if (config.compression.policy == PolicyKind::gact)
      config.compression.policy = PolicyKind::budget;
    parse_budget(config.compression.memory_budget, "compression.memory_budget");
  }
  resolve_published(config.compression);
  resolve_rounding(config.compression, config.run.device);
  if (!config.compression.profile.empty())
    config.compression.known_widths =
        std::make_shared<compress::WidthProfile>(read_profile(config.compression.profile, config));
  if (config.train.freeze_epochs > 0 && !config.compression.memory_budget.empty())
    throw ConfigError("train.freeze_epochs",
                      "expected 0 with compression.memory_budget: a plan for what is trained at "
                      "first does not fit the whole network");
  if (config.train.freeze_epochs > 0 && packs_weights(config))
    throw ConfigError("train.freeze_epochs",
                      fmt::format("expected 0 with model.frozen {}: packed weights never train",
                                  ops::name_of(config.model.packing.format)));
  if (config.adapter.type != models::AdapterType::none && !config.train.freeze.empty())
    throw ConfigError("train.freeze",
                      "expected [] with adapter.type, which freezes all but the adapters and "
                      "adapter.modules_to_save");
  train::UpdateTime time = update_time(config);
  time.recomputes = time.recomputes || config.compression.budget_recompute;
  try {
    check(time);
  } catch (const OptionError& e) {
    throw ConfigError("optim.in_backward", with_keys(e.reason()));
  }
}

}  // namespace

int64_t checkpointed_blocks(const TrainConfig& config) {
  if (!config.checkpointing) return 0;
  return config.first_blocks > 0 ? config.first_blocks : kAllBlocks;
}

}  // namespace frugal::apps
