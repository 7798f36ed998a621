#include "models/published_names.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

using Has = std::function<bool(const std::string&)>;

constexpr std::array<const char*, 2> kPrefixes = {"transformer.", "bert."};
constexpr std::array<const char*, 3> kWithoutEffect = {".attn.bias", ".attn.masked_bias",
                                                       "embeddings.position_ids"};
constexpr const char* kNextSentence = "cls.seq_relationship.";

// A tied head: its name, and the name of the tensor that it repeats.
struct Tied {
  const char *copy, *original;
};
constexpr std::array<Tied, 3> kTied = {
    {{"lm_head.weight", "transformer.wte.weight"},
     {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
     {"cls.predictions.decoder.bias", "cls.predictions.bias"}}};

std::string with_ending(const std::string& name, const std::string& old, const char* today) {
  return name.ends_with(old) ? name.substr(0, name.size() - old.size()) + today : name;
}

std::string name_today(const std::string& name, const Has& has) {
  const std::string ended = with_ending(with_ending(name, "LayerNorm.gamma", "LayerNorm.weight"),
                                        "LayerNorm.beta", "LayerNorm.bias");
  for (const std::string& tried : {name, ended}) {
    if (has(tried)) return tried;
    for (const std::string prefix : kPrefixes) {
      if (has(prefix + tried)) return prefix + tried;
      if (tried.starts_with(prefix) && has(tried.substr(prefix.size())))
        return tried.substr(prefix.size());
    }
  }
  return name;
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype() || a.device() != b.device()) return false;
  if (a.device() == kMeta) return true;  // before the values are read, nobody knows better
  if (a.device() != kCpu) return false;
  const Tensor x = ops::contiguous(a), y = ops::contiguous(b);
  return std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.nbytes())) == 0;
}

}  // namespace

NamedTensors as_named_today(const NamedTensors& state, const Has& has) {
  NamedTensors named;
  std::set<std::string> given;
  for (const auto& [name, tensor] : state) given.insert(name);
  for (const auto& [name, tensor] : state) {
    const std::string today = name_today(name, has);
    // never gives two tensors one name
    named.emplace_back(given.contains(today) ? name : today, tensor);
  }
  const auto find = [&](const std::string& name) {
    return std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
  };
  const auto is_idle = [&](const auto& entry) {
    const auto& [name, tensor] = entry;
    if (has(name)) return false;
    if (name.starts_with(kNextSentence)) return true;
    for (const char* ending : kWithoutEffect)
      if (name.ends_with(ending)) return true;
    for (const Tied& tied : kTied)
      if (name == tied.copy) {
        const auto original = find(tied.original);
        return original != named.end() && equal_bits(original->second, tensor);
      }
    return false;
  };
  NamedTensors kept;
  for (const auto& entry : named)
    if (!is_idle(entry)) kept.push_back(entry);
  return kept;
}

}  // namespace frugal::models
