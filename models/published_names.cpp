#include "models/published_names.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

using Has = std::function<bool(const std::string&)>;

constexpr std::array<const char*, 4> kWrappers = {"module.", "_orig_mod.", "model.", "trunk."};
constexpr std::array<const char*, 5> kPrefixes = {"transformer.", "bert.", "model.", "roberta.",
                                                  "distilbert."};
constexpr std::array<const char*, 2> kPrefixesOfImages = {"vit.", "resnet."};
constexpr std::array<const char*, 4> kWithoutEffect = {
    ".attn.bias", ".attn.masked_bias", "embeddings.position_ids", ".rotary_emb.inv_freq"};
constexpr std::array<const char*, 7> kUnused = {
    "cls.seq_relationship.", "bert.pooler.",   "roberta.pooler.", "vit.pooler.", "pooler.",
    "aux_classifier.",       "auxiliary_head."};
// The file of a self-supervised run has its trunk under the first name. Names that begin with one
// of the others belong to what the trunk learns with.
constexpr const char* kTrunk = "trunk.";
constexpr std::array<const char*, 5> kBesideTrunk = {"projector.", "predictor.", "target_trunk.",
                                                     "target_projector.", "queue"};
constexpr std::array<const char*, 9> kHeads = {
    "fc.", "linear.", "head.", "heads.", "classifier.", "cls.", "score.", "lm_head.", "vocab_"};

// A tied head: its name, and the name of the tensor that it repeats.
struct Tied {
  const char *copy, *original;
};
constexpr std::array<Tied, 7> kTied = {
    {{"lm_head.weight", "transformer.wte.weight"},
     {"lm_head.weight", "model.embed_tokens.weight"},
     {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
     {"cls.predictions.decoder.bias", "cls.predictions.bias"},
     {"lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
     {"lm_head.decoder.bias", "lm_head.bias"},
     {"vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"}}};

// In `from`, # stands for digits and * for a last part without a dot. `to` has the same again; + is
// the digits of a # plus 1. With part >= 0 the tensor is this one of kParts that are joined.
struct Rule {
  const char *from, *to;
  int part = -1;
};
constexpr int kParts = 3;
#define FRUGAL_VIT "encoder.layers.encoder_layer_#."
constexpr Rule kRules[] = {
    // timm's ViT
    {"cls_token", "class_token"},
    {"pos_embed", "encoder.pos_embedding"},
    {"patch_embed.proj.*", "conv_proj.*"},
    {"blocks.#.norm1.*", FRUGAL_VIT "ln_1.*"},
    {"blocks.#.norm2.*", FRUGAL_VIT "ln_2.*"},
    {"blocks.#.attn.qkv.*", FRUGAL_VIT "self_attention.in_proj_*"},
    {"blocks.#.attn.proj.*", FRUGAL_VIT "self_attention.out_proj.*"},
    {"blocks.#.mlp.fc1.*", FRUGAL_VIT "mlp.0.*"},
    {"blocks.#.mlp.fc2.*", FRUGAL_VIT "mlp.3.*"},
    {"norm.*", "encoder.ln.*"},
    {"head.*", "heads.head.*"},
    // Hugging Face's ViT
    {"embeddings.cls_token", "class_token"},
    {"embeddings.position_embeddings", "encoder.pos_embedding"},
    {"embeddings.patch_embeddings.projection.*", "conv_proj.*"},
    {"encoder.layer.#.layernorm_before.*", FRUGAL_VIT "ln_1.*"},
    {"encoder.layer.#.layernorm_after.*", FRUGAL_VIT "ln_2.*"},
    {"encoder.layer.#.attention.attention.query.*", FRUGAL_VIT "self_attention.in_proj_*", 0},
    {"encoder.layer.#.attention.attention.key.*", FRUGAL_VIT "self_attention.in_proj_*", 1},
    {"encoder.layer.#.attention.attention.value.*", FRUGAL_VIT "self_attention.in_proj_*", 2},
    {"encoder.layer.#.attention.output.dense.*", FRUGAL_VIT "self_attention.out_proj.*"},
    {"encoder.layer.#.intermediate.dense.*", FRUGAL_VIT "mlp.0.*"},
    {"encoder.layer.#.output.dense.*", FRUGAL_VIT "mlp.3.*"},
    {"layernorm.*", "encoder.ln.*"},
    {"classifier.*", "heads.head.*"},
    // torchvision's ViT and DenseNet in files of their first versions
    {"encoder.layers.encoder_layer_#.mlp.linear_1.*", FRUGAL_VIT "mlp.0.*"},
    {"encoder.layers.encoder_layer_#.mlp.linear_2.*", FRUGAL_VIT "mlp.3.*"},
    {"features.denseblock#.denselayer#.norm.#.*", "features.denseblock#.denselayer#.norm#.*"},
    {"features.denseblock#.denselayer#.conv.#.*", "features.denseblock#.denselayer#.conv#.*"},
    // Hugging Face's ResNet
    {"embedder.embedder.convolution.*", "conv1.*"},
    {"embedder.embedder.normalization.*", "bn1.*"},
    {"encoder.stages.#.layers.#.layer.#.convolution.*", "layer+.#.conv+.*"},
    {"encoder.stages.#.layers.#.layer.#.normalization.*", "layer+.#.bn+.*"},
    {"encoder.stages.#.layers.#.shortcut.convolution.*", "layer+.#.downsample.0.*"},
    {"encoder.stages.#.layers.#.shortcut.normalization.*", "layer+.#.downsample.1.*"},
    {"classifier.1.*", "fc.*"},
    // the small ResNets with the names of the large ones
    {"layer#.#.downsample.#.*", "layer#.#.shortcut.#.*"},
    {"fc.*", "linear.*"},
};
#undef FRUGAL_VIT

// What the name is called under the rule; nothing if it does not fit.
std::optional<std::string> renamed(const Rule& rule, const std::string& name) {
  constexpr size_t kMostDigits = 6;
  std::vector<std::string> numbers;
  std::string last, result;
  size_t at = 0;
  for (const char* p = rule.from; *p != 0; ++p) {
    if (*p == '*') {
      last = name.substr(at);
      at = name.size();
      if (last.empty() || last.find('.') != std::string::npos) return {};
    } else if (*p == '#') {
      const size_t begin = at;
      while (at < name.size() && name[at] >= '0' && name[at] <= '9') ++at;
      if (at == begin || at - begin > kMostDigits) return {};
      numbers.push_back(name.substr(begin, at - begin));
    } else if (at >= name.size() || name[at++] != *p) {
      return {};
    }
  }
  if (at != name.size()) return {};
  size_t next = 0;
  for (const char* p = rule.to; *p != 0; ++p) {
    if (*p == '*')
      result += last;
    else if (*p == '#')
      result += numbers[next++];
    else if (*p == '+')
      result += std::to_string(std::stoi(numbers[next++]) + 1);
    else
      result += *p;
  }
  return result;
}

std::string with_ending(const std::string& name, const std::string& old, const char* today) {
  return name.ends_with(old) ? name.substr(0, name.size() - old.size()) + today : name;
}

std::string unwrapped(std::string name, const Has& has) {
  for (bool again = true; again && !has(name);) {
    again = false;
    for (const std::string wrapper : kWrappers)
      if (name.starts_with(wrapper)) {
        name = name.substr(wrapper.size());
        again = true;
      }
  }
  return name;
}

struct Today {
  std::string name;
  int part = -1;
};

Today name_today(const std::string& published, const Has& has) {
  const std::string name = unwrapped(published, has);
  const std::string ended = with_ending(with_ending(name, "LayerNorm.gamma", "LayerNorm.weight"),
                                        "LayerNorm.beta", "LayerNorm.bias");
  for (const std::string& tried : {name, ended}) {
    if (has(tried)) return {tried};
    for (const std::string prefix : kPrefixes) {
      if (has(prefix + tried)) return {prefix + tried};
      if (tried.starts_with(prefix) && has(tried.substr(prefix.size())))
        return {tried.substr(prefix.size())};
    }
  }
  std::string bare = name;
  for (const std::string prefix : kPrefixesOfImages)
    if (name.starts_with(prefix)) bare = name.substr(prefix.size());
  for (const Rule& rule : kRules)
    if (const auto today = renamed(rule, bare); today && has(*today)) return {*today, rule.part};
  return {name};
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype() || a.device() != b.device()) return false;
  if (a.device() == kMeta) return true;  // before the values are read, nobody knows better
  if (a.device() != kCpu) return false;
  const Tensor x = ops::contiguous(a), y = ops::contiguous(b);
  return std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.nbytes())) == 0;
}

// One tensor of parts that lie below each other; nothing if one is missing or they do not fit.
std::optional<Tensor> joined(const std::array<const Tensor*, kParts>& parts) {
  Shape shape;
  for (const Tensor* part : parts) {
    if (part == nullptr || part->dim() == 0 || part->dtype() != parts[0]->dtype()) return {};
    Shape own = part->shape();
    if (shape.dim() == 0) {
      shape = own;
      continue;
    }
    own[0] = shape[0];
    if (own != shape) return {};
    shape[0] += part->size(0);
  }
  const Tensor all = Tensor::empty(shape, parts[0]->dtype(), parts[0]->device());
  if (all.device() == kMeta) return all;
  int64_t begin = 0;
  for (const Tensor* part : parts) {
    ops::copy_into(all.slice(0, begin, begin + part->size(0)), *part);
    begin += part->size(0);
  }
  return all;
}

}  // namespace

GridSampling sampling_of(const NamedTensors& published) {
  for (const auto& [name, tensor] : published) {
    if (name.ends_with("pos_embed")) return GridSampling::smooth;
    if (name.ends_with("embeddings.position_embeddings")) return GridSampling::centres;
  }
  return GridSampling::corners;
}

bool names_a_head(const std::string& name) {
  return std::any_of(kHeads.begin(), kHeads.end(),
                     [&](const char* head) { return name.starts_with(head); });
}

NamedTensors as_named_today(const NamedTensors& state, const Has& has,
                            std::vector<std::string>* dropped) {
  struct Entry {
    std::string published, name;
    Tensor tensor;
  };
  std::vector<Entry> named;
  std::set<std::string> taken;
  for (const auto& [name, tensor] : state) taken.insert(name);
  std::map<std::string, std::array<const Tensor*, kParts>> parts;
  std::vector<std::pair<Entry, std::string>> of_parts;  // as in the file, and today's name
  for (const auto& [name, tensor] : state) {
    const Today today = name_today(name, has);
    if (today.part >= 0) {
      parts[today.name][static_cast<size_t>(today.part)] = &tensor;
      of_parts.emplace_back(Entry{name, name, tensor}, today.name);
      continue;
    }
    // never gives two tensors one name
    const bool free = today.name == name || taken.insert(today.name).second;
    named.push_back({name, free ? today.name : name, tensor});
  }
  std::set<std::string> whole;
  for (const auto& [name, group] : parts) {
    if (taken.contains(name)) continue;
    if (const auto all = joined(group)) {
      named.push_back({name, name, *all});
      whole.insert(name);
    }
  }
  for (const auto& [entry, today] : of_parts)
    if (!whole.contains(today)) named.push_back(entry);
  const auto find = [&](const std::string& name) {
    return std::find_if(named.begin(), named.end(), [&](const Entry& e) { return e.name == name; });
  };
  const bool of_trunk = std::any_of(state.begin(), state.end(), [](const auto& entry) {
    return entry.first.starts_with(kTrunk);
  });
  const auto is_idle = [&](const Entry& entry) {
    const std::string& name = entry.name;
    if (has(name)) return false;
    if (of_trunk)
      for (const std::string prefix : kBesideTrunk)
        if (name.starts_with(prefix)) return true;
    for (const std::string prefix : kUnused)
      if (name.starts_with(prefix)) return true;
    for (const char* ending : kWithoutEffect)
      if (name.ends_with(ending)) return true;
    for (const Tied& tied : kTied)
      if (name == tied.copy) {
        const auto original = find(tied.original);
        if (original != named.end()) return equal_bits(original->tensor, entry.tensor);
      }
    return false;
  };
  NamedTensors kept;
  for (const Entry& entry : named)
    if (!is_idle(entry))
      kept.emplace_back(entry.name, entry.tensor);
    else if (dropped != nullptr)
      dropped->push_back(entry.published);
  return kept;
}

}  // namespace frugal::models
