#include <cstdio>
#include <map>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/config/adapter_files.h"
#include "apps/config/hub_folder.h"
#include "apps/config/make_model.h"
#include "apps/config/make_run.h"
#include "apps/config/stored_run.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/safetensors_shards.h"
#include "models/adapters/adapters.h"
#include "models/state.h"
#include "train/planning/bytes.h"
#include "train/run/weights.h"

namespace frugal::apps {
namespace {

constexpr size_t kMetadataShown = 4096;  // bytes; a run's state holds its configuration there

// The network that a folder of the hub describes, and how its weights fit it.
struct HubFolder {
  Json keys;
  int64_t parameters = 0;
  std::map<std::string, int64_t> dtypes;  // tensors by dtype
  int64_t tensors = 0, bytes = 0;
  std::vector<std::string> ignored;
  std::string misfit;  // what does not fit; empty: all does
};

HubFolder read_hub_folder(const std::string& path) {
  HubFolder folder;
  folder.keys = hub_keys(path);
  const auto weights = data::SafetensorsShards::open(path);
  const models::NamedTensors described = train::described_weights(weights);
  bool masked = false;  // has an encoder the head that guesses tokens?
  for (const std::string& name : weights.names()) {
    const data::SafetensorsInfo& info = weights.info(name);
    ++folder.dtypes[info.is_signed_byte ? "i8" : std::string(name_of(info.dtype))];
    ++folder.tensors;
    folder.bytes += info.end - info.begin;
    for (const char* head : {"cls.predictions.", "lm_head.dense.", "vocab_transform."})
      masked = masked || name.starts_with(head);
  }
  const Config config = parse_config({{"model", {{"weights", path}}}});
  models::Options options = config.model.options;
  if (config.model.vocab_size) options["vocab_size"] = *config.model.vocab_size;
  if (masked) options["head"] = "masked_lm";
  models::Init init;
  init.device = kMeta;
  const auto network = models::make(config.model.name, options, init);
  for (const auto& p : network->parameters()) folder.parameters += p.parameter->value().numel();
  try {
    models::StateOptions how;
    // A classifier for the data of a run starts anew.
    how.reset_head = family_of(config.model) == Family::encoder && !masked;
    folder.ignored = models::check_state_dict(*network, described, weights.path(), how).ignored;
  } catch (const Error& e) {
    folder.misfit = e.what();
  }
  return folder;
}

// A value in a column that leaves 25 of 80 columns to the key before it. A list shows its first
// entries and how many more there are; --json has all.
std::string shown_value(const Json& value) {
  constexpr size_t kRoom = 52;
  const std::string all = printable(value.dump(), kRoom);
  if (!value.is_array() || value.empty() || value.dump().size() <= kRoom) return all;
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string entry = (i == 0 ? "[" : ",") + printable(value[i].dump(), kRoom - 15);
    if (i > 0 && text.size() + entry.size() + 12 > kRoom)
      return text + fmt::format(", {} more]", value.size() - i);
    text += entry;
  }
  return text + "]";
}

void inspect_hub_folder(const std::string& path, bool json) {
  const HubFolder folder = read_hub_folder(path);
  if (json) {
    const Json document = {{"folder", path},
                           {"model", folder.keys},
                           {"parameters", folder.parameters},
                           {"tensors", folder.tensors},
                           {"total_bytes", folder.bytes},
                           {"dtypes", folder.dtypes},
                           {"ignored", folder.ignored},
                           {"fits", folder.misfit.empty()}};
    std::printf("%s\n", document.dump(2, ' ', true).c_str());
  } else {
    std::vector<std::vector<std::string>> rows = {{"key", "value"}};
    for (const auto& [key, value] : folder.keys.items())
      rows.push_back({"model." + key, shown_value(value)});
    std::vector<std::string> kinds;
    for (const auto& [dtype, count] : folder.dtypes)
      kinds.push_back(fmt::format("{} {}", count, dtype));
    std::printf("%s", table(rows).c_str());
    std::printf("%s", fmt::format("{}; {} ({}), {}\n", with_noun(folder.parameters, "parameter"),
                                  with_noun(folder.tensors, "tensor"), fmt::join(kinds, ", "),
                                  readable_bytes(folder.bytes))
                          .c_str());
    for (const std::string& name : folder.ignored)
      std::printf("ignored, as no result depends on it: %s\n", printable(name).c_str());
    if (folder.misfit.empty()) std::printf("all parameters are loaded\n");
  }
  if (!folder.misfit.empty()) throw Error(folder.misfit);
}

// A row for each key of a section.
std::string section_table(const std::string& section, const Json& keys) {
  std::vector<std::vector<std::string>> rows = {{"key", "value"}};
  for (const auto& [key, value] : keys.items())
    rows.push_back({section + "." + key, shown_value(value)});
  return table(rows);
}

void inspect_adapter(const std::string& path, bool json) {
  Json found = adapter_contents(path);
  if (!json) {
    std::printf("%s", section_table("adapter", found["adapter"]).c_str());
    std::printf("an adapter of the format %s: %s, %s\n", found["format"].get<std::string>().c_str(),
                with_noun(found["tensors"].get<int64_t>(), "tensor").c_str(),
                with_noun(found["elements"].get<int64_t>(), "element").c_str());
    return;
  }
  found["file"] = path;
  std::printf("%s\n", found.dump(2, ' ', true).c_str());
}

// The network of a run, and its adapters.
void inspect_run(const std::string& path, bool json) {
  const StoredRun run = read_run(path);
  const auto network = run_recipe(run.config, run.description.spec).make_model(kMeta);
  int64_t all = 0, trained = 0;
  for (const auto& p : network->parameters()) {
    all += p.parameter->value().numel();
    if (p.parameter->requires_grad()) trained += p.parameter->value().numel();
  }
  const size_t layers = models::adapted_layers(*network).size();
  const Json keys = to_json(run.config)["adapter"];
  Json base = nullptr;
  if (network->leaves_out_frozen()) base = read_json(path + "/base.json");
  if (json) {
    Json document = {{"folder", path},
                     {"model", run.config.model.name},
                     {"parameters", all},
                     {"trained", trained},
                     {"adapted_layers", layers}};
    if (layers > 0) document["adapter"] = keys;
    if (!base.is_null()) document["base"] = base;
    std::printf("%s\n", document.dump(2, ' ', true).c_str());
    return;
  }
  if (layers > 0) std::printf("%s", section_table("adapter", keys).c_str());
  std::printf("%s: %lld of %lld parameters are trained; adapters in %s\n",
              run.config.model.name.c_str(), static_cast<long long>(trained),
              static_cast<long long>(all), with_noun(layers, "layer").c_str());
  if (!base.is_null())
    std::printf("frozen weights: %s\nsha256: %s\n", printable(base["weights"].dump()).c_str(),
                printable(base["sha256"].dump()).c_str());
}

}  // namespace

void inspect_command(const std::string& path, bool json) {
  if (is_adapter(path)) return inspect_adapter(path, json);
  if (is_folder(path)) {
    if (is_hub_folder(path)) return inspect_hub_folder(path, json);
    if (is_folder(path + "/checkpoint")) return inspect_run(path, json);
    throw ConfigError("", fmt::format("inspect: expected a safetensors file, or a folder with a "
                                      "config.json of Hugging Face's hub, with an adapter or with "
                                      "a run, got the folder {}",
                                      in_quotes(path)));
  }
  const auto file = data::SafetensorsFile::open(path);
  Json tensors = Json::array(), metadata = Json::object();
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "bytes"}};
  int64_t bytes = 0, elements = 0;
  for (const std::string& name : file.names()) {
    const data::SafetensorsInfo& info = file.info(name);
    const std::string dtype(name_of(info.dtype));
    bytes += info.end - info.begin;
    elements += info.shape.numel();
    tensors.push_back({{"name", name},
                       {"dtype", dtype},
                       {"shape", std::vector<int64_t>(info.shape.begin(), info.shape.end())},
                       {"bytes", info.end - info.begin}});
    rows.push_back(
        {printable(name), dtype, info.shape.str(), std::to_string(info.end - info.begin)});
  }
  // [] would look through all keys at each new one.
  auto& entries = metadata.get_ref<Json::object_t&>();
  for (const auto& [key, value] : file.metadata()) entries.emplace_back(key, value);
  if (json) {
    const Json document = {{"file", path},
                           {"tensors", tensors},
                           {"metadata", metadata},
                           {"total_bytes", bytes},
                           {"total_elements", elements}};
    // Escaped, so that no name reaches a terminal as it is.
    std::printf("%s\n", document.dump(2, ' ', true).c_str());
    return;
  }
  std::printf("%s", table(rows).c_str());
  std::printf("%s, %s, %s\n", with_noun(file.names().size(), "tensor").c_str(),
              with_noun(elements, "element").c_str(), readable_bytes(bytes).c_str());
  for (const auto& [key, value] : file.metadata())
    std::printf("metadata %s: %s\n", printable(key).c_str(),
                printable(value, kMetadataShown).c_str());
}

}  // namespace frugal::apps
