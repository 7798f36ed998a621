#include "apps/config/make_optimizer.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "apps/config/keys/config_error.h"
#include "core/log.h"
#include "core/words/quoted.h"
#include "distributed/sharded_optimizer.h"
#include "models/embedding_table.h"
#include "models/layer_order.h"
#include "models/name_pattern.h"
#include "optim/averaged.h"
#include "optim/optimizers.h"
#include "optim/registry.h"

namespace frugal::apps {
namespace {

using Groups = std::vector<ParameterGroup>;
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
  optim::BlockwiseOptions state;
  state.tables = models::table_names(model);
  state.seed = static_cast<uint64_t>(all.run.seed);
  by_name::Options own;
  for (const auto& [key, value] : config.own)
    if (optim::kind(config.name).has(key)) own[key] = value;
  const auto make = [&, name = config.name](const Groups& some) {
    return at_section("optim", [&] { return optim::make(name, some, own, state); });
  };
  std::unique_ptr<Optimizer> optimizer;
  if (all.distributed.sharding == "none" || all.distributed.ranks == 1)
    optimizer = make(groups);
  else
    optimizer = std::make_unique<distributed::ShardedOptimizer>(
        ranks != nullptr ? ranks : distributed::imagined(all.distributed.ranks), groups, make);
  if (config.ema == 0) return optimizer;
  optim::EmaOptions average;
  average.decay = config.ema;
  return std::make_unique<optim::Averaged>(std::move(optimizer), std::move(parameters), average);
}

std::vector<by_name::Option<OptimConfig>> OptimConfig::list() {
  namespace range = by_name::range;
  using S = OptimConfig;
  return {{{"lr", range::positive(1e4), "Learning rate: the highest of the schedule."}, &S::lr},
          {{"ema", range::below(0, 1),
            "Evaluate the mean of the weights over time, with this decay; 0: off. "
            "checkpoint/last_average.safetensors holds it, last.safetensors the weights "
            "themselves."},
           &S::ema},
          {{"weight_decay", range::number(0, 1e3), "L2 penalty."}, &S::weight_decay},
          {{"weight_decay_of", range::list(range::any_text(), 0, 64),
            "Another weight decay for parameters by a pattern or the beginning of their names, "
            "such as \"convs.=0.01\" or \"*.bias=0\"; the first that fits counts."},
           &S::weight_decay_of},
          {{"lr_of", range::list(range::any_text(), 0, 64),
            "Another learning rate for some parameters: a pattern or the beginning of their "
            "names and a factor, such as \"*.bias=2\" or \"fc.=10\"; the first that fits "
            "counts."},
           &S::lr_of},
          {{"layer_decay", range::positive(1),
            "Each block has the learning rate of the next one times this, counted from the "
            "last layer, whose factor is 1; 1: off."},
           &S::layer_decay},
          {{"no_decay_norms", range::flag(),
            "Leave biases and the norms' parameters without weight decay."},
           &S::no_decay_norms}};
}

by_name::Value OptimConfig::value(const std::string& key) const {
  if (const auto given = own.find(key); given != own.end()) return given->second;
  if (const optim::Kind& named = optim::kind(name); named.has(key)) return named.usual(key);
  for (const optim::Kind& each : optim::kinds())
    if (each.has(key)) return each.usual(key);
  FRUGAL_ASSERT(false);
  return {};
}

void warn_of_unreached(const Config& config, int64_t steps_per_epoch, int64_t steps) {
  for (const auto& [option, what] : optim::unreached(config.schedule, steps_per_epoch, steps))
    log().warn("schedule.{}: {}", option, what);
}

optim::SchedulePtr make_schedule(const Config& config, int64_t steps_per_epoch, int64_t steps) {
  return at_section("schedule", [&] {
    return optim::make_schedule(config.schedule, config.optim.lr, steps_per_epoch, steps);
  });
}

}  // namespace frugal::apps
