#include "apps/config/stored_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/config/adapter_files.h"
#include "apps/config/data/csv_columns.h"
#include "apps/config/data/data_kinds.h"
#include "apps/config/data/make_data.h"
#include "apps/config/data/make_tokenizer.h"
#include "apps/config/data/mask_data.h"
#include "apps/config/hub_folder.h"
#include "apps/config/keys/config_error.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/make_model.h"
#include "apps/config/make_run.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "core/log.h"
#include "core/words/quoted.h"
#include "data/fetch/sha256.h"
#include "data/formats/json_strict.h"
#include "data/formats/safetensors.h"
#include "data/text/characters.h"
#include "models/adapters/adapters.h"
#include "ops/precision.h"
#include "train/metrics/metric_names.h"
#include "train/run/weights.h"

namespace frugal::apps {
namespace {

constexpr const char* kInput = "input.json";
constexpr const char* kClasses = "classes.json";
constexpr const char* kColumns = "columns.json";
constexpr const char* kData = "data.json";
constexpr const char* kBase = "base.json";
constexpr int64_t kVersion = 1;  // the format of input.json
constexpr int64_t kMost = int64_t{1} << 40;

using Kind = BatchSpec::Kind;

// Its name in input.json, and how many axes a sample has.
std::pair<std::string, size_t> name_and_axes(Kind kind) {
  switch (kind) {
    case Kind::images:
      return {"images", 3};
    case Kind::rows:
      return {"rows", 1};
    case Kind::sequences:
      return {"sequences", 1};
    case Kind::graph:
      return {"graph", 2};
  }
  return {};
}

Kind kind_named(const std::string& name) {
  for (const Kind kind : {Kind::images, Kind::rows, Kind::sequences, Kind::graph})
    if (name == name_and_axes(kind).first) return kind;
  throw Error(fmt::format("expected a kind of data as \"kind\", got {}", in_quotes(name)));
}

BatchSpec::Target target_named(const std::string& name) {
  using Target = BatchSpec::Target;
  for (const Target target :
       {Target::class_of_sample, Target::labels, Target::values, Target::class_of_pixel,
        Target::class_of_token, Target::boxes, Target::views})
    if (name == target_name(target)) return target;
  throw Error(fmt::format("expected a kind of target as \"target\", got {}", in_quotes(name)));
}

// What the target is where input.json has no "target", as in files of earlier versions.
BatchSpec::Target implied_target(const Json& json) {
  const auto is_true = [&](const char* key) {
    return json.contains(key) && json.at(key).get<bool>();
  };
  if (is_true("target_of_each_pixel")) return BatchSpec::Target::class_of_pixel;
  if (is_true("target_of_each_token")) return BatchSpec::Target::class_of_token;
  return target_of_usual_metric(json.at("metric").get<std::string>());
}

Json input_json(const Config& config, const BatchSpec& spec) {
  Json json = {{"version", kVersion},
               {"kind", name_and_axes(spec.kind).first},
               {"sample", std::vector<int64_t>(spec.sample.begin(), spec.sample.end())},
               {"classes", spec.classes},
               {"metric", spec.metric}};
  if (spec.target_of_each_pixel()) {
    json["target_of_each_pixel"] = true;
    if (const auto values = values_of_masks(config); !values.empty()) json["mask_values"] = values;
  }
  if (spec.has_boxes()) {
    const std::vector<int64_t> ids = category_ids(config);
    for (size_t i = 0; i < ids.size(); ++i)
      json["category_ids"].push_back(i == 0 ? Json(nullptr) : Json(ids[i]));
  }
  if (spec.kind == Kind::images) {
    const train::PictureInput pictures = evaluated_pictures(config, spec);
    if (pictures.view.height > 0)
      json["pictures"] = {
          {"resize", pictures.view.resize}, {"mean", pictures.mean}, {"std", pictures.std}};
  }
  if (spec.kind == Kind::sequences) {
    json["vocabulary"] = spec.vocabulary;
    json["target_of_each_token"] = spec.target_of_each_token();
    const train::TextInput text = evaluated_texts(config);
    json["text"] = {{"max_length", text.max_length}, {"pair", text.pair}};
  }
  if (implied_target(json) != spec.target) json["target"] = target_name(spec.target);
  return json;
}

int64_t whole(const Json& json, const char* key, int64_t least = 0) {
  const Json& value = json.at(key);
  FRUGAL_CHECK(value.is_number_integer() && value >= least && value <= kMost,
               "expected a whole number of at least {} as \"{}\", got {}", least, key,
               printable(value.dump(), 80));
  return value.get<int64_t>();
}

std::vector<double> numbers(const Json& json, const char* key) {
  auto all = json.at(key).get<std::vector<double>>();
  for (const double value : all)
    FRUGAL_CHECK(std::isfinite(value), "expected finite numbers as \"{}\"", key);
  return all;
}

// Errors: whatever does not fit; the caller names the file.
train::ModelDescription description_from(const Json& json) {
  FRUGAL_CHECK(whole(json, "version") == kVersion, "expected version {}, got {}", kVersion,
               whole(json, "version"));
  train::ModelDescription found;
  BatchSpec& spec = found.spec;
  spec.kind = kind_named(json.at("kind").get<std::string>());
  const Json& sample = json.at("sample");
  const size_t axes = name_and_axes(spec.kind).second;
  FRUGAL_CHECK(sample.is_array() && sample.size() == axes,
               "expected {} numbers as \"sample\", got {}", axes, printable(sample.dump(), 80));
  for (const Json& extent : sample) spec.sample.push_back(whole({{"sample", extent}}, "sample", 1));
  spec.classes = whole(json, "classes", 1);
  spec.metric = json.at("metric").get<std::string>();
  spec.target = json.contains("target") ? target_named(json.at("target").get<std::string>())
                                        : implied_target(json);
  if (json.contains("mask_values")) {
    for (const Json& value : json.at("mask_values")) {
      found.mask_values.push_back(whole({{"mask_values", value}}, "mask_values"));
      FRUGAL_CHECK(found.mask_values.back() < 256, "expected values below 256 as \"mask_values\"");
    }
    FRUGAL_CHECK(static_cast<int64_t>(found.mask_values.size()) == spec.classes,
                 "expected a value for each of {} classes as \"mask_values\", got {}", spec.classes,
                 found.mask_values.size());
  }
  if (const auto ids = json.find("category_ids"); ids != json.end()) {
    for (const Json& id : *ids) {
      FRUGAL_CHECK(id.is_number_integer() || (found.category_ids.empty() && id.is_null()),
                   "expected whole numbers as \"category_ids\", got {}", printable(id.dump(), 80));
      found.category_ids.push_back(id.is_null() ? 0 : id.get<int64_t>());
    }
    FRUGAL_CHECK(static_cast<int64_t>(found.category_ids.size()) == spec.classes,
                 "expected a number for each of {} classes as \"category_ids\", got {}",
                 spec.classes, found.category_ids.size());
  }
  if (const auto pictures = json.find("pictures"); pictures != json.end()) {
    found.pictures.view = {spec.sample[0], spec.sample[1], spec.sample[2],
                           whole(*pictures, "resize")};
    found.pictures.mean = numbers(*pictures, "mean");
    found.pictures.std = numbers(*pictures, "std");
  }
  if (spec.kind == Kind::sequences) {
    spec.vocabulary = whole(json, "vocabulary", 1);
    found.text.max_length = whole(json.at("text"), "max_length", 1);
    found.text.pair = json.at("text").at("pair").get<bool>();
  }
  return found;
}

// Reads one of the run's own JSON files.
template <class Read>
auto read_own(const std::string& path, const Read& read) {
  const Json json = read_json(path);
  try {
    return read(json);
  } catch (const Json::exception& e) {
    const std::string what = e.what();  // "[json.exception.NAME] what is wrong"
    throw Error(fmt::format("[run] {} is damaged: {}", in_quotes(path),
                            printable(what.substr(what.find("] ") + 2))));
  } catch (const std::exception& e) {
    throw Error(fmt::format("[run] {} is damaged: {}", in_quotes(path), data::json_reason(e)));
  }
}

std::vector<std::string> names_from(const Json& json) {
  return json.get<std::vector<std::string>>();
}

// As earlier versions need it: from the data.
train::ModelDescription description_of(const Config& config) {
  train::ModelDescription found;
  found.spec = batch_spec(config);
  found.pictures = evaluated_pictures(config, found.spec);
  found.text = evaluated_texts(config);
  found.text.tokenizer = tokenizer_of(config);
  return found;
}

}  // namespace

std::map<std::string, std::string> starting_files(
    const Config& config, const BatchSpec& spec, bool leaves_out_frozen,
    const std::function<bool(const std::string& name)>& wanted) {
  std::map<std::string, std::string> files = describing_files(config, wanted);
  if (wanted(kInput)) files[kInput] = input_json(config, spec).dump(2) + "\n";
  for (auto& [name, content] : tokenizer_files(config, wanted)) files[name] = std::move(content);
  if (leaves_out_frozen && wanted(kBase)) files[kBase] = base_json(config);
  return files;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

namespace {

bool has_file(const std::string& folder, const char* name) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(std::filesystem::path(folder) / name, ignored);
}

}  // namespace

std::shared_ptr<RunEncoding> read_encoding(const std::string& folder, const Config& config,
                                           bool with_tokenizer) {
  const auto known = std::make_shared<RunEncoding>();
  bool has_boxes = false;
  std::vector<int64_t> category_ids;
  if (has_file(folder, kInput)) {
    const train::ModelDescription input = read_own(folder + "/" + kInput, description_from);
    known->classes = input.spec.classes;
    known->mask_values = input.mask_values;
    has_boxes = input.spec.has_boxes();
    category_ids = input.category_ids;
  }
  if (with_tokenizer) known->tokenizer = read_tokenizer(folder, known->samples);
  if (has_file(folder, kClasses))
    known->class_names = read_own(folder + "/" + kClasses, names_from);
  if (has_file(folder, kColumns))
    known->table = read_own(folder + "/" + kColumns, [](const Json& json) {
      return std::make_shared<const data::CsvEncoder>(columns_from(json));
    });
  if (has_file(folder, kData)) {
    read_own(folder + "/" + kData, [&](const Json& json) {
      read_data_json(json, *known);
      return true;
    });
  } else if (config.data.name == "jsonl" && !is_decoder(config)) {
    known->class_ids = known->class_names;  // earlier versions wrote these alone
  }
  const auto& names = known->class_ids.empty() ? known->class_names : known->class_ids;
  if (has_boxes && !names.empty())
    known->boxes =
        std::make_shared<data::BoxClasses>(data::BoxClasses{names, std::move(category_ids)});
  return known;
}

namespace {

bool sets_key(const std::vector<std::string>& sets, const std::string& path) {
  return std::any_of(sets.begin(), sets.end(),
                     [&](const std::string& set) { return set.starts_with(path + "="); });
}

Json value_of(const Config& config, const std::string& path) {
  for (const Section& section : config_sections())
    for (const Field& field : section.fields)
      if (section.path(field) == path) return field.get(config);
  return nullptr;
}

// Errors: a key of `sets` that says how data are encoded, with another value than the run's, where
// the run has encoded its data already.
void check_encoding_sets(const std::string& folder, const Config& config,
                         const std::vector<std::string>& sets, const RunEncoding& known) {
  const std::pair<bool, std::vector<const char*>> decided[] = {
      {known.table != nullptr,
       {"data.categories", "data.missing", "data.drop", "data.target", "data.task",
        "data.normalize"}},
      {!known.column_means.empty(), {"data.normalize"}},
      {known.tokenizer != nullptr, {"data.vocabulary", "data.tokenizer"}},
      {!known.mask_values.empty(), {"data.mask_values"}},
      {!known.class_names.empty(), {"data.class_names"}}};
  std::optional<Config> own;
  for (const auto& [is_decided, paths] : decided)
    for (const char* path : paths) {
      if (!is_decided || !sets_key(sets, path)) continue;
      if (!own) own = load_config(folder + "/config.json");
      const Json before = value_of(*own, path), now = value_of(config, path);
      if (before != now)
        throw ConfigError(
            path, fmt::format("expected {}, as the run in {} encoded its data, got "
                              "{}; another encoding needs another run",
                              printable(before.dump()), in_quotes(folder), printable(now.dump())));
    }
}

}  // namespace

StoredRun read_run(const std::string& folder, const std::vector<std::string>& sets) {
  const auto has = [&](const char* name) { return has_file(folder, name); };
  if (!has("config.json"))
    throw ConfigError(
        "", fmt::format("expected the folder of a run, which holds config.json; {} {}",
                        in_quotes(folder), is_folder(folder) ? "has none" : "is no folder"));
  if (is_hub_folder(folder))
    throw ConfigError(
        "", fmt::format("expected the folder of a run, got {}, whose config.json is that of a "
                        "model; a configuration names it as model.weights, and a run of it is used",
                        in_quotes(folder)));
  StoredRun run;
  run.folder = folder;
  run.config = load_config(folder + "/config.json", sets);
  RunConfig& place = run.config.run;
  if (place.device == "cpu") {  // a run on CUDA may be used here
    const bool fits = place.precision == "bf16" && ops::processor_multiplies_bf16();
    if (!fits && place.precision != "bf16_in_f32") place.precision = "f32";
    place.cuda_graphs = false;
  }
  const std::shared_ptr<const RunEncoding> known = read_encoding(folder, run.config);
  check_encoding_sets(folder, run.config, sets, *known);
  run.config.data.known = known;
  if (has(kInput)) {
    run.description = read_own(folder + "/" + kInput, description_from);
    run.description.text.tokenizer = known->tokenizer;
    BatchSpec& spec = run.description.spec;
    if (spec.kind == BatchSpec::Kind::sequences && !spec.target_of_each_token())
      spec.token_extras = encoder_extras(run.config);
    run.description.pictures.view.exif = exif_of(run.config);
    run.description.pictures.of_bytes = has_bytes_of_pictures(run.config);
  } else {
    resolve(run.config);
    run.description = description_of(run.config);
  }
  run.description.classes = known->class_names;
  if (known->table != nullptr) {
    run.description.table = known->table;
    run.description.table_encoding = encoding_of(run.config);
    const int64_t width = known->table->encoding().width();
    FRUGAL_CHECK(run.description.spec.sample == Shape({width}),
                 "[run] {} is damaged: expected columns that make {} inputs, got {}",
                 in_quotes(folder + "/" + kColumns), run.description.spec.sample[0], width);
  }
  if (!run.config.model.num_classes) run.config.model.num_classes = run.description.spec.classes;
  return run;
}

data::SampleEncoder sample_encoder(const StoredRun& run) {
  const auto& known = run.config.data.known;
  if (known != nullptr && known->samples != nullptr) return *known->samples;
  return {run.description.text.tokenizer, std::nullopt, std::nullopt};
}

void resolve_with_data(StoredRun& run, const std::vector<std::string>& sets) {
  Config& config = run.config;
  if (config.data.known != nullptr) {
    const auto known = std::make_shared<RunEncoding>(*config.data.known);
    const bool others = sets_key(sets, "data.dir") || sets_key(sets, "data.name");
    const std::string change = data_change(config, *known);
    if (!change.empty() && others)
      known->parts.reset();
    else if (!change.empty())
      log().warn(
          "[data] the data have changed since the run began: {}. They are encoded as the run "
          "encoded its data",
          change);
    if (sets_key(sets, "data.split") || sets_key(sets, "seed")) known->parts.reset();
    config.data.known = known;
  }
  resolve(config);
}

bool has_checkpoint(const std::string& folder) {
  return has_file(folder + "/checkpoint", "state.safetensors");
}

void continue_encoding(Config& config, const std::string& folder, bool changed) {
  if (!has_checkpoint(folder)) return;
  if (has_file(folder, "config.json")) {
    const Config before = load_config(folder + "/config.json");
    if (before.data.name != config.data.name || before.data.layout != config.data.layout)
      return;  // the checkpoint will say so
    // Earlier versions had another default.
    if (!config.data.test_batch_size) config.data.test_batch_size = before.data.test_batch_size;
  }
  const std::shared_ptr<RunEncoding> known =
      read_encoding(folder, config, !has_lost_tokenizer_files(folder, config));
  config.data.known = known;
  if (changed) return;
  if (const std::string change = data_change(config, *known); !change.empty())
    throw ConfigError(
        "data.dir",
        fmt::format("--resume: the data have changed since the run in {} began: {}. With "
                    "--data-changed it goes on with them, encoded as it encoded its data; a new "
                    "run with another --out encodes them anew",
                    in_quotes(folder), change));
}

void adopt_encoding(Config& config) {
  if (config.data.known != nullptr || !config.model.weights || config.model.head != "keep") return;
  const std::string& folder = *config.model.weights;
  if (!has_file(folder, "config.json") || !has_file(folder, kData)) return;
  const Config before = load_config(folder + "/config.json");
  if (before.data.name != config.data.name || before.data.layout != config.data.layout) return;
  const std::shared_ptr<RunEncoding> known = read_encoding(folder, before);
  if (!data_change(config, *known).empty()) known->parts.reset();
  known->digest.reset();
  known->classes = 0;
  known->mask_values.clear();
  if (config.data.class_names != before.data.class_names) known->class_ids.clear();
  // A vocabulary is a file that the configuration names; characters are those of the text.
  if (dynamic_cast<const data::Characters*>(known->tokenizer.get()) == nullptr) {
    known->tokenizer = nullptr;
    known->samples = nullptr;
  }
  Config trial = config;
  trial.data.known = known;
  try {
    resolve(trial);
    for (const Split split : {Split::train, Split::test}) make_batches(trial, split);
    config.data.known = known;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    log().warn("[data] the data are encoded anew, and not as the run in {} encoded its own: {}",
               in_quotes(folder), e.what());
  }
}

std::string data_json_now(const Config& config, const std::string& folder) {
  const std::string path = folder + "/" + kData;
  if (!has_file(folder, kData)) return "";
  Json json = read_json(path);
  if (const auto digest = digest_of(config))
    json["digest"] = digest_json(*digest);
  else
    json.erase("digest");
  return json.dump() + "\n";
}

namespace {

[[noreturn]] void no_weights(const std::string& weights, const std::string& path, const char* why) {
  throw ConfigError(
      path, fmt::format("expected {}a file or a folder of weights, got {}, which {}",
                        path.empty() ? "best, last, or " : "", in_quotes(weights, 300), why));
}

}  // namespace

void check_weights_exist(const std::string& weights, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(weights, ignored)) no_weights(weights, path, "is not there");
}

void check_weights(const std::string& weights, const std::string& path) {
  check_weights_exist(weights, path);
  if (!is_folder(weights) || is_folder(weights + "/checkpoint")) return;
  for (const auto& entry : std::filesystem::directory_iterator(weights)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return;
  }
  no_weights(weights, path, "has no *.safetensors and is no run");
}

std::string weights_file(const StoredRun& run, const std::string& which) {
  std::error_code ignored;
  if (which != "best" && which != "last") {
    check_weights(which, "");
    return which;
  }
  const std::string folder = run.folder + "/checkpoint/";
  std::vector<std::string> names = {"last.safetensors"};
  if (run.config.optim.ema > 0) names.insert(names.begin(), "last_average.safetensors");
  if (which == "best") names.insert(names.begin(), "best.safetensors");
  for (const std::string& name : names)
    if (std::filesystem::exists(folder + name, ignored)) return folder + name;
  throw Error(
      fmt::format("[run] expected weights in {}, got none: the run has written no "
                  "checkpoint yet",
                  in_quotes(folder)));
}

namespace {

bool has_adapters(const data::SafetensorsShards& weights) {
  return std::any_of(weights.names().begin(), weights.names().end(), models::is_of_adapter);
}

struct BaseFiles {
  std::string sha256;
  int64_t bytes = 0;
};

BaseFiles digest_of_files(const data::SafetensorsShards& weights) {
  BaseFiles found;
  std::string digests;
  for (const std::string& path : weights.files()) {
    digests += data::sha256_of_file(path);
    found.bytes += static_cast<int64_t>(std::filesystem::file_size(path));
  }
  found.sha256 = data::sha256_hex(digests);
  return found;
}

}  // namespace

data::SafetensorsShards open_base(const Config& config) {
  check_weights(*config.model.weights, "model.weights");
  auto weights = open_weights(*config.model.weights);
  if (config.adapter.type != models::AdapterType::none && has_adapters(weights))
    throw ConfigError(
        "model.weights",
        fmt::format("expected the weights of a whole network, got those of an adapter "
                    "in {}; `frugal export --format merged` writes both as one",
                    in_quotes(weights.path())));
  return weights;
}

std::string base_json(const Config& config) {
  const BaseFiles files = digest_of_files(open_base(config));
  const Json json = {{"weights", std::filesystem::absolute(*config.model.weights).string()},
                     {"sha256", files.sha256},
                     {"bytes", files.bytes}};
  return json.dump(2) + "\n";
}

bool has_base(const std::string& folder) { return has_file(folder, kBase); }

void check_weights_of_run(const Config& config, const std::string& folder) {
  std::error_code none;
  if (!config.model.weights || has_base(folder) || !has_file(folder, "config.json") ||
      std::filesystem::exists(*config.model.weights, none))
    return;
  // The run's own configuration has all that the weights said, and what the data said.
  const Config own = load_config(folder + "/config.json");
  Config now = own;
  now.model = config.model;
  for (const auto size :
       {&ModelConfig::num_classes, &ModelConfig::in_channels, &ModelConfig::vocab_size})
    if (!(now.model.*size)) now.model.*size = own.model.*size;
  if (first_difference(own, now).empty()) return;
  throw ConfigError(
      "model.weights",
      fmt::format("expected the weights that the run in {0} began with, which say what network it "
                  "is, got {1}, which is not there. The run does not need them to go on: `frugal "
                  "train {0}/config.json --out {0} --resume`",
                  folder, in_quotes(*config.model.weights)));
}

data::SafetensorsShards open_base_again(const std::string& folder, const Config& config) {
  if (!has_base(folder)) {
    log().warn("[run] {} has no {}: the weights of {} are taken for those that the run began with",
               in_quotes(folder), kBase, in_quotes(*config.model.weights));
    return open_base(config);
  }
  const auto [place, sha256] = read_own(folder + "/" + kBase, [](const Json& json) {
    return std::pair(json.at("weights").get<std::string>(), json.at("sha256").get<std::string>());
  });
  std::error_code none;
  Config found = config;
  // The configuration of the run may name a place below another working directory. A place that
  // the command names is meant.
  const bool is_own = !has_file(folder, "config.json") ||
                      load_config(folder + "/config.json").model.weights == config.model.weights;
  if (is_own && !std::filesystem::exists(*config.model.weights, none)) found.model.weights = place;
  if (!std::filesystem::exists(*found.model.weights, none))
    throw ConfigError("model.weights",
                      fmt::format("expected the weights beside which the run in {} trains its "
                                  "adapters, got {}{}, which {} not there",
                                  in_quotes(folder), in_quotes(*config.model.weights),
                                  is_own ? " and " + in_quotes(place) : "", is_own ? "are" : "is"));
  auto weights = open_base(found);
  if (digest_of_files(weights).sha256 != sha256)
    throw ConfigError(
        "model.weights",
        fmt::format("expected the weights that the run in {} began with, got others in "
                    "{}: the digest of its base.json is another one",
                    in_quotes(folder), in_quotes(*found.model.weights)));
  return weights;
}

namespace {

models::StateOptions options_of_base(const Config& config) {
  return {.reset_head = config.model.head == "reset",
          .resize_positions = true,
          .without_adapters = true};
}

}  // namespace

models::StateNotes load_base(Module& network, const data::SafetensorsShards& base,
                             const Config& config) {
  auto notes = load_weights(network, base, options_of_base(config));
  models::reset_magnitudes(network);
  return notes;
}

namespace {

// The key of the network that is another one than the run's own; empty: there is none.
std::string changed_key(const StoredRun& run) {
  Config own = load_config(run.folder + "/config.json");
  if (!own.model.num_classes) own.model.num_classes = run.config.model.num_classes;
  Config now = own;
  now.model = run.config.model;
  now.adapter = run.config.adapter;
  return first_difference(own, now);
}

// Errors: `files` do not fit the network. It may be on `meta`.
void check_weights_fit(Module& network, const data::SafetensorsShards& files,
                       const models::StateOptions& options) {
  models::check_state_dict(network, train::described_weights(files), files.path(), options);
}

// The network takes memory after the checks: the configuration of a folder that somebody else made
// may stand for a network of any size.
std::shared_ptr<Module> loaded_network(const StoredRun& run, const std::string& weights,
                                       Device device) {
  const auto tensors = open_weights(weights_file(run, weights));
  const auto recipe = run_recipe(run.config, run.description.spec);
  const auto described = recipe.make_model(kMeta);
  if (run.config.adapter.type != models::AdapterType::none && !has_adapters(tensors)) {
    check_weights_fit(*described, tensors, {.without_adapters = true});
    const auto network = recipe.make_model(device);
    load_weights(*network, tensors, {.without_adapters = true});
    models::reset_magnitudes(*network);
    if (run.config.model.adapter) load_adapter(*network, run.config, *run.config.model.adapter);
    return network;
  }
  std::optional<data::SafetensorsShards> base;
  if (described->leaves_out_frozen()) {
    base.emplace(run.folder.empty() ? open_base(run.config)
                                    : open_base_again(run.folder, run.config));
    check_weights_fit(*described, *base, options_of_base(run.config));
  }
  check_weights_fit(*described, tensors, {});
  const auto network = recipe.make_model(device);
  if (base) load_base(*network, *base, run.config);
  load_weights(*network, tensors);
  return network;
}

}  // namespace

std::shared_ptr<Module> stored_network(const StoredRun& run, const std::string& weights,
                                       Device device) {
  const auto load = [&] { return loaded_network(run, weights, device); };
  if (run.folder.empty() || (weights != "best" && weights != "last"))
    return with_named_weights("", load);
  try {
    return load();
  } catch (const models::OtherNetwork& e) {
    const std::string key = changed_key(run);
    if (key.empty()) throw;  // the files of the run do not belong together
    throw ConfigError(key, e.what());
  }
}

}  // namespace frugal::apps

namespace frugal::train {

Model load(const std::string& folder, const LoadRunOptions& options) {
  std::vector<std::string> sets;
  if (!options.device.empty()) sets.push_back("device=" + options.device);
  const apps::StoredRun run = apps::read_run(folder, sets);
  // The program's own threads and limit stay as they are.
  apps::RunConfig place = run.config.run;
  place.threads = 0;
  if (place.device == "cpu") place.memory_limit = allocator(kCpu).report().limit;
  const Device device = apps::set_up_computing_device(place, "predicted");
  return {apps::stored_network(run, options.weights, device), run.description};
}

}  // namespace frugal::train
