#include "apps/config/makers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/config/config_table.h"
#include "apps/config/level_keys.h"
#include "apps/config/make_policy.h"
#include "apps/planner.h"
#include "core/cuda_memory.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/quoted.h"
#include "ops/precision.h"
#include "optim/adafactor.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "optim/averaged.h"
#include "optim/lamb.h"
#include "optim/sgd.h"

namespace frugal::apps {
namespace {

// Kernels on 8 MiB last about as long as it takes to launch them, and a large activation has a
// hundred of such slices. On 64 MiB they last ten times as long, at a thousandth of a GPU's memory.
constexpr int64_t kCudaSliceBytes = int64_t{64} << 20;

}  // namespace

void resolve_rounding(CompressionConfig& config, const std::string& device) {
  if (config.rounding == "auto")  // on CUDA drawing again would bound unpacking
    config.rounding =
        Device::parse(device).type == DeviceType::cuda ? "stochastic" : rounding_of(config);
  if (config.rounding == "dithered" && config.signs == "rebuilt")
    throw ConfigError("compression.advanced.rounding",
                      "expected stochastic or nearest with rebuilt signs: dither moves values near "
                      "zero across it");
}

namespace {

// The published rule of acgc rounds to nearest and rebuilds nothing.
void resolve_published(CompressionConfig& config) {
  if (config.policy != "acgc" || config.acgc_rule != "published") return;
  if (config.rounding != "auto" && config.rounding != "nearest")
    throw ConfigError(
        "compression.advanced.rounding",
        fmt::format("expected auto or nearest with compression.acgc.rule published, got {}",
                    config.rounding));
  config.rounding = "nearest";
  config.recipes = false;
}

}  // namespace

namespace {

void check_widths(const CompressionConfig& config) {
  const bool adaptive = has_adaptive_widths(config);
  const int most = config.policy == "actnn" && adaptive ? 8 : 16;
  if (config.width != 0 && !(1 <= config.width && config.width <= most))
    throw ConfigError(
        "compression.bits",
        fmt::format("expected 0, or 1 to {}{}, got {}", most,
                    most == 8 ? " with the adaptive widths of policy actnn" : "", config.width));
  if (config.policy == "actnn" && config.actnn_products_only && adaptive)
    throw ConfigError("compression.actnn.products_only",
                      "expected false with adaptive widths, which every tensor has; got true");
}

}  // namespace

void resolve(Config& config) {
  resolve_data(config);
  resolve_model(config, batch_spec(config));
  if (!config.compression.slice_bytes && is_read(config, "compression.advanced.slice_bytes"))
    config.compression.slice_bytes = Device::parse(config.run.device).type == DeviceType::cuda
                                         ? kCudaSliceBytes
                                         : SavePolicy::kSliceBytes;
  if (family_of(config.model.name) == Family::graph && config.data.sampler == "full" &&
      (config.compression.track_interval > 0 || config.compression.guard > 0))
    throw ConfigError("compression.advanced.track_interval",
                      "expected 0, as the guard, with the data.sampler full: batches are all the "
                      "same, so gradients have no variance to compare with");
  check_widths(config.compression);
  if (!config.compression.memory_budget.empty()) {
    if (config.compression.policy == "gact") config.compression.policy = "budget";
    parse_budget(config.compression.memory_budget, "compression.memory_budget");
  }
  resolve_published(config.compression);
  resolve_rounding(config.compression, config.run.device);
  if (config.optim.in_backward) {
    const char* other = config.optim.clip_norm > 0               ? "optim.clip_norm"
                        : config.train.gradient_accumulation > 1 ? "train.gradient_accumulation"
                        : config.train.checkpointing             ? "train.checkpointing"
                        : config.compression.budget_recompute    ? "compression.budget.recompute"
                                                                 : nullptr;
    if (other != nullptr)
      throw ConfigError("optim.in_backward",
                        fmt::format("expected false with {}, which needs all gradients or "
                                    "parameters until backward has ended",
                                    other));
  }
}

namespace {

using Groups = std::vector<ParameterGroup>;
using OptimizerMaker = std::unique_ptr<Optimizer> (*)(Groups, const OptimConfig&, uint64_t seed);

std::unique_ptr<Optimizer> make_sgd(Groups groups, const OptimConfig& config, uint64_t) {
  optim::SgdOptions options;
  options.momentum = config.momentum;
  options.nesterov = config.nesterov;
  return std::make_unique<optim::Sgd>(std::move(groups), options);
}

optim::AdamOptions adam_options(const OptimConfig& config, bool decoupled) {
  return {config.beta1, config.beta2, config.eps, decoupled};
}
std::unique_ptr<Optimizer> make_adam(Groups groups, const OptimConfig& config, uint64_t) {
  return std::make_unique<optim::Adam>(groups, adam_options(config, false));
}
std::unique_ptr<Optimizer> make_adamw(Groups groups, const OptimConfig& config, uint64_t) {
  return std::make_unique<optim::Adam>(groups, adam_options(config, true));
}
std::unique_ptr<Optimizer> make_adamw_8bit(Groups groups, const OptimConfig& config,
                                           uint64_t seed) {
  optim::Adam8bitOptions options;
  options.seed = seed;
  options.adam = adam_options(config, true);
  options.full_precision = {"embedding", "wte.", "wpe."};
  return std::make_unique<optim::Adam8bit>(groups, options);
}
std::unique_ptr<Optimizer> make_lamb(Groups groups, const OptimConfig& config, uint64_t) {
  optim::LambOptions options;
  options.beta1 = config.beta1;
  options.beta2 = config.beta2;
  options.eps = config.eps;
  return std::make_unique<optim::Lamb>(groups, options);
}

std::unique_ptr<Optimizer> make_adafactor(Groups groups, const OptimConfig&, uint64_t) {
  return std::make_unique<optim::Adafactor>(groups, optim::AdafactorOptions{});
}

struct OptimizerRow {
  const char* name;
  OptimizerMaker make;
};
constexpr OptimizerRow kOptimizers[] = {{"sgd", make_sgd},     {"adam", make_adam},
                                        {"adamw", make_adamw}, {"adamw_8bit", make_adamw_8bit},
                                        {"lamb", make_lamb},   {"adafactor", make_adafactor}};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : kOptimizers) names.emplace_back(row.name);
  return names;
}

namespace {

// "convs.=0.01". Errors: ConfigError.
std::pair<std::string, double> parse_decay(const std::string& text) {
  const size_t equals = text.rfind('=');
  double decay = -1;
  if (equals != std::string::npos && equals > 0) {
    const char* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data() + equals + 1, end, decay);
    if (code != std::errc() || stop != end) decay = -1;
  }
  if (!(decay >= 0 && decay <= 1e3))
    throw ConfigError(
        "optim.weight_decay_of",
        fmt::format("expected NAME=DECAY with a decay in [0, 1000], got {}", in_quotes(text)));
  return {text.substr(0, equals), decay};
}

// Parameters whose names begin as one of `exceptions` says, in groups of their own.
Groups with_exceptions(Groups groups, const std::vector<std::string>& exceptions) {
  Groups all;
  for (const std::string& text : exceptions) {
    const auto [name, decay] = parse_decay(text);
    ParameterGroup own;
    own.weight_decay = decay;
    for (ParameterGroup& group : groups) {
      const auto fits = [&](const auto& p) { return p.first.rfind(name, 0) == 0; };
      for (const auto& p : group.parameters)
        if (fits(p)) own.parameters.push_back(p);
      std::erase_if(group.parameters, fits);
    }
    if (own.parameters.empty())
      throw ConfigError(
          "optim.weight_decay_of",
          fmt::format("expected the beginning of a parameter's name, got {}", in_quotes(name)));
    all.push_back(std::move(own));
  }
  for (ParameterGroup& group : groups) all.push_back(std::move(group));
  return all;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Config& all, Module& model) {
  const OptimConfig& config = all.optim;
  std::vector<std::pair<std::string, Variable>> parameters;
  for (const auto& p : model.parameters()) parameters.emplace_back(p.name, *p.parameter);
  Groups groups =
      with_exceptions(optim::decay_groups(parameters, config.weight_decay, !config.no_decay_norms),
                      config.weight_decay_of);
  for (const OptimizerRow& row : kOptimizers) {
    if (config.name != row.name) continue;
    auto optimizer = row.make(std::move(groups), config, static_cast<uint64_t>(all.run.seed));
    if (config.ema == 0) return optimizer;
    optim::EmaOptions average;
    average.decay = config.ema;
    return std::make_unique<optim::Averaged>(std::move(optimizer), std::move(parameters), average);
  }
  throw ConfigError("optim.name", fmt::format("expected a known optimizer, got '{}'", config.name));
}

std::vector<std::string> schedule_names() {
  return {"constant", "step", "cosine", "one_cycle", "linear", "inverse_sqrt"};
}

optim::SchedulePtr make_schedule(const Config& config, int64_t steps_per_epoch, int64_t steps) {
  const ScheduleConfig& c = config.schedule;
  const double lr = config.optim.lr;
  const auto per_epoch = static_cast<double>(steps_per_epoch);
  if (c.name == "one_cycle") {
    optim::OneCycleOptions options;
    options.max_lr = lr;
    options.total = steps;
    options.rising = c.peak_at;
    if (c.min_lr > 0) options.final_division = lr / options.initial_division / c.min_lr;
    return optim::one_cycle_schedule(options);
  }
  const int64_t warm = c.warmup_steps + std::llround(c.warmup_epochs * per_epoch);
  optim::SchedulePtr rest;
  if (c.name == "constant") rest = optim::constant_schedule(lr);
  if (c.name == "cosine")
    rest = optim::cosine_schedule(lr, c.min_lr, std::max<int64_t>(steps - warm, 1));
  if (c.name == "linear")
    rest = optim::linear_schedule(lr, c.min_lr, std::max<int64_t>(steps - warm, 1));
  if (c.name == "inverse_sqrt") rest = optim::inverse_sqrt_schedule(lr, std::max<int64_t>(warm, 1));
  if (c.name == "step") {
    // In steps of the whole run, while the rest counts from the end of the warm-up.
    std::vector<int64_t> milestones;
    for (double epoch : c.milestones)
      milestones.push_back(std::max<int64_t>(std::llround(epoch * per_epoch) - warm, 0));
    rest = optim::step_schedule(lr, milestones, c.gamma);
  }
  return warm > 0 ? optim::warmup(rest, warm) : rest;
}

int64_t checkpointed_blocks(const TrainConfig& config) {
  if (!config.checkpointing) return 0;
  return config.checkpointed_blocks > 0 ? config.checkpointed_blocks : kAllBlocks;
}

void set_up_threads(const RunConfig& config) {
  if (config.threads > 0) set_num_threads(static_cast<int>(config.threads));
}

Device set_up_computing_device(const RunConfig& config, const char* doing) {
  const Device device = set_up_device(config);
  if (device.type == DeviceType::meta)
    throw ConfigError("device",
                      fmt::format("expected cpu{}: nothing can be {} on meta. `frugal bench step "
                                  "CONFIG --set device=meta` counts the memory of a step, `frugal "
                                  "plan CONFIG` plans for a memory_budget",
                                  kHasCuda ? " or cuda" : "", doing));
  return device;
}

Device set_up_device(const RunConfig& config) {
  const Device device = Device::parse(config.device);
  if (device.type == DeviceType::cuda && !kHasCuda)
    throw ConfigError("device", "this frugal was built without CUDA; expected cpu");
  if constexpr (kHasCuda)
    if (device.type == DeviceType::cuda && cuda::device_count() == 0)
      throw ConfigError("device", "expected cpu, since this machine has no CUDA device");
  if (device == kCpu && config.precision != "f32")
    throw ConfigError("precision",
                      fmt::format("expected f32 on the cpu, got {}", config.precision));
  if (device.type != DeviceType::cuda && config.cuda_graphs)
    throw ConfigError("cuda_graphs", "expected false without CUDA");
  ops::set_matmul_precision(config.precision == "f32" ? ops::MatmulPrecision::f32
                                                      : ops::MatmulPrecision::tf32);
  ops::set_deterministic(config.deterministic);
  ops::set_convolution_workspace(config.workspace_limit);
  set_up_threads(config);
  allocator(device).set_limit(config.memory_limit);
  return device;
}

}  // namespace frugal::apps
