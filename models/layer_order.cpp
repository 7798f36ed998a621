#include "models/layer_order.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace frugal::models {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The beginning of the name that fits the pattern, in which # stands for digits; empty: none does.
std::string beginning(const std::string& name, const std::string& pattern) {
  size_t at = 0;
  for (const char p : pattern) {
    if (p == '#') {
      if (at >= name.size() || !is_digit(name[at])) return "";
      while (at < name.size() && is_digit(name[at])) ++at;
    } else if (at >= name.size() || name[at++] != p) {
      return "";
    }
  }
  return name.substr(0, at);
}

// Swin's stem is features.0, its reductions features.2, .4 and .6.
std::string block_of(const std::string& name) {
  if (name.starts_with("features.0.")) return "";
  for (const char* pattern : {"encoder.layers.encoder_layer_#.", "bert.encoder.layer.#.",
                              "roberta.encoder.layer.#.", "distilbert.transformer.layer.#.",
                              "transformer.h.#.", "model.layers.#.", "layer#.#.", "features.#.#."})
    if (std::string block = beginning(name, pattern); !block.empty()) return block;
  return "";
}

}  // namespace

std::vector<int64_t> layers_of(Module& module) {
  const std::string head = module.head_prefix();
  const auto is_last = [&](const std::string& name) {
    return (!head.empty() && name.starts_with(head)) || name.starts_with("cls.") ||
           name.starts_with("bert.pooler.") || name.starts_with("pre_classifier.") ||
           name.starts_with("lm_head.") || name.starts_with("vocab_");
  };
  constexpr int64_t kLast = -1;
  std::map<std::string, int64_t> blocks;
  std::vector<int64_t> all;
  for (const auto& p : module.parameters()) {
    const auto count = static_cast<int64_t>(blocks.size());
    const std::string block = block_of(p.name);
    if (is_last(p.name))
      all.push_back(kLast);
    else if (!block.empty())
      all.push_back(blocks.emplace(block, count + 1).first->second);
    else if (count > 0 && !beginning(p.name, "features.#.").empty())
      all.push_back(count + 1);
    else
      all.push_back(count);
  }
  for (int64_t& layer : all)
    if (layer == kLast) layer = static_cast<int64_t>(blocks.size()) + 1;
  return all;
}

std::vector<double> layer_decay_factors(Module& module, double decay) {
  const std::vector<int64_t> layers = layers_of(module);
  if (layers.empty()) return {};
  const int64_t last = *std::max_element(layers.begin(), layers.end());
  std::vector<double> factors;
  for (const int64_t layer : layers)
    factors.push_back(std::pow(decay, static_cast<double>(last - layer)));
  return factors;
}

}  // namespace frugal::models
