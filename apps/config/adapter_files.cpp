#include "apps/config/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "apps/config/adapter_keys.h"
#include "apps/config/hub_folder.h"
#include "apps/config/make_model.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"
#include "data/formats/gguf.h"
#include "data/formats/safetensors.h"
#include "models/adapters/adapters.h"
#include "models/state.h"
#include "models/zoo/decoder.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "train/run/weights.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;
using adapter_file::fail;
using adapter_file::is_inside;
using adapter_file::Keys;
using adapter_file::PeftModules;
using adapter_file::texts;
using models::AdapterOptions;
using models::AdapterType;
using models::DecoderFamily;
using models::TrainedBiases;
using NamedTensors = models::NamedTensors;

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kPeftTensors = "adapter_model.safetensors";
constexpr const char* kMlxTensors = "adapters.safetensors";
constexpr const char* kPeftPrefix = "base_model.model.";
constexpr const char* kA = ".lora_A.weight";
constexpr const char* kB = ".lora_B.weight";
constexpr const char* kMagnitude = ".lora_magnitude_vector";
constexpr const char* kTableA = ".lora_embedding_A";
constexpr const char* kTableB = ".lora_embedding_B";
constexpr const char* kBaseWeight = ".base_layer.weight";  // beside the adapter of an embedding

// ---- which file it is

struct Source {
  AdapterFormat format;
  std::string tensors, config;  // files; a GGUF file is both
  Json json;                    // what `config` holds; GGUF: nothing
};

Source source_of(const std::string& path) {
  std::error_code none;
  if (path.ends_with(".gguf")) {
    if (!fs::is_regular_file(path, none)) fail(path, "expected a file, got none");
    return {AdapterFormat::gguf, path, path, {}};
  }
  const fs::path folder =
      fs::is_directory(path, none) ? fs::path(path) : fs::path(path).parent_path();
  Source source{AdapterFormat::peft, "", (folder / kConfigFile).string(), {}};
  if (!fs::is_regular_file(source.config, none))
    fail(path, fmt::format("expected a folder with {}, or a file .gguf", kConfigFile));
  source.json = read_json(source.config);
  if (!source.json.is_object()) fail(source.config, "expected an object");
  if (!source.json.contains("peft_type")) source.format = AdapterFormat::mlx;
  const bool peft = source.format == AdapterFormat::peft;
  source.tensors = (folder / (peft ? kPeftTensors : kMlxTensors)).string();
  if (!fs::is_regular_file(source.tensors, none))
    fail(source.tensors,
         fs::exists(folder / "adapter_model.bin", none)
             ? "expected safetensors, got a pickle of PyTorch, which may run any program"
             : "expected the tensors of the adapter, got no such file");
  return source;
}

// ---- names of tensors

// A tensor's name taken apart: the module, and what of it the tensor is: an ending as kA, or the
// name of a parameter that is trained as it is.
struct Place {
  std::string module, what;
};

std::string without(const std::string& text, const std::string& ending) {
  return text.substr(0, text.size() - ending.size());
}

// PEFT's and ours.
Place place_of(std::string name) {
  if (name.starts_with(kPeftPrefix)) name = name.substr(std::string(kPeftPrefix).size());
  if (const std::string old = std::string(kMagnitude) + ".weight"; name.ends_with(old))
    name = without(name, ".weight");
  for (const char* what : {kA, kB, kMagnitude, kTableA, kTableB, kBaseWeight})
    if (name.ends_with(what)) return {without(name, what), what};
  const std::string inner = ".base_layer.bias";
  if (name.ends_with(inner)) name = without(name, inner) + ".bias";
  return {"", name};
}

Place place_in_mlx(const std::string& name) {
  const std::pair<const char*, const char*> endings[] = {
      {".lora_a", kA}, {".lora_b", kB}, {".m", kMagnitude}};
  for (const auto& [theirs, ours] : endings)
    if (name.ends_with(theirs)) return {without(name, theirs), ours};
  return {"", name};
}

// Products of a layer: their ends here, and their names in GGUF files.
constexpr std::pair<const char*, const char*> kGgufNames[] = {
    {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"}, {"self_attn.o_proj", "attn_output"},
    {"mlp.gate_proj", "ffn_gate"},  {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"}};
constexpr const char* kLayers = "model.layers.";
constexpr const char* kBlocks = "blk.";

// Puts the number behind `from` behind `to`, and another name behind the number; empty: no such
// name.
std::string renamed(const std::string& name, const std::string& from, const std::string& to,
                    bool to_gguf) {
  if (!name.starts_with(from)) return "";
  const size_t dot = name.find('.', from.size());
  if (dot == std::string::npos) return "";
  const std::string number = name.substr(from.size(), dot - from.size()),
                    rest = name.substr(dot + 1);
  for (const auto& [ours, theirs] : kGgufNames)
    if (rest == (to_gguf ? ours : theirs)) return to + number + "." + (to_gguf ? theirs : ours);
  return "";
}

constexpr const char* kTable = "model.embed_tokens";
constexpr const char* kGgufTable = "token_embd";

Place place_in_gguf(const std::string& name) {
  const std::string table = std::string(kGgufTable) + ".weight";
  if (name == table + ".lora_a") return {kTable, kTableA};
  if (name == table + ".lora_b") return {kTable, kTableB};
  const std::pair<const char*, const char*> endings[] = {{".weight.lora_a", kA},
                                                         {".weight.lora_b", kB}};
  for (const auto& [theirs, ours] : endings)
    if (name.ends_with(theirs))
      if (const std::string module = renamed(without(name, theirs), kBlocks, kLayers, false);
          !module.empty())
        return {module, ours};
  return {"", name};
}

// ---- architectures of llama.cpp

// Null: it has no adapters for such a network here.
const char* architecture_of(DecoderFamily family) {
  switch (family) {
    case DecoderFamily::llama:
    case DecoderFamily::mistral:
      return "llama";
    case DecoderFamily::qwen2:
      return "qwen2";
    case DecoderFamily::qwen3:
      return "qwen3";
    case DecoderFamily::smollm3:
      return "smollm3";
    case DecoderFamily::gemma2:
      return "gemma2";
    case DecoderFamily::gemma3:
      return "gemma3";
  }
  return nullptr;
}

// llama.cpp turns pairs of neighbours in these networks, and pairs of halves in others.
bool turns_neighbours(DecoderFamily family) {
  return family == DecoderFamily::llama || family == DecoderFamily::mistral ||
         family == DecoderFamily::smollm3;
}

// The rows of each head in the other order: halves one behind the other, or neighbours.
Tensor reordered(const Tensor& b, int64_t heads, bool to_neighbours) {
  const int64_t half = b.size(0) / heads / 2, columns = b.size(1);
  const Tensor split =
      to_neighbours ? b.view({heads, 2, half, columns}) : b.view({heads, half, 2, columns});
  return ops::contiguous(split.transpose(1, 2)).view({b.size(0), columns});
}

// How many heads the rows of this product make, if llama.cpp has them in another order; else 0.
int64_t reordered_heads(const models::DecoderOptions& options, const std::string& module) {
  if (!turns_neighbours(options.family)) return 0;
  if (module.ends_with(".q_proj")) return options.heads;
  return module.ends_with(".k_proj") ? options.key_heads() : 0;
}

models::DecoderOptions llama_options(const Config& config) {
  if (config.model.name != "decoder")
    throw ConfigError("model.name", fmt::format("expected decoder with adapters in GGUF files, got "
                                                "{}",
                                                config.model.name));
  return decoder_options(config.model);
}

// ---- the keys of files

// {"q_proj": 16} as ["q_proj=16"].
Json pattern_entries(Keys& all, const char* key) {
  Json entries = Json::array();
  const Json* given = all.find(key);
  if (given == nullptr) return entries;
  if (!given->is_object()) all.wrong(key, "an object");
  for (const auto& [pattern, value] : given->items()) {
    if (!value.is_number()) all.wrong(key, "numbers");
    entries.push_back(pattern + "=" + value.dump());
  }
  return entries;
}

// The modules with an adapter, each with its rank, in the order of the file.
struct Ranks {
  std::vector<std::pair<std::string, int64_t>> of;
  // The rank that most modules have.
  int64_t usual() const {
    std::map<int64_t, int64_t> counts;
    for (const auto& [module, rank] : of) ++counts[rank];
    int64_t best = 8, most = 0;
    for (const auto& [rank, count] : counts)
      if (count > most) most = count, best = rank;
    return best;
  }
  Json names() const {
    Json all = Json::array();
    for (const auto& [module, rank] : of) all.push_back(module);
    return all;
  }
};

// The ranks of tensors that are `what`, along axis `axis`.
template <class Each>
Ranks ranks_of(const Each& each_tensor, Place (*place)(const std::string&), int axis) {
  Ranks ranks;
  each_tensor([&](const std::string& name, const Shape& shape) {
    const Place found = place(name);
    if (found.what == kA && shape.dim() == 2) ranks.of.emplace_back(found.module, shape[axis]);
    if (found.what == kTableB && shape.dim() == 2) ranks.of.emplace_back(found.module, shape[1]);
  });
  return ranks;
}

Place place_of_peft(const std::string& name) { return place_of(name); }

auto tensors_of(const data::SafetensorsFile& file) {
  return [&file](const auto& f) {
    for (const std::string& name : file.names()) f(name, file.info(name).shape);
  };
}

constexpr const char* kOneAdapter =
    "; take both files from one adapter, or correct what is wrong in them";

// Errors: a tensor that the keys contradict.
void check_peft_tensors(Keys& all, const PeftModules& modules, const AdapterOptions& ranks,
                        const data::SafetensorsFile& file, const std::string& path) {
  const bool lengths = all.flag("use_dora");
  for (const std::string& name : file.names()) {
    const Place place = place_of(name);
    if (place.module.empty() || place.what == kBaseWeight) continue;
    const auto wrong = [&](const char* key, const std::string& expected) {
      all.wrong(key,
                fmt::format("{}, as {} in {} says", expected, in_quotes(name), in_quotes(path)),
                kOneAdapter);
    };
    if (const char* key = modules.left_out_by(place.module); key != nullptr)
      wrong(key, fmt::format("to give {} an adapter", place.module));
    if (place.what == kMagnitude && !lengths) wrong("use_dora", "true");
    const Shape shape = file.info(name).shape;
    if ((place.what != kA && place.what != kTableA) || shape.dim() != 2) continue;
    if (const int64_t expected = ranks.rank_of(place.module); shape[0] != expected)
      wrong(expected == ranks.rank ? "r" : "rank_pattern",
            fmt::format("rank {} for {}", shape[0], place.module));
  }
}

// Has the file a tensor of the module, or of one inside of it?
bool any_of_module(const data::SafetensorsFile& file, const std::string& name) {
  const auto names = file.names();
  return std::any_of(names.begin(), names.end(), [&](const std::string& tensor) {
    return place_of(tensor).module.empty() && is_inside(place_of(tensor).what, name);
  });
}

Json peft_keys(const Source& source) {
  Keys all(source.json, source.config);
  if (all.text("peft_type", "") != "LORA") all.wrong("peft_type", "\"LORA\"");
  const bool dora = all.flag("use_dora"), stable = all.flag("use_rslora");
  Json keys = {{"type", dora ? (stable ? "rsdora" : "dora") : (stable ? "rslora" : "lora")}};
  const double rank = all.number("r", 8);
  if (rank < 1 || rank != std::floor(rank) || rank > 1 << 16) all.wrong("r", "a rank");
  keys["rank"] = static_cast<int64_t>(rank);
  keys["alpha"] = all.number("lora_alpha", 8);
  keys["dropout"] = all.number("lora_dropout", 0);
  keys["rank_pattern"] = pattern_entries(all, "rank_pattern");
  keys["alpha_pattern"] = pattern_entries(all, "alpha_pattern");
  keys["bias"] = all.text("bias", "none");
  const PeftModules modules(all);
  const auto file = data::SafetensorsFile::open(source.tensors);
  AdapterOptions ranks;
  ranks.rank = keys["rank"].get<int64_t>();
  ranks.ranks = keys["rank_pattern"].get<std::vector<std::string>>();
  try {
    check_peft_tensors(all, modules, ranks, file, source.tensors);
  } catch (const OptionError& e) {
    if (e.path() != "rank_pattern") throw;
    fail(source.config, e.what());
  }
  // PEFT names heads that a network may have. Only those count that it has.
  for (const std::string& name : texts(all, "modules_to_save"))
    if (any_of_module(file, name)) keys["modules_to_save"].push_back(name);
  // Others change the weights of the base.
  if (const Json* init = all.find("init_lora_weights"); init != nullptr && !init->is_boolean() &&
                                                        *init != "gaussian" && *init != "eva" &&
                                                        *init != "orthogonal")
    all.wrong("init_lora_weights", "true, false, \"gaussian\", \"eva\" or \"orthogonal\"");
  const Json* targets = all.find("target_modules");
  keys["targets"] = targets != nullptr && !modules.has_more_than_targets()
                        ? *targets
                        : ranks_of(tensors_of(file), place_of_peft, 0).names();
  all.ignore({"task_type", "base_model_name_or_path", "revision", "inference_mode", "auto_mapping",
              "peft_version", "fan_in_fan_out", "megatron_core", "qalora_group_size",
              "loftq_config", "eva_config"});
  all.finish();
  return keys;
}

Json with_ranks(Json keys, const Ranks& ranks, const std::string& file) {
  if (ranks.of.empty()) fail(file, "expected tensors of an adapter, got none");
  keys["rank"] = ranks.usual();
  keys["targets"] = ranks.names();
  for (const auto& [module, rank] : ranks.of)
    if (rank != ranks.usual()) keys["rank_pattern"].push_back(fmt::format("{}={}", module, rank));
  return keys;
}

// MLX names modules as the network does, or as the layer does in which they are.
bool is_named_in_mlx(const std::vector<std::string>& names, const std::string& module) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    if (name == module) return true;
    if (!module.ends_with("." + name)) return false;
    const std::string layer = without(module, "." + name);
    const std::string number = layer.substr(layer.rfind('.') + 1);
    return !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  });
}

Json mlx_keys(const Source& source) {
  Keys all(source.json, source.config);
  const std::string type = all.text("fine_tune_type", "lora");
  if (type != "lora" && type != "dora") all.wrong("fine_tune_type", "lora or dora");
  const Json* given = all.find("lora_parameters");
  if (given == nullptr || !given->is_object()) all.wrong("lora_parameters", "an object");
  Keys parameters(*given, source.config, "lora_parameters.");
  const double rank = parameters.number("rank", 8), scale = parameters.number("scale", 20);
  const auto file = data::SafetensorsFile::open(source.tensors);
  const Ranks ranks = ranks_of(tensors_of(file), place_in_mlx, 1);
  Json keys = with_ranks({{"type", type}, {"dropout", parameters.number("dropout", 0)}}, ranks,
                         source.tensors);
  if (rank < 1) parameters.wrong("rank", "a rank");
  keys["alpha"] = scale * static_cast<double>(ranks.usual());
  for (const auto& [module, own] : ranks.of)  // all have one scale
    if (own != ranks.usual())
      keys["alpha_pattern"].push_back(
          fmt::format("{}={}", module, Json(scale * static_cast<double>(own)).dump()));
  if (const std::vector<std::string> names = texts(parameters, "keys"); !names.empty())
    for (const auto& [module, own] : ranks.of)
      if (!is_named_in_mlx(names, module))
        parameters.wrong("keys",
                         fmt::format("the name of {}, of which {} has tensors", module,
                                     in_quotes(source.tensors)),
                         kOneAdapter);
  parameters.finish();
  return keys;  // the other keys say how it was trained
}

Json gguf_keys(const Source& source) {
  const data::Gguf file = data::read_gguf(source.tensors);
  if (file.text(source.tensors, "general.type") != "adapter" ||
      file.text(source.tensors, "adapter.type") != "lora")
    fail(source.tensors, "expected general.type adapter and adapter.type lora");
  if (file.values.contains("adapter.alora.invocation_tokens"))
    fail(source.tensors, "expected no adapter.alora.invocation_tokens, which is not known here");
  const auto each = [&](const auto& f) {
    for (const auto& [name, tensor] : file.tensors) f(name, tensor.shape());
  };
  return with_ranks(
      {{"type", "lora"}, {"alpha", file.number(source.tensors, "adapter.lora.alpha")}},
      ranks_of(each, place_in_gguf, 0), source.tensors);
}

// ---- tensors of files, as they are here

using Placed = std::vector<std::pair<Place, Tensor>>;

Placed placed_tensors(const Source& source, const Config& config) {
  Placed placed;
  if (source.format == AdapterFormat::gguf) {
    const models::DecoderOptions options = llama_options(config);
    const data::Gguf file = data::read_gguf(source.tensors);
    const std::string architecture = file.text(source.tensors, "general.architecture");
    if (architecture != architecture_of(options.family))
      fail(source.tensors, fmt::format("general.architecture: expected {}, got {}",
                                       architecture_of(options.family), in_quotes(architecture)));
    for (const auto& [name, tensor] : file.tensors) {
      check_finite(source.tensors, name, tensor);
      Place place = place_in_gguf(name);
      Tensor value = ops::cast(tensor, DType::f32);
      const int64_t heads = place.what == kB ? reordered_heads(options, place.module) : 0;
      if (heads > 0 && value.dim() == 2 && value.size(0) % (2 * heads) == 0)
        value = reordered(value, heads, false);
      if (place.what == kTableA && value.dim() == 2) value = ops::contiguous(value.transpose(0, 1));
      placed.emplace_back(std::move(place), std::move(value));
    }
    return placed;
  }
  const auto file = data::SafetensorsFile::open(source.tensors);
  for (const auto& [name, tensor] : file.read_all()) {
    check_finite(source.tensors, name, tensor);
    if (source.format == AdapterFormat::peft) {
      placed.emplace_back(place_of(name), tensor);
      continue;
    }
    Place place = place_in_mlx(name);
    const bool turned = place.what == kA || place.what == kB;
    placed.emplace_back(std::move(place), turned && tensor.dim() == 2
                                              ? ops::contiguous(tensor.transpose(0, 1))
                                              : tensor);
  }
  return placed;
}

// Files of other programs may have the names of a part of the network, or of a network around it.
bool is_same_module(const std::string& ours, const std::string& theirs) {
  return ours == theirs || ours.ends_with("." + theirs) || theirs.ends_with("." + ours);
}

// PEFT writes the weights of an embedding beside its adapter, for the case that they were changed.
void check_base_weight(Module& network, const std::string& module, const Tensor& given,
                       const std::string& file) {
  for (const Module::NamedParameter& p : network.parameters()) {
    if (!p.name.ends_with(".weight") || !is_same_module(without(p.name, ".weight"), module))
      continue;
    const Tensor own =
        ops::cast(models::to_file_layout(p.parameter->value(), p.layout), given.dtype());
    const Tensor theirs = ops::contiguous(given);
    if (own.shape() == theirs.shape() &&
        std::memcmp(own.raw(), theirs.raw(), static_cast<size_t>(own.nbytes())) == 0)
      return;
  }
  fail(file, fmt::format("expected the weights of the base in {}, got others: an adapter whose "
                         "embedding was changed or resized is not read",
                         in_quotes(module + kBaseWeight)));
}

// Errors: a module of the network has an adapter by PEFT's keys, or is trained as it is, and the
// file has no tensors of it.
void check_peft_layers(Module& network, const Source& source) {
  Keys all(source.json, source.config);
  const PeftModules modules(all);
  const auto file = data::SafetensorsFile::open(source.tensors);
  std::set<std::string> adapted;
  for (const models::AdaptedLayer& each : models::adapted_layers(network))
    adapted.insert(each.name);
  const auto missing = [&](const char* key, const std::string& module) {
    all.wrong(
        key,
        fmt::format("nothing of {}, of which {} has no tensors", module, in_quotes(source.tensors)),
        kOneAdapter);
  };
  // The network's names, where the file has those of a part of it or of a network around it.
  std::string around, inside;
  for (const auto& [theirs, rank] : ranks_of(tensors_of(file), place_of_peft, 0).of)
    for (const std::string& ours : adapted)
      if (theirs.ends_with("." + ours))
        around = without(theirs, ours);
      else if (ours.ends_with("." + theirs))
        inside = without(ours, theirs);
  const std::string head = network.head_prefix();
  for (const Module::NamedModule& m : network.modules()) {
    const bool linear = m.module->as_linear_layer() != nullptr;
    if ((!linear && dynamic_cast<models::EmbeddingTable*>(m.module) == nullptr) ||
        adapted.contains(m.name) || !m.name.starts_with(inside))
      continue;
    const bool is_head = !head.empty() && (m.name + ".").starts_with(head);
    if (modules.is_all_linear() && (!linear || is_head)) continue;
    if (modules.names_targets() &&
        modules.left_out_by(around + m.name.substr(inside.size())) == nullptr)
      missing(modules.names_layers() ? "layers_to_transform" : "target_modules", m.name);
  }
  for (const std::string& name : texts(all, "modules_to_save"))
    if (!any_of_module(file, name))
      for (const Module::NamedParameter& p : network.parameters())
        if (is_inside(p.name, name)) missing("modules_to_save", p.name);
}

// ---- what is written

// The options with the ranks and scales of the layers, as the network has them.
struct Adapted {
  std::string name;
  int64_t rank;
  double scale;
  Variable a, b, magnitude;  // a of an embedding: [tokens, rank]
  bool is_table;
};

std::vector<Adapted> adapted_of(Module& network) {
  std::vector<Adapted> all;
  for (const models::AdaptedLayer& each : models::adapted_layers(network)) {
    Adapted made{each.name, each.rank(), each.scale(), {}, {}, {}, each.table != nullptr};
    if (made.is_table) {
      made.a = each.table->adapter()->a;
      made.b = each.table->adapter()->b;
    } else {
      const models::LinearLayer::Adapter& own = *each.layer->adapter();
      made.a = own.a;
      made.b = own.b;
      made.magnitude = own.magnitude;
    }
    all.push_back(std::move(made));
  }
  return all;
}

Tensor on_host(const Variable& x) {
  return models::to_file_layout(x.value(), Module::Layout::plain);
}

// Is everything that is trained a part of an adapter? Errors: not so, for a format that holds
// nothing else.
void check_adapters_alone(Module& network, const char* format) {
  for (const auto& p : network.parameters())
    if (p.parameter->requires_grad() && !models::is_of_adapter(p.name))
      throw ConfigError("adapter.modules_to_save",
                        fmt::format("expected nothing beside adapters with --format {}, got {}; "
                                    "--format peft or merged holds it",
                                    format, p.name));
}

// The last parts of the names, if they mean these layers and no others; else the whole names.
Json target_names(Module& network, const std::vector<Adapted>& adapted) {
  const auto leaf = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::set<std::string> leaves, names;
  for (const Adapted& each : adapted) {
    leaves.insert(leaf(each.name));
    names.insert(each.name);
  }
  bool exact = true;
  for (const Module::NamedModule& m : network.modules())
    exact = exact && (m.name.empty() || !leaves.contains(leaf(m.name)) || names.contains(m.name));
  return exact ? Json(leaves) : Json(names);
}

std::string peft_task_of(const Config& config) {
  switch (family_of(config.model)) {
    case Family::decoder:
      return "CAUSAL_LM";
    case Family::encoder:
      return "SEQ_CLS";
    default:
      return "";
  }
}

void add(WrittenAdapter& written, const NamedTensors& tensors) {
  written.tensors += tensors.size();
  for (const auto& [name, tensor] : tensors) written.elements += tensor.numel();
}

WrittenAdapter write_peft(Module& network, const Config& config, const fs::path& folder,
                          DType dtype) {
  const AdapterOptions options = adapter_options(config, network);
  const std::vector<Adapted> adapted = adapted_of(network);
  const auto carries = [&](const std::string& parameter) {
    return std::any_of(adapted.begin(), adapted.end(),
                       [&](const Adapted& each) { return parameter == each.name + ".bias"; });
  };
  NamedTensors tensors;
  bool turned = false;
  for (const auto& p : network.parameters()) {
    if (p.layout == Module::Layout::transposed_linear && !models::is_of_adapter(p.name))
      turned = true;
    if (!p.parameter->requires_grad()) continue;
    const std::string name = carries(p.name) ? without(p.name, "bias") + "base_layer.bias" : p.name;
    tensors.emplace_back(kPeftPrefix + name,
                         ops::cast(models::to_file_layout(p.parameter->value(), p.layout), dtype));
  }
  Json ranks = Json::object(), alphas = Json::object();
  for (const Adapted& each : adapted) {
    if (each.rank != options.rank) ranks[each.name] = each.rank;
    if (options.alpha_of(each.name) != options.alpha)
      alphas[each.name] = options.alpha_of(each.name);
  }
  constexpr const char* kBiases[] = {"none", "all", "lora_only"};
  const auto or_null = [](const Json& value) { return value.empty() ? Json(nullptr) : value; };
  const std::string task = peft_task_of(config);
  const Json json = {{"alpha_pattern", alphas},
                     {"auto_mapping", nullptr},
                     {"base_model_name_or_path",
                      config.model.weights ? Json(*config.model.weights) : Json(nullptr)},
                     {"bias", kBiases[static_cast<size_t>(options.bias)]},
                     {"fan_in_fan_out", turned},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"layers_pattern", nullptr},
                     {"layers_to_transform", nullptr},
                     {"lora_alpha", options.alpha == std::floor(options.alpha)
                                        ? Json(static_cast<int64_t>(options.alpha))
                                        : Json(options.alpha)},
                     {"lora_dropout", options.dropout},
                     {"modules_to_save", or_null(Json(options.trained))},
                     {"peft_type", "LORA"},
                     {"r", options.rank},
                     {"rank_pattern", ranks},
                     {"revision", nullptr},
                     {"target_modules", target_names(network, adapted)},
                     {"task_type", task.empty() ? Json(nullptr) : Json(task)},
                     {"use_dora", options.has_magnitude()},
                     {"use_rslora", options.is_rank_stabilized()}};
  data::NewFolder made(folder.string());
  data::write_safetensors((folder / kPeftTensors).string(), tensors, {{"format", "pt"}});
  data::atomic_write((folder / kConfigFile).string(), json.dump(2) + "\n");
  made.keep();
  WrittenAdapter written{{kConfigFile, kPeftTensors}};
  add(written, tensors);
  return written;
}

// B times what the one scale of the file is less than that of the layer.
Tensor rescaled(const Tensor& b, double by) { return by == 1 ? b : ops::affine(b, by, 0); }

WrittenAdapter write_mlx(Module& network, const Config& config, const fs::path& folder,
                         DType dtype) {
  check_adapters_alone(network, "mlx-lora");
  const AdapterOptions options = adapter_options(config, network);
  const std::vector<Adapted> adapted = adapted_of(network);
  const double scale = adapted.front().scale;
  NamedTensors tensors;
  std::set<std::string> keys;
  int64_t rank = 0;
  for (const Adapted& each : adapted) {
    const auto put = [&](const char* ending, const Tensor& tensor) {
      tensors.emplace_back(each.name + ending, ops::cast(ops::contiguous(tensor), dtype));
    };
    const Tensor a = on_host(each.a);
    put(".lora_a", each.is_table ? a : a.transpose(0, 1));
    put(".lora_b", rescaled(on_host(each.b), each.scale / scale).transpose(0, 1));
    if (each.magnitude.defined()) put(".m", on_host(each.magnitude));
    rank = std::max(rank, each.rank);
    const size_t dot = each.name.starts_with(kLayers)
                           ? each.name.find('.', std::string(kLayers).size())
                           : std::string::npos;
    keys.insert(dot == std::string::npos ? each.name : each.name.substr(dot + 1));
  }
  const Json json = {
      {"fine_tune_type", options.has_magnitude() ? "dora" : "lora"},
      {"num_layers", config.model.integer("layers").value_or(-1)},
      {"lora_parameters",
       {{"rank", rank}, {"scale", scale}, {"dropout", options.dropout}, {"keys", keys}}}};
  data::NewFolder made(folder.string());
  data::write_safetensors((folder / kMlxTensors).string(), tensors, {{"format", "mlx"}});
  data::atomic_write((folder / kConfigFile).string(), json.dump(4) + "\n");
  made.keep();
  WrittenAdapter written{{kConfigFile, kMlxTensors}};
  add(written, tensors);
  return written;
}

WrittenAdapter write_gguf_adapter(Module& network, const Config& config, const std::string& path,
                                  DType dtype) {
  check_adapters_alone(network, "gguf-lora");
  const AdapterOptions options = adapter_options(config, network);
  if (options.has_magnitude())
    throw ConfigError("adapter.type",
                      "expected lora or rslora with --format gguf-lora, which has no "
                      "lengths of rows; --format merged holds them");
  if (dtype != DType::f32) throw ConfigError("", "--dtype: expected f32 with --format gguf-lora");
  const models::DecoderOptions decoder = llama_options(config);
  data::Gguf file;
  file.values = {{"general.architecture", std::string(architecture_of(decoder.family))},
                 {"general.type", std::string("adapter")},
                 {"general.file_type", uint64_t{0}},
                 {"adapter.type", std::string("lora")},
                 {"adapter.lora.alpha", options.alpha}};
  for (const Adapted& each : adapted_of(network)) {
    const std::string name =
        (each.is_table ? kGgufTable : renamed(each.name, kLayers, kBlocks, true)) + ".weight";
    // The reader multiplies by alpha / rank.
    Tensor b =
        rescaled(on_host(each.b), each.scale * static_cast<double>(each.rank) / options.alpha);
    if (const int64_t heads = reordered_heads(decoder, each.name); heads > 0)
      b = reordered(b, heads, true);
    file.tensors.emplace_back(name + ".lora_a", on_host(each.a));
    file.tensors.emplace_back(name + ".lora_b", std::move(b));
  }
  data::write_gguf(path, file);
  WrittenAdapter written{{fs::path(path).filename().string()}};
  add(written, file.tensors);
  return written;
}

}  // namespace

Json adapter_keys(const std::string& path) {
  const Source source = source_of(path);
  switch (source.format) {
    case AdapterFormat::mlx:
      return mlx_keys(source);
    case AdapterFormat::gguf:
      return gguf_keys(source);
    case AdapterFormat::peft:
      break;
  }
  return peft_keys(source);
}

bool is_adapter(const std::string& path) {
  std::error_code none;
  return path.ends_with(".gguf") || fs::is_regular_file(fs::path(path) / kConfigFile, none);
}

Json adapter_contents(const std::string& path) {
  const Source source = source_of(path);
  constexpr const char* kFormats[] = {"peft", "mlx", "gguf"};
  int64_t tensors = 0, elements = 0;
  const auto count = [&](const std::string&, const Shape& shape) {
    ++tensors;
    elements += shape.numel();
  };
  if (source.format == AdapterFormat::gguf)
    for (const auto& [name, tensor] : data::read_gguf(source.tensors).tensors)
      count(name, tensor.shape());
  else
    tensors_of(data::SafetensorsFile::open(source.tensors))(count);
  return {{"format", kFormats[static_cast<size_t>(source.format)]},
          {"adapter", adapter_keys(path)},
          {"tensors", tensors},
          {"elements", elements}};
}

KeysOfFile expand_adapter(Json& document) {
  const auto model = document.find("model");
  if (model == document.end() || !model->is_object()) return {};
  const auto path = model->find("adapter");
  if (path == model->end() || !path->is_string()) return {};
  const auto file = path->get<std::string>();
  Json& section = document["adapter"];  // the document may move
  if (section.is_null()) section = Json::object();
  if (!section.is_object()) return {};  // an error of the table of keys
  if (section.contains("type") && section["type"] == "none") section = Json::object();
  if (section.contains("type") && section.contains("targets") && section.contains("rank") &&
      section.contains("alpha"))
    return {};
  const Json keys = adapter_keys(file);
  KeysOfFile added{source_of(file).config, {}};
  for (const auto& [key, value] : keys.items()) {
    if (section.contains(key)) continue;
    section[key] = value;
    added.paths.push_back("adapter." + key);
  }
  return added;
}

void load_adapter(Module& network, const Config& config, const std::string& path) {
  const Source source = source_of(path);
  if (source.format == AdapterFormat::peft) check_peft_layers(network, source);
  std::vector<Module::NamedParameter> trained = network.parameters();
  std::erase_if(trained, [](const auto& p) { return !p.parameter->requires_grad(); });
  std::map<std::string, Tensor> given;  // by the names of parameters
  const auto home_of = [&](const Place& place) -> const Module::NamedParameter* {
    const Module::NamedParameter* found = nullptr;
    for (const Module::NamedParameter& p : trained) {
      const bool fits = place.module.empty()
                            ? is_same_module(p.name, place.what)
                            : p.name.ends_with(place.what) &&
                                  is_same_module(without(p.name, place.what), place.module);
      if (!fits) continue;
      if (found != nullptr) return nullptr;
      found = &p;
    }
    return found;
  };
  for (const auto& [place, tensor] : placed_tensors(source, config)) {
    const std::string name = place.module + place.what;
    if (place.what == kBaseWeight) {
      check_base_weight(network, place.module, tensor, source.tensors);
      continue;
    }
    const Module::NamedParameter* home = home_of(place);
    // MLX has one name for the matrices of layers and of embeddings.
    if (home == nullptr && source.format == AdapterFormat::mlx && place.what == kA)
      home = home_of({place.module, kTableA});
    if (home == nullptr && source.format == AdapterFormat::mlx && place.what == kB)
      home = home_of({place.module, kTableB});
    if (home == nullptr)
      fail(source.tensors, fmt::format("expected tensors of the adapter of this network, got {}, "
                                       "which finds no home in it",
                                       in_quotes(name)));
    if (given.contains(home->name))
      fail(source.tensors, fmt::format("expected one tensor for {}, got two", home->name));
    const Tensor value = home->parameter->value();
    const Shape expected = home->layout == Module::Layout::plain
                               ? value.shape()
                               : models::to_file_layout(value, home->layout).shape();
    if (tensor.shape() != expected)
      fail(source.tensors, fmt::format("{}: expected the shape {}, got {}", in_quotes(name),
                                       expected, tensor.shape()));
    given[home->name] = models::from_file_layout(ops::cast(tensor, DType::f32), home->layout);
  }
  std::vector<std::string> missing;
  for (const Module::NamedParameter& p : trained)
    if (!given.contains(p.name)) missing.push_back(p.name);
  if (!missing.empty())
    fail(source.tensors,
         fmt::format("expected all tensors that are trained, got none for {}{}", missing.front(),
                     missing.size() > 1 ? " and " + with_noun(missing.size() - 1, "other")
                                        : std::string()));
  for (const Module::NamedParameter& p : trained) {
    const Tensor value = p.parameter->value();
    ops::copy_into(value, to_device(given[p.name], value.device()));
    value.bump_version();
  }
}

WrittenAdapter write_adapter(Module& network, const Config& config, AdapterFormat format,
                             const std::string& path, DType dtype) {
  if (models::adapted_layers(network).empty())
    throw ConfigError("adapter.type", "export: expected a run with an adapter, got none");
  switch (format) {
    case AdapterFormat::mlx:
      return write_mlx(network, config, path, dtype);
    case AdapterFormat::gguf:
      return write_gguf_adapter(network, config, path, dtype);
    case AdapterFormat::peft:
      break;
  }
  return write_peft(network, config, path, dtype);
}

}  // namespace frugal::apps
