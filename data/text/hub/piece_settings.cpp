#include "data/text/hub/piece_settings.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"
#include "data/text/hub/token_model.h"
#include "data/text/hub/tokenizer_entry.h"

namespace frugal::data {
namespace {

using Json = nlohmann::json;
constexpr const char* kAdded = "added_tokens_decoder";

// An empty object: there is no such file.
Json read_object(const std::string& path) {
  if (!is_file(path)) return Json::object();
  const std::vector<uint8_t> bytes = read_file("tokenizer", path);
  try {
    Json json = parse_json<Json>(
        std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    if (!json.is_object()) TokenizerEntry(json, path).fail("an object");
    return json;
  } catch (const JsonError& error) {
    throw Error(fmt::format("[tokenizer] {}: expected JSON, got: {}{}{}", in_quotes(path, 300),
                            error.place(), error.place().empty() ? "" : ": ", error.what()));
  }
}

// The text of a special token: a text, or an object with a content; empty: neither.
std::string text_of_token(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  const auto content = value.is_object() ? value.find("content") : value.end();
  return value.is_object() && content != value.end() && content->is_string()
             ? content->get<std::string>()
             : std::string();
}

// The added tokens of a folder as they are found; the first file that names one counts.
class AddedEntries {
 public:
  explicit AddedEntries(const PieceFile& file) : file_(file) {
    for (size_t id = 0; id < file.pieces.size(); ++id)
      ids_.emplace(file.pieces[id].text, static_cast<int32_t>(id));
  }
  void add(Json entry) {
    const std::string content = text_of_token(entry);
    if (content.empty() || known_.emplace(content, entries_.size()).second)
      entries_.push_back(std::move(entry));  // an entry without a content is an error later
  }
  void add_special(const TokenizerEntry& place, const std::string& content) {
    if (const auto at = known_.find(content); at != known_.end()) {
      entries_[at->second]["special"] = true;
      return;
    }
    const auto id = ids_.find(content);
    if (id == ids_.end())
      place.fail(fmt::format("a token of {}, of added_tokens.json or of {}", in_quotes(file_.name),
                             kAdded));
    add({{"id", static_cast<uint32_t>(id->second)},
         {"content", content},
         {"special", true},
         {"normalized", false}});
  }
  int32_t id_of(const std::string& content) const {
    if (const auto id = ids_.find(content); id != ids_.end()) return id->second;
    const auto at = known_.find(content);
    return at == known_.end() ? -1 : entries_[at->second].value("id", -1);
  }
  Json list() const { return entries_; }

 private:
  const PieceFile& file_;
  std::unordered_map<std::string, int32_t> ids_;
  std::map<std::string, size_t> known_;
  std::vector<Json> entries_;
};

void add_special_tokens(const TokenizerEntry& config, AddedEntries& added) {
  for (const auto& [key, value] : config.json().items()) {
    if (!key.ends_with("_token")) continue;
    if (const std::string text = text_of_token(value); !text.empty())
      added.add_special(config.at(key.c_str()), text);
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    if (!config.has(key) || !config.at(key).json().is_array()) continue;
    for (const TokenizerEntry& each : config.at(key).list())
      if (const std::string text = text_of_token(each.json()); !text.empty())
        added.add_special(each, text);
  }
}

void check_class(const TokenizerEntry& config) {
  std::string name = config.text("tokenizer_class", "LlamaTokenizer");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (name != "LlamaTokenizer" && name != "GemmaTokenizer")
    config.at("tokenizer_class")
        .fail(
            "LlamaTokenizer or GemmaTokenizer, whose ids are those of tokenizer.model, or a "
            "tokenizer.json beside it");
}

}  // namespace

PieceSettings settings_of_file(const PieceFile& file) {
  PieceSettings settings;
  settings.name = file.name;
  settings.added = {{kAdded, Json::array()}};
  settings.begin = file.begin;
  settings.end = file.end;
  return settings;
}

PieceSettings read_piece_settings(const std::string& folder, const PieceFile& file) {
  PieceSettings settings = settings_of_file(file);
  const auto path = [&](const char* name) { return folder + "/" + name; };
  settings.name = path("tokenizer_config.json");
  const Json own = read_object(settings.name), more = read_object(path("added_tokens.json")),
             map = read_object(path("special_tokens_map.json"));
  const TokenizerEntry config(own, settings.name);
  check_class(config);
  AddedEntries added(file);
  if (config.has(kAdded)) {
    const TokenizerEntry list = config.at(kAdded);
    if (!list.is_object()) list.fail("an object of ids and tokens");
    for (const auto& [key, value] : list.json().items()) {
      const TokenizerEntry each = list.at(key.c_str());
      const bool digits = !key.empty() && key.size() < 9 &&
                          key.find_first_not_of("0123456789") == std::string::npos;
      if (!digits || !value.is_object()) each.fail("an id and its token");
      Json entry = value;
      entry["id"] = std::stoul(key);
      entry["normalized"] = false;  // they are looked for in the text as it is
      added.add(std::move(entry));
    }
  }
  const TokenizerEntry others(more, path("added_tokens.json"));
  for (const auto& [content, id] : more.items()) {
    others.at(content.c_str()).count(kMostTokens - 1);
    added.add({{"id", id}, {"content", content}, {"normalized", false}});
  }
  add_special_tokens(config, added);
  add_special_tokens(TokenizerEntry(map, path("special_tokens_map.json")), added);
  settings.added[kAdded] = added.list();
  settings.add_begin = config.flag("add_bos_token", true);
  settings.add_end = config.flag("add_eos_token", false);
  const auto own_id = [&](const char* key, int32_t& id) {
    if (const auto value = own.find(key); value != own.end())
      if (const std::string text = text_of_token(*value); !text.empty()) id = added.id_of(text);
  };
  own_id("bos_token", settings.begin);
  own_id("eos_token", settings.end);
  if (!config.flag("legacy", true)) {
    settings.prefix_once = true;
    settings.prefix = config.flag("add_prefix_space", true);
  }
  return settings;
}

}  // namespace frugal::data
