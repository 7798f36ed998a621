#include "models/adapters/adapters.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "core/value.h"
#include "core/words/quoted.h"
#include "models/freeze.h"
#include "models/generate.h"
#include "models/matrix_weight.h"

namespace frugal::models {
namespace {

constexpr const char* kAllLinear = "all-linear";
constexpr size_t kLongestPattern = 4096;
constexpr size_t kNamedLayers = 6;  // the layers that a message lists

std::regex regex_of(const std::string& option, const std::string& pattern) {
  if (pattern.size() > kLongestPattern)
    throw OptionError(option, fmt::format("expected a pattern of at most {} characters, got {}",
                                          kLongestPattern, pattern.size()));
  try {
    return std::regex(pattern, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    throw OptionError(option,
                      fmt::format("expected a regular expression, got {}", in_quotes(pattern)));
  }
}

// "PATTERN=VALUE"
std::pair<std::string, double> parts_of(const std::string& option, const std::string& entry) {
  const size_t at = entry.rfind('=');
  double value = 0;
  size_t read = 0;
  try {
    if (at != std::string::npos) value = std::stod(entry.substr(at + 1), &read);
  } catch (const std::exception&) {
    read = 0;
  }
  if (at == 0 || at == std::string::npos || read == 0 || read != entry.size() - at - 1 ||
      !(value > 0) || value > 1e9)
    throw OptionError(option, fmt::format("expected entries PATTERN=NUMBER, such as q_proj=16, got "
                                          "{}",
                                          in_quotes(entry)));
  return {entry.substr(0, at), value};
}

// Does the pattern fit the whole name of the module, or its end behind a dot?
bool pattern_fits(const std::string& option, const std::string& pattern,
                  const std::string& module) {
  return is_fitted_by(option, "(.*\\.)?(" + pattern + ")", module);
}

double value_for(const std::string& option, const std::vector<std::string>& entries,
                 const std::string& module, double usual) {
  for (const std::string& entry : entries) {
    const auto [pattern, value] = parts_of(option, entry);
    if (pattern_fits(option, pattern, module)) return value;
  }
  return usual;
}

// The module of a parameter: "fc" of "fc.weight".
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

// Which modules there are: those that may carry an adapter, the output head among them, and others
// that hold parameters.
struct Targetable {
  std::vector<AdaptedLayer> layers;
  std::vector<std::string> others;
  std::string head;  // the name of the output head's module; empty: there is none
  bool is_in_head(const std::string& name) const {
    return !head.empty() && (name == head || name.starts_with(head + "."));
  }
};

Targetable targetable_in(Module& network) {
  Targetable found;
  std::set<std::string> linear;
  for (const Module::NamedModule& m : network.modules())
    if (LinearLayer* layer = m.module->as_linear_layer(); layer != nullptr) {
      found.layers.push_back({m.name, layer});
      linear.insert(m.name);
    } else if (auto* table = dynamic_cast<EmbeddingTable*>(m.module)) {
      found.layers.push_back({m.name, nullptr, table});
      linear.insert(m.name);
    }
  std::set<std::string> seen;
  for (const Module::NamedParameter& p : network.parameters())
    if (const std::string name = module_of(p.name);
        !linear.contains(name) && seen.insert(name).second)
      found.others.push_back(name);
  found.head = module_of(network.head_prefix());
  return found;
}

// The layers that `options` names.
std::vector<AdaptedLayer> targets_in(const Targetable& all, const AdapterOptions& options) {
  std::vector<std::string> known;
  for (const AdaptedLayer& each : all.layers)
    if (!all.is_in_head(each.name)) known.push_back(each.name);
  const std::vector<std::string>& targets = options.targets;
  const bool every = options.is_pattern && targets.size() == 1 && targets[0] == kAllLinear;
  std::vector<AdaptedLayer> chosen;
  if (every) {
    for (const AdaptedLayer& each : all.layers)
      if (each.layer != nullptr && !all.is_in_head(each.name)) chosen.push_back(each);
    if (chosen.empty())
      throw OptionError("targets", "expected a network with linear layers, got none in this one");
    return chosen;
  }
  if (targets.empty())
    throw OptionError("targets", "expected names of modules, got none; linear layers here are " +
                                     some_of(known, kNamedLayers));
  // A text that would name layers if it were in a list.
  const auto hint_for = [&](const std::string& target) {
    const bool names = options.is_pattern && std::any_of(all.layers.begin(), all.layers.end(),
                                                         [&](const AdaptedLayer& each) {
                                                           return is_named_by(target, each.name);
                                                         });
    return names ? fmt::format(
                       " as a whole, as a text is a regular expression; in a list, "
                       "[\"{}\"], it names the layers that end with it",
                       printable(target))
                 : "";
  };
  std::set<std::string> taken;
  for (const std::string& target : targets) {
    const std::regex pattern = options.is_pattern ? regex_of("targets", target) : std::regex();
    const auto fits = [&](const std::string& name) {
      return options.is_pattern ? std::regex_match(name, pattern) : is_named_by(target, name);
    };
    bool found = false;
    for (const AdaptedLayer& each : all.layers) {
      if (!fits(each.name)) continue;
      if (all.is_in_head(each.name))
        throw OptionError("targets", fmt::format("expected no output head, got {}, which fits {}; "
                                                 "modules_to_save trains it as it is",
                                                 in_quotes(target), each.name));
      if (each.table != nullptr && options.has_magnitude())
        throw OptionError("targets", fmt::format("expected linear layers with lengths of rows, got "
                                                 "the embedding {}, which fits {}",
                                                 each.name, in_quotes(target)));
      found = true;
      taken.insert(each.name);
    }
    for (const std::string& other : all.others)
      if (fits(other))
        throw OptionError("targets",
                          fmt::format("expected linear layers or embeddings of tokens, got "
                                      "{}, which fits {}",
                                      in_quotes(target), other));
    if (!found)
      throw OptionError(
          "targets",
          fmt::format("expected names of linear layers, got {}, which fits "
                      "none{}; they are {}",
                      in_quotes(target), hint_for(target), some_of(known, kNamedLayers)));
  }
  for (const AdaptedLayer& each : all.layers)
    if (taken.contains(each.name)) chosen.push_back(each);
  return chosen;
}

// Errors: an entry PATTERN=VALUE that fits no layer with an adapter.
void check_patterns(const std::string& option, const std::vector<std::string>& entries,
                    const std::vector<AdaptedLayer>& adapted) {
  for (const std::string& entry : entries) {
    const std::string pattern = parts_of(option, entry).first;
    if (std::any_of(adapted.begin(), adapted.end(), [&](const AdaptedLayer& each) {
          return pattern_fits(option, pattern, each.name);
        }))
      continue;
    std::vector<std::string> names;
    for (const AdaptedLayer& each : adapted) names.push_back(each.name);
    throw OptionError(option, fmt::format("expected patterns that fit a layer with an adapter, "
                                          "got {}, which fits none; they are {}",
                                          in_quotes(entry), some_of(names, kNamedLayers)));
  }
}

// What is trained, in the patterns of freeze().
std::vector<std::string> trained_of(Module& network, const std::vector<AdaptedLayer>& adapted,
                                    const AdapterOptions& options) {
  std::vector<std::string> patterns{"*"};
  const auto train = [&](const std::string& name) { patterns.push_back("!" + name); };
  const std::vector<Module::NamedParameter> parameters = network.parameters();
  for (const Module::NamedParameter& p : parameters) {
    const std::string module = module_of(p.name);
    const bool carries = std::any_of(adapted.begin(), adapted.end(),
                                     [&](const AdaptedLayer& each) { return each.name == module; });
    const bool is_bias = p.name.find("bias") != std::string::npos;
    if (is_of_adapter(p.name) || (is_bias && options.bias == TrainedBiases::all) ||
        (is_bias && carries && options.bias == TrainedBiases::lora_only))
      train(p.name);
  }
  for (const std::string& entry : options.trained) {
    bool found = false;
    for (const Module::NamedParameter& p : parameters) {
      // A module, or one inside of it.
      std::string module = module_of(p.name);
      while (!module.empty() && !is_named_by(entry, module)) module = module_of(module);
      if (module.empty()) continue;
      if (std::any_of(adapted.begin(), adapted.end(), [&](const AdaptedLayer& each) {
            return p.name.starts_with(each.name + ".");
          }))
        throw OptionError("modules_to_save",
                          fmt::format("expected modules without an adapter, got {}, which fits {}",
                                      in_quotes(entry), module_of(p.name)));
      found = true;
      train(p.name);
    }
    if (!found)
      throw OptionError("modules_to_save",
                        fmt::format("expected names of modules with parameters, got {}, which fits "
                                    "none",
                                    in_quotes(entry)));
  }
  return patterns;
}

}  // namespace

namespace {

by_name::Range texts_or_text() {
  by_name::Range range = by_name::range::list(by_name::range::any_text(), 1, 4096);
  range.may_be_text = true;
  return range;
}

}  // namespace

std::vector<by_name::Option<AdapterOptions>> AdapterOptions::list() {
  using O = AdapterOptions;
  namespace range = by_name::range;
  const by_name::ReadWhen<O> adapts{
      "@type other than none", {"type"}, [](const O& o) { return o.type != AdapterType::none; }};
  return {
      {{"type", range::choice("none, lora, rslora, dora, rsdora"),
        "Trains small matrices beside frozen linear layers, and nothing else: lora, or dora, which "
        "also trains the lengths of the rows of a weight. rslora and rsdora divide alpha by the "
        "square root of the rank. none: no adapters."},
       &O::type},
      {{"rank", range::integer(1, 1 << 16), "The rank of the matrices."}, &O::rank, adapts},
      {{"alpha", range::positive(1e9), "What an adapter adds is multiplied by alpha / rank."},
       &O::alpha,
       adapts},
      {{"dropout", range::below(0, 1), "Dropout of what adapters read, in training."},
       &O::dropout,
       adapts},
      {{"targets", texts_or_text(),
        "Layers with an adapter. A list: names of modules, or the ends of names behind a dot, such "
        "as q_proj. A text: a regular expression that fits whole names, or all-linear, every "
        "linear "
        "layer but the output head."},
       [](O& o, const by_name::Value& value) {
         o.is_pattern = !value.is<by_name::Value::List>();
         o.targets.clear();
         if (o.is_pattern) return o.targets.push_back(value.text());
         for (const by_name::Value& each : value.list()) o.targets.push_back(each.text());
       },
       [](const O& o) -> by_name::Value {
         if (o.is_pattern) return o.targets[0];
         return by_name::Value::List(o.targets.begin(), o.targets.end());
       },
       adapts},
      {{"rank_pattern", range::list(range::any_text(), 0, 4096),
        "Ranks of some layers, each PATTERN=RANK: the first regular expression counts that fits "
        "the "
        "name of a module, or its end behind a dot."},
       &O::ranks,
       adapts},
      {{"alpha_pattern", range::list(range::any_text(), 0, 4096),
        "Alphas of some layers, each PATTERN=ALPHA, as in rank_pattern."},
       &O::alphas,
       adapts},
      {{"modules_to_save", range::list(range::any_text(), 0, 4096),
        "Modules that are trained as they are, such as a head: their names, or the ends of the "
        "names behind a dot."},
       &O::trained,
       adapts},
      {{"bias", range::choice("none, all, lora_only"),
        "Which biases are trained, too: all, or those of layers with an adapter."},
       &O::bias,
       adapts},
  };
}

int64_t AdapterOptions::rank_of(const std::string& module) const {
  return static_cast<int64_t>(value_for("rank_pattern", ranks, module, static_cast<double>(rank)));
}

double AdapterOptions::alpha_of(const std::string& module) const {
  return value_for("alpha_pattern", alphas, module, alpha);
}

double AdapterOptions::scale_of(const std::string& module) const {
  const auto r = static_cast<double>(rank_of(module));
  return alpha_of(module) / (is_rank_stabilized() ? std::sqrt(r) : r);
}

void add_adapters(Module& network, Init& init, const AdapterOptions& options) {
  if (options.type == AdapterType::none) return;
  for (const std::string& entry : options.ranks)
    if (const double rank = parts_of("rank_pattern", entry).second;
        rank != std::floor(rank) || rank > 1 << 16)
      throw OptionError("rank_pattern",
                        fmt::format("expected whole numbers, got {}", in_quotes(entry)));
  const std::vector<AdaptedLayer> chosen = targets_in(targetable_in(network), options);
  check_patterns("rank_pattern", options.ranks, chosen);
  check_patterns("alpha_pattern", options.alphas, chosen);
  for (const AdaptedLayer& each : chosen) {
    const std::string& name = each.name;
    const int64_t rank = options.rank_of(name);
    const Shape shape = each.shape();
    if (rank > std::min(shape[0], shape[1]))
      throw OptionError("rank",
                        fmt::format("expected at most {} for {}, whose weight is {}, got {}",
                                    std::min(shape[0], shape[1]), name, shape, rank));
    if (each.table != nullptr) {
      each.table->add_adapter(init, rank, options.scale_of(name));
      continue;
    }
    each.layer->add_adapter(init, {.rank = rank,
                                   .scale = options.scale_of(name),
                                   .dropout = options.dropout,
                                   .magnitude = options.has_magnitude()});
  }
  freeze(network, trained_of(network, chosen, options));
}

std::vector<AdaptedLayer> adapted_layers(Module& network) {
  std::vector<AdaptedLayer> all;
  for (const Module::NamedModule& m : network.modules())
    if (LinearLayer* layer = m.module->as_linear_layer();
        layer != nullptr && layer->adapter() != nullptr)
      all.push_back({m.name, layer});
    else if (auto* table = dynamic_cast<EmbeddingTable*>(m.module);
             table != nullptr && table->adapter() != nullptr)
      all.push_back({m.name, nullptr, table});
  return all;
}

Shape AdaptedLayer::shape() const {
  return layer != nullptr ? Shape{layer->matrix().out(), layer->matrix().in()}
                          : table->weight().value().shape();
}

int64_t AdaptedLayer::rank() const {
  return layer != nullptr ? layer->adapter()->a.size(0) : table->adapter()->b.size(1);
}

double AdaptedLayer::scale() const {
  return layer != nullptr ? layer->adapter()->scale : table->adapter()->scale;
}

void reset_magnitudes(Module& network) {
  for (const AdaptedLayer& each : adapted_layers(network))
    if (each.layer != nullptr) each.layer->reset_magnitude();
}

bool merge_adapters(Module& network) {
  bool unties = false;
  for (const AdaptedLayer& each : adapted_layers(network)) {
    if (each.layer != nullptr) {
      each.layer->merge_adapter();
      continue;
    }
    if (auto* const decoder = dynamic_cast<LanguageModel*>(&network);
        decoder != nullptr && each.table->is_head()) {
      decoder->untie_head();
      unties = true;
    }
    each.table->merge_adapter();
  }
  network.leave_out_frozen(false);
  return unties;
}

bool is_named_by(const std::string& entry, const std::string& module) {
  return module == entry || module.ends_with("." + entry);
}

bool is_fitted_by(const std::string& option, const std::string& pattern, const std::string& name) {
  return std::regex_match(name, regex_of(option, pattern));
}

bool is_of_adapter(const std::string& parameter) {
  return parameter.starts_with("lora_") || parameter.find(".lora_") != std::string::npos;
}

}  // namespace frugal::models
