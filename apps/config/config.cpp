#include "apps/config/config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/config/adapter_files.h"
#include "apps/config/hub_folder.h"
#include "apps/config/keys/config_readers.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/train_options.h"
#include "core/words/nearest.h"
#include "core/words/quoted.h"
#include "data/fetch/sha256.h"
#include "data/fetch/sources.h"
#include "data/formats/json_strict.h"
#include "models/sequential/sequential.h"

namespace frugal::apps {
namespace {

constexpr size_t kMaxFile = size_t{64} << 20;
constexpr const char* kSchemaKey = "$schema";  // editors put it there; it means nothing to us

std::string leaf(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// The valid path closest to `path`: by its whole text, or by its last part alone at a small
// penalty, so that a key in the wrong section finds its place.
std::string nearest(const std::string& path) {
  std::string best;
  int64_t lowest = INT64_MAX;
  auto offer = [&](const std::string& candidate) {
    const int64_t d =
        std::min(edit_distance(path, candidate), edit_distance(leaf(path), leaf(candidate)) + 1);
    if (d < lowest) {
      lowest = d;
      best = candidate;
    }
  };
  for (const Section& section : config_sections()) {
    if (!section.name.empty()) offer(section.name);
    for (const Field& field : section.fields) offer(section.path(field));
  }
  return best;
}

// What other programs call a key. Names without '.', '-' and capitals.
struct Synonym {
  const char *name, *key;
};
constexpr Synonym kSynonyms[] = {
    {"learning_rate", "optim.lr"},
    {"base_lr", "optim.lr"},
    {"max_lr", "optim.lr"},
    {"initial_lr", "optim.lr"},
    {"optimizer", "optim.name"},
    {"opt", "optim.name"},
    {"wd", "optim.weight_decay"},
    {"l2", "optim.weight_decay"},
    {"momentum", "optim.momentum"},
    {"max_grad_norm", "optim.clip_norm"},
    {"grad_clip", "optim.clip_norm"},
    {"clip_grad", "optim.clip_norm"},
    {"gradient_clip_val", "optim.clip_norm"},
    {"clip", "optim.clip_norm"},
    {"scheduler", "schedule.name"},
    {"lr_scheduler", "schedule.name"},
    {"warmup", "schedule.warmup_epochs"},
    {"pct_start", "schedule.peak_at"},
    {"epoch", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"n_epochs", "train.epochs"},
    {"max_steps", "train.steps"},
    {"iterations", "train.steps"},
    {"accumulation_steps", "train.gradient_accumulation"},
    {"gradient_accumulation_steps", "train.gradient_accumulation"},
    {"accumulate_grad_batches", "train.gradient_accumulation"},
    {"gradient_checkpointing", "train.checkpointing"},
    {"early_stopping", "train.early_stop.patience"},
    {"smoothing", "train.label_smoothing"},
    {"logging_steps", "train.log_interval"},
    {"log_every", "train.log_interval"},
    {"log_freq", "train.log_interval"},
    {"print_freq", "train.log_interval"},
    {"eval_every", "train.eval_interval"},
    {"save_every", "train.checkpoint_interval"},
    {"checkpoint_every", "train.checkpoint_interval"},
    {"save_steps", "train.checkpoint_interval"},
    {"batch", "data.batch_size"},
    {"bs", "data.batch_size"},
    {"batchsize", "data.batch_size"},
    {"train_batch_size", "data.batch_size"},
    {"per_device_train_batch_size", "data.batch_size"},
    {"eval_batch_size", "data.test_batch_size"},
    {"val_batch_size", "data.test_batch_size"},
    {"dataset", "data.name"},
    {"data_dir", "data.dir"},
    {"data_path", "data.dir"},
    {"root", "data.dir"},
    {"num_workers", "data.workers"},
    {"img_size", "data.image_size"},
    {"input_size", "data.image_size"},
    {"size", "data.image_size"},
    {"arch", "model.name"},
    {"architecture", "model.name"},
    {"network", "model.name"},
    {"backbone", "model.trunk"},
    {"pretrained", "model.weights"},
    {"checkpoint", "model.weights"},
    {"drop_path", "model.stochastic_depth"},
    {"drop_rate", "model.dropout"},
    {"random_seed", "seed"},
    {"gpu", "device"},
    {"gpus", "device"},
    {"cuda", "device"},
    {"amp", "precision"},
    {"dtype", "precision"},
    {"mixed_precision", "precision"},
    {"lora_r", "adapter.rank"},
    {"r", "adapter.rank"},
    {"lora_alpha", "adapter.alpha"},
    {"lora_dropout", "adapter.dropout"},
    {"target_modules", "adapter.targets"},
    {"lora", "adapter.type"},
    {"budget", "compression.memory_budget"},
    {"quantization", "compression.bits"},
};

// The value of a path such as "model.weights" in a document; null: it is not there.
Json* value_at(Json& document, const std::string& path) {
  Json* node = &document;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    if (!node->is_object()) return nullptr;
    const auto found = node->find(part);
    if (found == node->end()) return nullptr;
    node = &*found;
  }
  return node;
}

const std::vector<std::string>& keys_of_paths() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all;
    for (const Section& section : config_sections())
      for (const Field& field : section.fields)
        if (field.is_path) all.push_back(section.path(field));
    return all;
  }();
  return keys;
}

void expand_home(Json& document) {
  for (const std::string& key : keys_of_paths())
    if (Json* const value = value_at(document, key); value != nullptr && value->is_string())
      *value = at_home(value->get<std::string>());
}

// The assignments "path=value" with the home folder.
std::vector<std::string> with_home(std::vector<std::string> sets) {
  for (const std::string& key : keys_of_paths())
    for (std::string& set : sets)
      if (set.starts_with(key + "=")) set = key + "=" + at_home(set.substr(key.size() + 1));
  return sets;
}

std::string synonym_of(const std::string& path) {
  std::string name = leaf(path);
  for (char& c : name)
    c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const Synonym& synonym : kSynonyms)
    if (name == synonym.name) return synonym.key;
  return "";
}

// How a file writes a key: {"optim": {"lr": ...}}.
std::string nested(const std::string& path) {
  std::string begin, end;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');)
    begin += "{\"" + part + "\": ", end += "}";
  return begin + "..." + end;
}

// No valid key is nearly as long as what is shown; so the rest of a key would not change the
// answer.
[[noreturn]] void unknown(const std::string& path) {
  const std::string shown = printable(path), synonym = synonym_of(path);
  const std::string valid = synonym.empty() ? nearest(shown) : synonym;
  if (valid == shown)  // a dot in a name of the document
    throw ConfigError(shown, "expected " + nested(valid) + " in a file, got a name with a dot");
  throw ConfigError(shown, fmt::format("unknown key; the nearest valid key is '{}'", valid));
}

const Field* find(const Section& section, const std::string& key) {
  for (const Field& field : section.fields)
    if (field.key == key) return &field;
  return nullptr;
}

// A choice as the table spells it: "fashion-mnist" is fashion_mnist, "AdamW" is adamw, "CUDA:1" is
// cuda:1.
Json spelled(const Json& schema, const Json& value) {
  if (!value.is_string()) return value;
  if (schema.contains("examples") && schema["type"] == "string") {
    auto text = value.get<std::string>();
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
  }
  if (!schema.contains("enum")) return value;
  for (const Json& choice : schema["enum"])
    if (choice == value) return value;
  for (const Json& choice : schema["enum"])
    if (data::same_name(choice.get<std::string>(), value.get<std::string>())) return choice;
  return value;
}

void assign(Config& config, const Section& section, const Field& field, const Json& given) {
  const std::string path = section.path(field);
  const Json value = spelled(field.schema, given);
  validate(field.schema, value, path);
  // A whole number may be written 1e3; the setters of integers want it as one.
  const Json& type = field.schema["type"];
  const bool integral =
      type == "integer" ||
      (type.is_array() && std::find(type.begin(), type.end(), "integer") != type.end());
  if (integral && value.is_number_float())
    field.set(config, static_cast<int64_t>(value.get<double>()));
  else
    field.set(config, value);
}

[[noreturn]] void unknown_or_old(const std::string& path) {
  for (const OldKey& old : old_keys())
    if (old.path == path) throw ConfigError("", fmt::format("{} is now {}", old.path, old.now));
  unknown(path);
}

const Section* section_named(const std::string& name) {
  for (const Section& section : config_sections())
    if (!name.empty() && section.name == name) return &section;
  return nullptr;
}

void check_policy(const std::string& path, const Json& value) {
  if (path == "compression.policy" && value == "budget")
    throw ConfigError(path,
                      "expected one of gact, actnn, acgc, got \"budget\", which is no value of its "
                      "own any more: a compression.memory_budget such as \"2 GiB\" means it");
}

void parse_section(Config& config, const Section& section, const Json& document) {
  if (!document.is_object())
    throw ConfigError(
        section.name,
        fmt::format("expected an object{}, got {}", document.is_string() ? " in valid JSON" : "",
                    printable(document.dump(-1, ' ', true, Json::error_handler_t::replace), 80)));
  for (const auto& [key, value] : document.items()) {
    const std::string path = section.name + "." + key;
    if (const Field* field = find(section, key)) {
      check_policy(path, value);
      assign(config, section, *field, value);
    } else if (const Section* inner = section_named(path)) {
      parse_section(config, *inner, value);
    } else {
      unknown_or_old(path);
    }
  }
}

// What no single key can tell.
void check_together(const Config& c) {
  const bool has_momentum = c.optim.value("momentum").number() != 0;
  if (c.optim.value("nesterov").flag() && !has_momentum)
    throw ConfigError("optim.nesterov", "expected a momentum above 0, got 0");
  if (c.optim.name == "sgd_8bit" && !has_momentum)
    throw ConfigError("optim.momentum",
                      "expected a number above 0 with sgd_8bit, which keeps the momentum in 8 "
                      "bits, got 0; without momentum, sgd has no state");
  if (c.train.patience > 0 && c.train.early_stop.patience > 0)
    throw ConfigError("train.early_stop.patience",
                      "expected 0 with train.patience, which is another name of the same rule");
  at_section("schedule", [&] { optim::check(c.schedule, c.optim.lr); });
}

bool is_within(const std::string& path, const std::string& section) {
  return !section.empty() && path.starts_with(section + ".");
}

// `from`: what the text is, for messages.
Json parse_text(std::string_view text, const std::string& from) {
  try {
    return data::parse_json<Json>(text);
  } catch (const data::JsonError& e) {
    throw ConfigError(
        e.place(),
        fmt::format("{}: {}{}", from, e.place().empty() ? "not valid JSON: " : "", e.what()));
  }
}

}  // namespace

std::string at_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  const bool below = path == "~" || path.starts_with("~/");
  return below && home != nullptr && *home != 0 ? home + path.substr(1) : path;
}

std::string key_meant(const std::string& name) {
  if (const std::string synonym = synonym_of(name); !synonym.empty()) return synonym;
  std::string found = nearest(name);
  return edit_distance(leaf(found), leaf(name)) <= (name.size() > 4 ? 1 : 0) ? found : "";
}

ConfigError with_file(const std::vector<KeysOfFile>& files, const ConfigError& error) {
  for (const KeysOfFile& keys : files) {
    if (std::find(keys.paths.begin(), keys.paths.end(), error.path()) == keys.paths.end()) continue;
    const std::string says = fmt::format(" ({} says so)", in_quotes(keys.file, 300));
    if (error.reason().find(says) != std::string::npos) break;
    return {error.path(), error.reason() + says};
  }
  return error;
}

Config parse_config(const Json& given) {
  Config config;
  if (!given.is_object())
    throw ConfigError("", fmt::format("expected an object of sections, got {}", given.type_name()));
  Json document = given;
  expand_home(document);
  expand_preset(document);
  expand_level(document);
  config.files = {expand_hub_folder(document), expand_adapter(document)};
  const auto& sections = config_sections();
  for (const auto& [key, value] : document.items()) {
    if (key == kSchemaKey) continue;
    const Section* section = key.find('.') == std::string::npos ? section_named(key) : nullptr;
    if (section != nullptr) {
      naming_files(config, [&, &value = value] { parse_section(config, *section, value); });
      continue;
    }
    const Field* field = find(sections.back(), key);
    if (field == nullptr) unknown(key);
    assign(config, sections.back(), *field, value);
  }
  naming_files(config, [&] { check_together(config); });
  return config;
}

namespace {

// model.modules[3].dropout, as messages name entries of lists, is model.modules.3.dropout.
std::string with_dots(const std::string& path) {
  std::string text;
  for (const char c : path)
    if (c == '[')
      text += '.';
    else if (c != ']')
      text += c;
  return text;
}

// The entry of a list that a part of a path names.
Json& element(Json& list, const std::string& part, const std::string& path) {
  const bool number = !part.empty() && part.size() < 10 &&
                      part.find_first_not_of("0123456789") == std::string::npos;
  const size_t index = number ? std::stoul(part) : list.size();
  if (index >= list.size())
    throw ConfigError(printable(path),
                      fmt::format("expected the number of one of {} entries, from 0, got {}",
                                  list.size(), in_quotes(part)));
  return list[index];
}

}  // namespace

void apply_set(Json& document, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw ConfigError("", fmt::format("--set: expected path=value, got {}", in_quotes(text)));
  const std::string path = text.substr(0, equals), value = text.substr(equals + 1);
  Json* node = &document;
  std::stringstream parts(with_dots(path));
  bool in_list = false;
  std::string above;  // the part before
  for (std::string part; std::getline(parts, part, '.'); above = part) {
    if (node->is_array()) {
      node = &element(*node, part, path);
      if (node->is_string() && !parts.eof()) *node = Json({{node->get<std::string>(), nullptr}});
      in_list = true;
      continue;
    }
    // A layer's value that stands for its first key: {"dropout": 0.1}.
    const std::string first = in_list && !node->is_object() ? models::first_key_of(above) : "";
    if (!first.empty() && !node->is_null()) *node = Json({{first, *node}});
    if (!node->is_object()) unknown(path);
    node = &(*node)[part];
    if (node->is_null() && !parts.eof()) *node = Json::object();
  }
  *node = Json::accept(value) ? parse_text(value, "--set " + printable(path)) : Json(value);
}

namespace {

// The level that a "path=value" chooses; empty: none.
std::string level_set_by(const std::string& set) {
  constexpr std::string_view kKey = "compression.level=";
  const std::string value = set.starts_with(kKey) ? set.substr(kKey.size()) : "";
  return value == "null" ? "" : value;
}

}  // namespace

void apply_sets(Json& document, const std::vector<std::string>& given) {
  const std::vector<std::string> sets = with_home(given);
  constexpr std::string_view kWeights = "model.weights=";
  for (const std::string& set : sets)
    if (set.starts_with(kWeights) && is_hub_folder(set.substr(kWeights.size())))
      remove_hub_keys(document, set.substr(kWeights.size()));
    else if (set.starts_with("compression.preset=") && !set.ends_with("=null"))
      remove_keys_of_presets(document);
    else if (const std::string level = level_set_by(set); !level.empty())
      remove_keys_of_levels(document, level);
  for (const std::string& set : sets) apply_set(document, set);
}

Json read_json(const std::string& path) {
  if (path.empty()) throw ConfigError("", "expected the name of a file, got an empty one");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw ConfigError("", fmt::format("expected a file, got the folder {}{}", path,
                                      std::filesystem::exists(
                                          std::filesystem::path(path) / "config.json", ignored)
                                          ? "; its configuration is the file config.json in it"
                                          : ""));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("", fmt::format("cannot read {}", path));
  std::string text;
  for (std::string piece(size_t{1} << 16, '\0'); file;) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece, 0, static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxFile)  // a device never ends
      throw ConfigError("", fmt::format("{}: expected at most {} bytes, got more", path, kMaxFile));
  }
  if (file.bad()) throw ConfigError("", fmt::format("cannot read {}", path));
  return parse_text(text, path);
}

namespace {

// The configuration in the folder of a run. Earlier versions wrote keys there that nothing read.
bool is_file_of_run(const std::string& path) {
  const std::filesystem::path file = path;
  std::error_code ignored;
  return file.filename() == "config.json" &&
         std::filesystem::is_regular_file(file.parent_path() / "input.json", ignored) &&
         std::filesystem::is_directory(file.parent_path() / "checkpoint", ignored);
}

// of_run: the document is the config.json of a run, which may hold keys that nothing reads.
Config configured(Json document, const std::vector<std::string>& sets, const std::string& chosen,
                  bool of_run) {
  const Json file = document;
  apply_sets(document, sets);
  Config config = parse_config(document);
  check_set_keys(config, sets, chosen);
  if (!of_run)
    for (const UnreadKey& key : refused_keys(config, file, sets))
      if (!is_within(key.path, chosen)) throw ConfigError(key.path, key.what);
  drop_unread(config, chosen);
  const Json* model = file.contains("model") ? &document["model"] : nullptr;
  config.model.is_named = model != nullptr && model->is_object() && model->contains("name");
  return config;
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& sets,
                   const std::string& chosen) {
  Json document = read_json(path);
  if (!document.is_object())
    throw ConfigError(
        "", fmt::format("{}: expected an object of sections, got {}", path, document.type_name()));
  return configured(std::move(document), sets, chosen, is_file_of_run(path));
}

Config load_document(Json document, const std::vector<std::string>& sets,
                     const std::string& chosen) {
  return configured(std::move(document), sets, chosen, false);
}

void drop_unread(Config& config, const std::string& chosen) {
  static const Config defaults;
  constexpr int kMostRounds = 8;  // a key may lose its reader with another one
  for (int round = 0; round < kMostRounds; ++round) {
    bool dropped = false;
    for (const UnreadKey& key : unread_keys(config)) {
      if (is_within(key.path, chosen)) continue;
      for (const Section& section : config_sections())
        for (const Field& field : section.fields)
          if (section.path(field) == key.path) field.set(config, field.get(defaults));
      dropped = true;
    }
    if (!dropped) return;
  }
}

namespace {

bool has_same_value(const Config& a, const Config& b, const std::string& path) {
  for (const Section& section : config_sections())
    for (const Field& field : section.fields)
      if (section.path(field) == path) return field.get(a) == field.get(b);
  return false;
}

// Is `path` the key that "path=value" gives, or in the section that it gives?
bool names(const std::string& set, const std::string& path) {
  const std::string named = set.substr(0, set.find('='));
  return path == named || is_within(path, named);
}

bool is_chosen(const std::vector<std::string>& sets, const std::string& path) {
  return std::any_of(sets.begin(), sets.end(),
                     [&](const std::string& set) { return set.starts_with(path + "="); });
}

}  // namespace

void check_set_keys(const Config& config, const std::vector<std::string>& sets,
                    const std::string& chosen) {
  if (sets.empty()) return;
  for (const UnreadKey& key : unread_keys(config))
    for (const std::string& set : sets) {
      if (is_within(key.path, chosen)) continue;
      if (names(set, key.path)) throw ConfigError(key.path, key.what);
      const std::string level = level_set_by(set);
      if (level.empty() || is_chosen(sets, key.path)) continue;
      for (const auto& each : keys_of_level(policy_of(config), level))
        if (each.first == key.path)
          throw ConfigError(set.substr(0, set.find('=')),
                            fmt::format("{} sets {}: {}", level, key.path, key.what));
    }
}

std::vector<UnreadKey> refused_keys(const Config& config, const Json& file,
                                    const std::vector<std::string>& sets) {
  const std::vector<UnreadKey> unread = unread_keys(config);
  if (unread.empty()) return unread;
  std::optional<Config> own;
  try {
    own = parse_config(file);
  } catch (const ConfigError&) {  // only what --set changed makes it whole
    return unread;
  }
  const std::vector<UnreadKey> unread_before = unread_keys(*own);
  std::vector<UnreadKey> refused;
  for (const UnreadKey& key : unread) {
    const bool named = std::any_of(sets.begin(), sets.end(),
                                   [&](const std::string& set) { return names(set, key.path); });
    const bool before = std::any_of(unread_before.begin(), unread_before.end(),
                                    [&](const UnreadKey& b) { return b.path == key.path; });
    if (named || before || !has_same_value(config, *own, key.path)) refused.push_back(key);
  }
  return refused;
}

Json to_json(const Config& config) {
  Json document = Json::object();
  for (const Section& section : config_sections()) {
    Json* place = &document;
    std::stringstream parts(section.name);
    for (std::string part; std::getline(parts, part, '.');) place = &(*place)[part];
    for (const Field& field : section.fields) (*place)[field.key] = field.get(config);
  }
  return document;
}

Json config_schema() {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "Frugal training configuration"},
                 {"type", "object"},
                 {"additionalProperties", false},
                 {"properties", {{kSchemaKey, {{"type", "string"}}}}}};
  const Config defaults;
  for (const Section& section : config_sections()) {
    Json fields = Json::object();
    for (const Field& field : section.fields) {
      Json entry = field.schema;
      if (entry.contains("enum") && entry["type"].is_array()) entry["enum"].push_back(nullptr);
      entry["default"] = field.get(defaults);
      entry["description"] = field.doc;
      fields[field.key] = std::move(entry);
    }
    Json* place = &schema["properties"];
    std::stringstream parts(section.name);
    for (std::string part; std::getline(parts, part, '.');) {
      Json& inner = (*place)[part];
      if (inner.is_null())
        inner = {{"type", "object"},
                 {"description", section.doc},
                 {"additionalProperties", false},
                 {"properties", Json::object()}};
      place = &inner["properties"];
    }
    for (auto& [key, entry] : fields.items()) (*place)[key] = entry;
  }
  return schema;
}

std::string config_help() {
  std::string text;
  const Config defaults;
  for (const Section& section : config_sections()) {
    text += fmt::format("{}{}\n", section.name.empty() ? "" : section.name + ": ", section.doc);
    for (const Field& field : section.fields)
      text += fmt::format("  {}\n      {}\n      {}; default {}{}\n", section.path(field),
                          field.doc, describe_schema(field.schema), field.get(defaults).dump(),
                          field.reader.by.empty() ? "" : "; read by " + field.reader.who);
  }
  return text;
}

std::string config_text(const Config& config) { return to_json(config).dump(2) + "\n"; }

std::string config_sha256(const Config& config) { return data::sha256_hex(config_text(config)); }

std::string first_difference(const Config& a, const Config& b) {
  // It does not matter which GPU computes.
  const auto on_any_gpu = [](Config c) {
    if (c.run.on_cuda()) c.run.device = "cuda";
    return c;
  };
  // Weights do not depend on when they are updated, but a plan of a budget does.
  const auto updated = [](Config c) {
    c.train.in_backward =
        !c.compression.memory_budget.empty() && keeps_gradients(update_time(c)).empty();
    return c;
  };
  const Config first = updated(on_any_gpu(a)), second = updated(on_any_gpu(b));
  for (const Section& section : config_sections())
    for (const Field& field : section.fields)
      if (field.affects_results && field.get(first) != field.get(second))
        return section.path(field);
  return "";
}

}  // namespace frugal::apps
