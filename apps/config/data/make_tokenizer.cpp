#include "apps/config/data/make_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "apps/config/data/data_parts.h"
#include "apps/config/hub_folder.h"
#include "apps/config/keys/config_readers.h"
#include "apps/config/run_encoding.h"
#include "core/log.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/fetch/sources.h"
#include "data/formats/file_bytes.h"
#include "data/text/byte_bpe.h"
#include "data/text/characters.h"
#include "data/text/hub/hub_tokenizer.h"
#include "data/text/unicode.h"

namespace frugal::apps {
namespace {

std::string vocabulary_path(const Config& config) {
  if (const auto& path = config.data.vocabulary) {
    std::error_code ignored;
    if (!std::filesystem::exists(*path, ignored))
      throw ConfigError(
          "data.vocabulary",
          fmt::format("expected a file or a folder, got {}, which is not there", in_quotes(*path)));
    return *path;
  }
  // `frugal data fetch` puts it there: a file, or with byte_bpe a folder of two files.
  const bool bytes = config.data.tokenizer == "byte_bpe" && data_traits(config).is_text;
  const std::string usual = bytes ? "text/gpt2" : "text/bert-base-uncased-vocab.txt";
  // A folder of the hub may have the words of a BERT beside its weights.
  const bool hub = !bytes && config.model.weights && is_hub_folder(*config.model.weights);
  if (hub && data::is_file(*config.model.weights + "/vocab.txt"))
    return *config.model.weights + "/vocab.txt";
  for (const std::string& folder : data::data_folders()) {
    std::error_code ignored;
    const auto path = std::filesystem::path(folder) / usual;
    if (!std::filesystem::exists(path, ignored)) continue;
    if (hub)
      log().warn(
          "[tokenizer] {} has no tokenizer.json, tokenizer.model or vocab.txt, so words are "
          "those of {}; data.vocabulary names others",
          in_quotes(*config.model.weights), in_quotes(path.string()));
    return path.string();
  }
  throw ConfigError("data.vocabulary",
                    fmt::format("found no {} in {}; `frugal data fetch {}` downloads it, or "
                                "data.vocabulary names the {}",
                                usual, searched_folders(), bytes ? "gpt2_bpe" : "bert_vocab",
                                bytes ? "folder" : "file"));
}

// Is the tokenizer of an encoder that of a model's folder?
bool is_hub_encoder(const Config& config) {
  const std::string& kind = config.data.tokenizer;
  if (kind != "characters") return kind == "hub";
  const auto& named = config.data.vocabulary ? config.data.vocabulary : config.model.weights;
  return named && data::has_sample_encoder(*named);
}

// The folder with the tokenizer.json or tokenizer.model.
std::string hub_folder(const Config& config) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto has = data::has_sample_encoder;
  if (config.data.vocabulary) {
    const fs::path path = *config.data.vocabulary;
    if (has(path.string())) return path.string();
    const bool file = path.filename() == "tokenizer.json" || path.filename() == "tokenizer.model";
    if (file && has(path.parent_path().string())) return path.parent_path().string();
    throw ConfigError("data.vocabulary",
                      fmt::format("expected the folder of a model with a tokenizer.json or a "
                                  "tokenizer.model, got {}",
                                  in_quotes(path.string())));
  }
  if (config.model.weights && has(*config.model.weights)) return *config.model.weights;
  if (config.data.dir && has(*config.data.dir)) return *config.data.dir;
  if (config.data.dir && !fs::exists(*config.data.dir, ignored))
    throw ConfigError("data.dir", fmt::format("expected a file or a folder, got {}, which is not "
                                              "there",
                                              in_quotes(*config.data.dir, 300)));
  const auto looked = [](const char* key, const std::optional<std::string>& path) {
    return fmt::format("{} ({})", key, path ? in_quotes(*path, 300) : "null");
  };
  throw ConfigError(
      "data.vocabulary",
      fmt::format("expected the folder of a model with a tokenizer.json or a tokenizer.model, "
                  "since neither {} nor {} has one",
                  looked("model.weights", config.model.weights),
                  looked("data.dir", config.data.dir)));
}

constexpr const char* kCharacters = "characters.txt";
constexpr const char* kWordPieces = "vocab.txt";
constexpr const char* kBytePairs = "vocab.json";
constexpr const char* kMerges = "merges.txt";

std::string text_of_file(const std::string& path) {
  const std::vector<uint8_t> bytes = data::read_file("tokenizer", path);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

namespace {

// Errors: a text that is not UTF-8, with its place, for a tokenizer that would leave bytes out or
// make others of them. Pairs of bytes keep all, and characters say themselves what they do not
// know.
void check_utf8(const data::Tokenizer& tokenizer, const std::string& text,
                const std::string& path) {
  if (dynamic_cast<const data::ByteBpe*>(&tokenizer) != nullptr ||
      dynamic_cast<const data::Characters*>(&tokenizer) != nullptr)
    return;
  int64_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    data::expect_utf8(
        std::string_view(text).substr(begin, end - begin),
        [&](size_t at) {
          return fmt::format("[text] {}, line {}, column {}", in_quotes(path), number, at + 1);
        },
        data::kMakeUtf8);
    begin = end + 1;
  }
}

// A text of a run's data as they are now. Characters that the run has never seen are left out.
data::TokenIds encode_known(const data::Tokenizer& tokenizer, const std::string& text,
                            const std::string& path) {
  const auto* const characters = dynamic_cast<const data::Characters*>(&tokenizer);
  if (characters == nullptr) return tokenizer.encode(text);
  int64_t unknown = 0;
  data::TokenIds ids = characters->encode_known(text, unknown);
  if (unknown > 0)
    log().warn("[text] {}: not among the run's {}, and left out: {}", in_quotes(path),
               with_noun(characters->size(), "character"), with_noun(unknown, "character"));
  return ids;
}

}  // namespace

namespace {

// Where the tokenizer's files are, by their names in the folder of a run. Empty: nowhere.
std::vector<std::pair<std::string, std::string>> places_of_files(const Config& config, bool hub,
                                                                 bool byte_pairs) {
  std::vector<std::pair<std::string, std::string>> places;
  try {
    const std::string folder = hub ? hub_folder(config) : vocabulary_path(config);
    std::vector<std::string> names = {kBytePairs, kMerges};
    if (hub) names = data::sample_files(folder);
    if (!hub && !byte_pairs) return {{kWordPieces, folder}};
    for (const std::string& name : names) places.emplace_back(name, folder + "/" + name);
  } catch (const ConfigError&) {
    return {};
  }
  return places;
}

}  // namespace

std::string tokenizer_place(const Config& config) {
  const bool hub = config.data.name == kConversations || config.data.tokenizer == "hub" ||
                   (is_glue(config) && is_hub_encoder(config));
  if (config.data.known != nullptr || !hub) return "";
  return " with the tokenizer of " + in_quotes(hub_folder(config));
}

std::vector<std::pair<std::string, std::string>> tokenizer_files(
    const Config& config, const std::function<bool(const std::string& name)>& wanted) {
  const auto tokenizer = tokenizer_of(config);
  if (tokenizer == nullptr) return {};
  if (dynamic_cast<const data::Characters*>(tokenizer.get()) != nullptr) {
    if (!wanted(kCharacters)) return {};
    data::TokenIds all;
    for (int32_t id = 0; id < tokenizer->size(); ++id) all.push_back(id);
    return {{kCharacters, tokenizer->decode(all)}};
  }
  const bool hub = dynamic_cast<const data::HubTokenizer*>(tokenizer.get()) != nullptr,
             byte_pairs = dynamic_cast<const data::ByteBpe*>(tokenizer.get()) != nullptr;
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& [name, path] : places_of_files(config, hub, byte_pairs))
    if (wanted(name) && data::is_file(path)) files.emplace_back(name, text_of_file(path));
  return files;
}

bool has_lost_tokenizer_files(const std::string& folder, const Config& config) {
  const auto own = [&](const std::string& name) { return folder + "/" + name; };
  const bool hub = data::has_sample_encoder(folder),
             byte_pairs = data::is_file(own(kBytePairs)) || data::is_file(own(kMerges));
  if (!hub && !byte_pairs) return false;
  bool lost = false;
  for (const auto& [name, path] : places_of_files(config, hub, byte_pairs)) {
    const bool there = data::is_file(own(name));
    const bool is_tokenizer = name.starts_with("tokenizer.") || !hub;
    if (there && is_tokenizer && text_of_file(own(name)) != text_of_file(path)) return false;
    lost = lost || !there;
  }
  return lost;
}

std::shared_ptr<const data::Tokenizer> read_tokenizer(
    const std::string& folder, std::shared_ptr<const data::SampleEncoder>& samples) {
  const auto path = [&](const char* name) { return folder + "/" + name; };
  if (data::has_sample_encoder(folder)) {
    samples = std::make_shared<const data::SampleEncoder>(data::read_sample_encoder(folder));
    return samples->tokenizer;
  }
  if (data::is_file(path(kCharacters)))
    return std::make_shared<data::Characters>(
        data::Characters::of(text_of_file(path(kCharacters))));
  if (data::is_file(path(kWordPieces)))
    return std::make_shared<data::WordPiece>(data::read_vocabulary(path(kWordPieces)));
  if (data::is_file(path(kBytePairs)))
    return std::make_shared<data::ByteBpe>(path(kBytePairs), path(kMerges));
  return nullptr;
}

std::shared_ptr<const data::WordPiece> Tokenizers::word_pieces(const Config& config) {
  if (config.data.known != nullptr)
    if (auto own = std::dynamic_pointer_cast<const data::WordPiece>(config.data.known->tokenizer))
      return own;
  if (words_ == nullptr)
    words_ =
        std::make_shared<const data::WordPiece>(data::read_vocabulary(vocabulary_path(config)));
  return words_;
}

std::shared_ptr<const data::Tokenizer> Tokenizers::for_encoder(const Config& config) {
  const auto known = config.data.known == nullptr ? nullptr : config.data.known->tokenizer;
  if (known != nullptr && known->encoder_layout() != nullptr) return known;
  if (!is_hub_encoder(config)) return word_pieces(config);
  const auto tokenizer = samples(config)->tokenizer;
  if (tokenizer->encoder_layout() == nullptr)
    throw ConfigError("data.tokenizer",
                      fmt::format("expected a tokenizer.json for an encoder, whose post_processor "
                                  "puts two texts together, in {}",
                                  in_quotes(hub_folder(config))));
  return tokenizer;
}

std::shared_ptr<const data::SampleEncoder> Tokenizers::samples(const Config& config) {
  if (config.data.known != nullptr && config.data.known->samples != nullptr)
    return config.data.known->samples;
  if (samples_ == nullptr)
    samples_ =
        std::make_shared<const data::SampleEncoder>(data::read_sample_encoder(hub_folder(config)));
  return samples_;
}

TextTokens Tokenizers::encode(const Config& config, const std::vector<std::string>& paths,
                              const std::function<std::string(const std::string&)>& read) {
  const std::string& kind = config.data.tokenizer;
  const auto own = config.data.known == nullptr ? nullptr : config.data.known->tokenizer;
  const bool reads = kind != "characters" && kind != "hub" && own == nullptr;
  const std::string by = reads ? vocabulary_path(config) : "";
  std::vector<std::string> texts;
  std::string all;
  for (const std::string& path : paths) {
    texts.push_back(read(path));
    if (kind != "characters") continue;
    try {
      (void)data::Characters::of(texts.back());
    } catch (const Error& e) {
      throw Error(fmt::format("{}: {}", in_quotes(path), e.what()));
    }
    all += texts.back();
  }
  TextTokens made;
  if (own != nullptr)
    made.tokenizer = own;
  else if (kind == "characters")
    made.tokenizer = std::make_shared<data::Characters>(data::Characters::of(all));
  else if (kind == "wordpiece")
    made.tokenizer = for_encoder(config);
  else if (kind == "hub")
    made.tokenizer = samples(config)->tokenizer;
  else if (kind == "byte_bpe")
    made.tokenizer = std::make_shared<data::ByteBpe>(by + "/vocab.json", by + "/merges.txt");
  FRUGAL_ASSERT(made.tokenizer != nullptr);
  for (size_t i = 0; i < texts.size(); ++i) check_utf8(*made.tokenizer, texts[i], paths[i]);
  for (size_t i = 0; i < texts.size(); ++i)
    made.ids.push_back(std::make_shared<data::TokenIds>(own != nullptr
                                                            ? encode_known(*own, texts[i], paths[i])
                                                            : made.tokenizer->encode(texts[i])));
  return made;
}

}  // namespace frugal::apps
