#include "apps/config/make_tokenizer.h"

#include <filesystem>
#include <map>

#include "apps/config/make_data.h"
#include "data/fetch/sources.h"
#include "data/formats/file_bytes.h"
#include "data/text/byte_bpe.h"
#include "data/text/characters.h"

namespace frugal::apps {
namespace {

std::string vocabulary_path(const Config& config) {
  if (config.data.vocabulary) return *config.data.vocabulary;
  // Where `frugal data fetch` puts it: a file, or of byte_bpe a folder of two.
  const bool bytes = config.data.tokenizer == "byte_bpe" && data_traits(config.data.name).is_text;
  const std::string usual = bytes ? "text/gpt2" : "text/bert-base-uncased-vocab.txt";
  for (const std::string& folder : data::data_folders()) {
    std::error_code ignored;
    const auto path = std::filesystem::path(folder) / usual;
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  throw ConfigError("data.vocabulary",
                    fmt::format("found no {} in {}; `frugal data fetch {}` downloads it, or "
                                "data.vocabulary names the {}",
                                usual, searched_folders(), bytes ? "gpt2_bpe" : "bert_vocab",
                                bytes ? "folder" : "file"));
}

// What was made for a key, for as long as the program runs.
template <class Value, class Make>
const Value& once(const std::string& key, const Make& make) {
  static std::map<std::string, Value> made;
  const auto found = made.find(key);
  return found != made.end() ? found->second : made.emplace(key, make()).first->second;
}

}  // namespace

std::shared_ptr<const data::WordPiece> word_pieces(const Config& config) {
  const std::string path = vocabulary_path(config);
  return once<std::shared_ptr<const data::WordPiece>>(
      path, [&] { return std::make_shared<data::WordPiece>(data::read_vocabulary(path)); });
}

TextTokens text_tokens(const Config& config, const std::string& path) {
  const std::string& kind = config.data.tokenizer;
  const std::string by = kind == "characters" ? "" : vocabulary_path(config);
  return once<TextTokens>(kind + "\n" + by + "\n" + path, [&] {
    const std::vector<uint8_t> bytes = data::read_file("text", path);
    const std::string text(bytes.begin(), bytes.end());
    TextTokens made;
    if (kind == "characters")
      made.tokenizer = std::make_shared<data::Characters>(data::Characters::of(text));
    else if (kind == "wordpiece")
      made.tokenizer = word_pieces(config);
    else
      made.tokenizer = std::make_shared<data::ByteBpe>(by + "/vocab.json", by + "/merges.txt");
    made.ids = std::make_shared<data::TokenIds>(made.tokenizer->encode(text));
    return made;
  });
}

}  // namespace frugal::apps
