#include "apps/config/make_optimizer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "apps/config/config_error.h"
#include "core/quoted.h"
#include "distributed/sharded_optimizer.h"
#include "models/layer_order.h"
#include "models/name_pattern.h"
#include "optim/adafactor.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "optim/averaged.h"
#include "optim/lamb.h"
#include "optim/lars.h"
#include "optim/sgd.h"
#include "optim/sgd8bit.h"

namespace frugal::apps {
namespace {

using Groups = std::vector<ParameterGroup>;
using OptimizerMaker = std::unique_ptr<Optimizer> (*)(Groups, const OptimConfig&, uint64_t seed);

optim::SgdOptions sgd_options(const OptimConfig& config) {
  return {config.momentum, config.nesterov};
}
std::unique_ptr<Optimizer> make_sgd(Groups groups, const OptimConfig& config, uint64_t) {
  return std::make_unique<optim::Sgd>(std::move(groups), sgd_options(config));
}
// Gradients of the rows of embeddings differ much in size.
optim::BlockwiseOptions blockwise_options(uint64_t seed) {
  return {.full_precision = {"embedding", "wte.", "wpe."}, .seed = seed};
}
std::unique_ptr<Optimizer> make_sgd_8bit(Groups groups, const OptimConfig& config, uint64_t seed) {
  return std::make_unique<optim::Sgd8bit>(
      groups, optim::Sgd8bitOptions{sgd_options(config), blockwise_options(seed)});
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
  return std::make_unique<optim::Adam8bit>(
      groups, optim::Adam8bitOptions{adam_options(config, true), blockwise_options(seed)});
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

std::unique_ptr<Optimizer> make_lars(Groups groups, const OptimConfig& config, uint64_t) {
  optim::LarsOptions options;
  options.momentum = config.momentum;
  options.trust = config.trust;
  return std::make_unique<optim::Lars>(groups, options);
}

struct OptimizerRow {
  const char* name;
  OptimizerMaker make;
};
constexpr OptimizerRow kOptimizers[] = {
    {"sgd", make_sgd},     {"sgd_8bit", make_sgd_8bit},     {"adam", make_adam},
    {"adamw", make_adamw}, {"adamw_8bit", make_adamw_8bit}, {"lamb", make_lamb},
    {"lars", make_lars},   {"adafactor", make_adafactor}};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : kOptimizers) names.emplace_back(row.name);
  return names;
}

namespace {

// "convs.=0.01" of the key `path`, whose numbers are called `what`. Errors: ConfigError.
std::pair<std::string, double> parse_entry(const char* path, const char* what,
                                           const std::string& text) {
  const size_t equals = text.rfind('=');
  double number = -1;
  if (equals != std::string::npos && equals > 0) {
    const char* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data() + equals + 1, end, number);
    if (code != std::errc() || stop != end) number = -1;
  }
  if (!(number >= 0 && number <= 1e3))
    throw ConfigError(path, fmt::format("expected NAME={} with a number in [0, 1000], got {}", what,
                                        in_quotes(text)));
  return {text.substr(0, equals), number};
}

// Parameters whose names fit one of `exceptions`, in groups of their own.
Groups with_exceptions(Groups groups, const std::vector<std::string>& exceptions) {
  Groups all;
  for (const std::string& text : exceptions) {
    const auto [name, decay] = parse_entry("optim.weight_decay_of", "DECAY", text);
    ParameterGroup own;
    own.weight_decay = decay;
    for (ParameterGroup& group : groups) {
      const auto fits = [&pattern = name](const auto& p) { return models::fits(pattern, p.first); };
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

// What multiplies the learning rate of each parameter. Errors: ConfigError.
std::map<std::string, double> rate_factors(const OptimConfig& config, Module& model) {
  std::map<std::string, double> factors;
  const auto parameters = model.parameters();
  const std::vector<double> by_layer = models::layer_decay_factors(model, config.layer_decay);
  for (size_t i = 0; i < parameters.size(); ++i) factors[parameters[i].name] = by_layer[i];
  std::set<std::string> found;
  for (const std::string& text : config.lr_of) {
    const auto [name, factor] = parse_entry("optim.lr_of", "FACTOR", text);
    if (factor == 0)
      throw ConfigError("optim.lr_of",
                        fmt::format("expected a factor above 0, got {}; train.freeze leaves "
                                    "parameters as they are",
                                    in_quotes(text)));
    bool fitted = false;
    for (auto& [parameter, scale] : factors) {
      if (!models::fits(name, parameter)) continue;
      fitted = true;
      if (found.insert(parameter).second) scale *= factor;
    }
    if (!fitted)
      throw ConfigError(
          "optim.lr_of",
          fmt::format("expected the beginning of a parameter's name, or a pattern of names, got {}",
                      in_quotes(name)));
  }
  return factors;
}

// Cuts each group where the factors of its parameters differ.
Groups with_factors(const Groups& groups, const std::map<std::string, double>& factors) {
  Groups all;
  for (const ParameterGroup& group : groups) {
    const size_t first = all.size();
    for (const auto& p : group.parameters) {
      const double factor = factors.at(p.first);
      const auto same = std::find_if(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
                                     [&](const auto& g) { return g.lr_scale == factor; });
      if (same != all.end()) {
        same->parameters.push_back(p);
        continue;
      }
      all.push_back({{p}, factor, group.weight_decay});
    }
  }
  return all;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Config& all, Module& model,
                                          const distributed::CommunicatorPtr& ranks) {
  const OptimConfig& config = all.optim;
  std::vector<std::pair<std::string, Variable>> parameters;
  for (const auto& p : model.parameters()) parameters.emplace_back(p.name, *p.parameter);
  Groups groups =
      with_exceptions(optim::decay_groups(parameters, config.weight_decay, !config.no_decay_norms),
                      config.weight_decay_of);
  groups = with_factors(groups, rate_factors(config, model));
  for (const OptimizerRow& row : kOptimizers) {
    if (config.name != row.name) continue;
    const auto make = [&row, &all](std::vector<ParameterGroup> own) {
      return row.make(std::move(own), all.optim, static_cast<uint64_t>(all.run.seed));
    };
    std::unique_ptr<Optimizer> optimizer;
    if (all.distributed.sharding == "none" || all.distributed.ranks == 1)
      optimizer = make(std::move(groups));
    else
      optimizer = std::make_unique<distributed::ShardedOptimizer>(
          ranks != nullptr ? ranks : distributed::imagined(all.distributed.ranks), groups, make);
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
    options.three_phase = c.three_phase;
    if (c.cycle_momentum)
      options.momentum = optim::OneCycleOptions::Momentum{c.base_momentum, c.max_momentum};
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
    // Milestones are epochs of the whole run. The schedule counts from the end of the warm-up.
    std::vector<int64_t> milestones;
    for (double epoch : c.milestones)
      milestones.push_back(std::max<int64_t>(std::llround(epoch * per_epoch) - warm, 0));
    rest = optim::step_schedule(lr, milestones, c.gamma);
  }
  FRUGAL_ASSERT(rest != nullptr);
  return optim::warmup(rest, warm, c.warmup_start);
}

}  // namespace frugal::apps
