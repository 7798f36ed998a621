#include "data/text/hub/hub_tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"
#include "data/text/hub/added_tokens.h"
#include "data/text/hub/decoders.h"
#include "data/text/hub/normalizers.h"
#include "data/text/hub/piece_settings.h"
#include "data/text/hub/pre_tokenizers.h"
#include "data/text/hub/token_model.h"
#include "data/text/unicode.h"

namespace frugal::data {

struct HubTokenizer::Parts {
  std::vector<std::unique_ptr<Normalizer>> normalizers;
  std::unique_ptr<Normalizer> later;  // for what does not begin a text; null: as the others
  PreTokenizers pre_tokenizers;
  std::unique_ptr<TokenModel> model;
  bool model_takes_bytes = false;
  AddedTokens added;
  std::vector<std::unique_ptr<Decoder>> decoders;
  EncoderLayout around;    // what the post-processor puts around texts
  bool takes_two = false;  // `around` says what stands around two
  int64_t size = 0;

  Parts(const nlohmann::json& json, const std::string& name);
  Parts(const PieceFile& file, const PieceSettings& settings);
  void normalize(std::string& text, bool first = true) const {
    if (!first && later != nullptr) return later->apply(text);
    for (const auto& each : normalizers) each->apply(text);
  }
  bool normalizes() const { return !normalizers.empty(); }
  // Appends the ids of a text without added tokens.
  void append_words(std::string text, bool first, TokenIds& ids, WordCache& cache) const;
  // Appends the ids of a text without added tokens that are looked for in plain texts.
  void append_part(std::string_view text, bool first, TokenIds& ids, WordCache& cache) const;
};

namespace {

// The ids of a template's pieces: those before its sequences, between them, and behind the last.
// Nothing: its sequences are others than `names`, in this order.
std::optional<std::vector<TokenIds>> ids_of_template(const TokenizerEntry& entry,
                                                     const char* pieces,
                                                     const std::vector<std::string>& names) {
  std::vector<TokenIds> ids(1);
  for (const TokenizerEntry& piece : entry.at(pieces).list()) {
    if (piece.has("Sequence")) {
      if (ids.size() > names.size() || piece.at("Sequence").text("id") != names[ids.size() - 1])
        return {};
      ids.emplace_back();
      continue;
    }
    const std::string id = piece.at("SpecialToken").text("id");
    for (const TokenizerEntry& each : entry.at("special_tokens").at(id.c_str()).at("ids").list())
      ids.back().push_back(static_cast<int32_t>(each.count(kMostTokens - 1)));
  }
  if (ids.size() <= names.size()) return {};
  return ids;
}

// The ids around texts: those of a template, or those of models that have two fixed tokens. Returns
// whether they say what stands around two.
bool read_post_processor(const TokenizerEntry& entry, EncoderLayout& around) {
  const std::string type = entry.text("type");
  if (type == "ByteLevel") return false;  // changes offsets alone
  if (type == "Sequence") {
    int of_two = 0;
    for (const TokenizerEntry& each : entry.at("processors").list())
      of_two += read_post_processor(each, around) ? 1 : 0;
    return of_two == 1;  // several would stand around each other
  }
  TokenIds own_before, own_after;
  bool takes_two = true;
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto id_of = [&](const char* key) {
      const std::vector<TokenizerEntry> pair = entry.at(key).list();
      if (pair.size() != 2) entry.at(key).fail("a token and its id");
      return static_cast<int32_t>(pair[1].count(kMostTokens - 1));
    };
    own_before = {id_of("cls")};
    own_after = around.between = around.behind = {id_of("sep")};
    if (type == "RobertaProcessing") around.between.push_back(around.between.front());
  } else if (type == "TemplateProcessing") {
    const auto one = ids_of_template(entry, "single", {"A"});
    if (!one) entry.at("single").fail("one Sequence, A");
    own_before = (*one)[0];
    own_after = (*one)[1];
    takes_two = false;
    if (entry.has("pair"))
      if (const auto two = ids_of_template(entry, "pair", {"A", "B"}); two) {
        takes_two = (*two)[0] == own_before;
        around.between = (*two)[1];
        around.behind = (*two)[2];
      }
  } else {
    entry.at("type").fail(
        "BertProcessing, ByteLevel, RobertaProcessing, Sequence or TemplateProcessing");
  }
  around.before.insert(around.before.begin(), own_before.begin(), own_before.end());
  around.after.insert(around.after.end(), own_after.begin(), own_after.end());
  return takes_two;
}

nlohmann::json parse_tokenizer(std::string_view text, const std::string& name) {
  try {
    return parse_json<nlohmann::json>(text);
  } catch (const JsonError& error) {
    throw Error(fmt::format("[tokenizer] {}: expected JSON, got: {}{}{}", in_quotes(name, 300),
                            error.place(), error.place().empty() ? "" : ": ", error.what()));
  }
}

}  // namespace

HubTokenizer::Parts::Parts(const nlohmann::json& json, const std::string& name) {
  const TokenizerEntry file(json, name);
  if (file.has("normalizer")) normalizers = read_normalizers(file.at("normalizer"));
  const bool bytes_before = std::any_of(normalizers.begin(), normalizers.end(),
                                        [](const auto& each) { return each->writes_bytes(); });
  if (file.has("pre_tokenizer")) pre_tokenizers = read_pre_tokenizers(file.at("pre_tokenizer"));
  const TokenizerEntry model_entry = file.at("model");
  // Bytes go to the model as they are, if the characters for them are written last.
  model_takes_bytes = pre_tokenizers.bytes_last && !bytes_before &&
                      token_model_type(model_entry) == "BPE" &&
                      model_entry.text("continuing_subword_prefix", "").empty() &&
                      model_entry.text("end_of_word_suffix", "").empty() &&
                      !model_entry.flag("byte_fallback", false);
  model = read_token_model(model_entry, model_takes_bytes);
  if (file.has("added_tokens"))
    added = AddedTokens(file.at("added_tokens"), model->table(), [this](std::string text) {
      normalize(text);
      return text;
    });
  if (file.has("decoder")) decoders = read_decoders(file.at("decoder"));
  size = model->table().size();
  if (!added.all().empty()) size = std::max<int64_t>(size, added.all().back().id + 1);
  if (!file.has("post_processor")) return;
  takes_two = read_post_processor(file.at("post_processor"), around);
  for (const TokenIds* ids : {&around.before, &around.after, &around.between, &around.behind})
    for (const int32_t id : *ids)
      if (id >= size)
        file.at("post_processor").reject(fmt::format("expected ids below {}, got {}", size, id));
  for (const char* filler : {"[PAD]", "<pad>"}) {
    const AddedToken* token = added.find(filler);
    const int32_t id = token != nullptr ? token->id : model->table().find(filler);
    if (id > 0) around.padding = id;
  }
}

HubTokenizer::Parts::Parts(const PieceFile& file, const PieceSettings& settings) {
  normalizers.push_back(make_piece_normalizer(file, settings.prefix));
  if (settings.prefix_once) later = make_piece_normalizer(file, false);
  model = make_piece_model(file);
  std::vector<AddedToken> silent;  // they stand for no text
  for (size_t id = 0; id < file.pieces.size(); ++id)
    if (file.pieces[id].type == PieceType::control)
      silent.push_back({.id = static_cast<int32_t>(id),
                        .content = file.pieces[id].text,
                        .special = true,
                        .searched = false});
  added = AddedTokens(
      TokenizerEntry(settings.added, settings.name).at("added_tokens_decoder"), model->table(),
      [](std::string text) { return text; }, silent);
  decoders.push_back(make_piece_decoder(file));
  size = model->table().size();
  if (!added.all().empty()) size = std::max<int64_t>(size, added.all().back().id + 1);
  if (settings.add_begin && settings.begin >= 0) around.before = {settings.begin};
  if (settings.add_end && settings.end >= 0) around.after = {settings.end};
}

void HubTokenizer::Parts::append_words(std::string text, bool first, TokenIds& ids,
                                       WordCache& cache) const {
  WordList words(std::move(text), first);
  for (const auto& step : pre_tokenizers.all) step->apply(words);
  if (pre_tokenizers.bytes_last && !model_takes_bytes) write_byte_characters(words);
  for (const Span& span : words.spans) model->append(words.word(span), ids, cache);
}

void HubTokenizer::Parts::append_part(std::string_view text, bool first, TokenIds& ids,
                                      WordCache& cache) const {
  std::string normal(text);
  normalize(normal, first);
  const std::vector<AddedPart> parts = added.split(normal, true);
  if (parts.size() == 1 && parts[0].id < 0)
    return append_words(std::move(normal), first, ids, cache);
  for (const AddedPart& part : parts) {
    if (part.id >= 0)
      ids.push_back(part.id);
    else
      append_words(normal.substr(part.span.begin, part.span.end - part.span.begin),
                   first && part.span.begin == 0, ids, cache);
  }
}

HubTokenizer::HubTokenizer(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file("tokenizer", path);
  if (path.ends_with(".model")) {
    const PieceFile file =
        read_piece_file({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
    parts_ = std::make_unique<const Parts>(file, settings_of_file(file));
    return;
  }
  parts_ = std::make_unique<const Parts>(
      parse_tokenizer({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path), path);
}

HubTokenizer::HubTokenizer(std::string_view json, const std::string& name)
    : parts_(std::make_unique<const Parts>(parse_tokenizer(json, name), name)) {}

HubTokenizer::HubTokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}

std::unique_ptr<const HubTokenizer> HubTokenizer::of_folder(const std::string& folder) {
  const std::string pieces = folder + "/tokenizer.model", json = folder + "/tokenizer.json";
  if (is_file(json) || !is_file(pieces)) return std::make_unique<const HubTokenizer>(json);
  const std::vector<uint8_t> bytes = read_file("tokenizer", pieces);
  const PieceFile file =
      read_piece_file({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, pieces);
  return std::unique_ptr<const HubTokenizer>(
      new HubTokenizer(std::make_unique<const Parts>(file, read_piece_settings(folder, file))));
}

HubTokenizer::~HubTokenizer() = default;

int64_t HubTokenizer::size() const { return parts_->size; }

TokenIds HubTokenizer::encode(std::string_view text) const {
  FRUGAL_CHECK(text.size() < size_t{1} << 31,
               "[tokenizer] expected a text of less than 2^31 bytes, got {}", text.size());
  const std::string valid = valid_utf8(text);
  TokenIds ids;
  WordCache cache;
  for (const AddedPart& part : parts_->added.split(valid, false)) {
    if (part.id >= 0)
      ids.push_back(part.id);
    else
      parts_->append_part(
          std::string_view(valid).substr(part.span.begin, part.span.end - part.span.begin),
          part.span.begin == 0, ids, cache);
  }
  return ids;
}

// Text between two added tokens is encoded alone, so a place changes what is around it up to them.
TokenIds HubTokenizer::encode_counting(std::string_view text, const std::vector<size_t>& places,
                                       std::vector<int64_t>& counts) const {
  if (valid_utf8(text) != text) return Tokenizer::encode_counting(text, places, counts);
  TokenIds ids;
  WordCache cache;
  counts.clear();
  const auto parts = parts_->added.split(text, false);
  for (const AddedPart& part : parts) {
    const std::string_view own = text.substr(part.span.begin, part.span.end - part.span.begin);
    const auto begin = static_cast<std::ptrdiff_t>(ids.size());
    while (counts.size() < places.size() && places[counts.size()] <= part.span.begin)
      counts.push_back(begin);
    if (part.id >= 0)
      ids.push_back(part.id);
    else
      parts_->append_part(own, part.span.begin == 0, ids, cache);
    while (counts.size() < places.size() && places[counts.size()] < part.span.end) {
      TokenIds before;
      if (part.id < 0)
        parts_->append_part(own.substr(0, places[counts.size()] - part.span.begin),
                            part.span.begin == 0, before, cache);
      const auto [same, end] =
          std::mismatch(ids.begin() + begin, ids.end(), before.begin(), before.end());
      counts.push_back(same - ids.begin());
    }
  }
  counts.resize(places.size(), static_cast<int64_t>(ids.size()));
  return ids;
}

std::optional<int32_t> HubTokenizer::find(const std::string& token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  const int32_t id = parts_->model->table().find(token);
  if (id < 0) return std::nullopt;
  return id;
}

bool HubTokenizer::is_special(int64_t id) const {
  const AddedToken* token = parts_->added.with_id(id);
  return token != nullptr && token->special;
}

TokenIds HubTokenizer::before_text() const { return parts_->around.before; }
TokenIds HubTokenizer::after_text() const { return parts_->around.after; }
const EncoderLayout* HubTokenizer::encoder_layout() const {
  return parts_->takes_two ? &parts_->around : nullptr;
}

std::string HubTokenizer::decode(const TokenIds& ids) const { return decode(ids, true); }
std::string HubTokenizer::decode_plain(const TokenIds& ids) const { return decode(ids, false); }

std::string HubTokenizer::decode(const TokenIds& ids, bool special) const {
  const TokenTable& table = parts_->model->table();
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    FRUGAL_CHECK(id >= 0 && id < size(), "[tokenizer] expected an id in [0, {}), got {}", size(),
                 id);
    const AddedToken* added = parts_->added.with_id(id);
    if (added != nullptr && added->special && !special) continue;
    if (added != nullptr)
      tokens.push_back(added->content);
    else if (id < table.size() && !table.token(id).empty())
      tokens.push_back(table.token(id));
  }
  for (const auto& decoder : parts_->decoders) decoder->apply(tokens);
  // Without a decoder, spaces stand between tokens.
  const bool spaces = parts_->decoders.empty();
  std::string text;
  for (const std::string& token : tokens) {
    if (spaces && &token != tokens.data()) text += ' ';
    text += token;
  }
  return text;
}

std::string HubTokenizer::describe() const {
  const std::string& cuts = parts_->pre_tokenizers.describe;
  return fmt::format("{}, {} and {} added, {}", parts_->model->describe(),
                     with_noun(parts_->model->table().count(), "token"), parts_->added.all().size(),
                     cuts.empty() ? "whole texts" : "words by " + cuts);
}

}  // namespace frugal::data
