#include "apps/make_tokenizer.h"

#include <cstdlib>
#include <filesystem>
#include <map>

#include "data/byte_bpe.h"
#include "data/characters.h"
#include "data/file_bytes.h"

namespace frugal::apps {
namespace {

std::string vocabulary_path(const Config& config) {
  if (config.data.vocabulary) return *config.data.vocabulary;
  if (const char* folder = std::getenv("FRUGAL_DATA"); folder != nullptr && *folder != '\0') {
    const auto usual = std::filesystem::path(folder) / "text" / "bert-base-uncased-vocab.txt";
    if (std::filesystem::exists(usual)) return usual.string();
  }
  throw ConfigError("data.vocabulary",
                    "expected the file of the vocabulary, here or as "
                    "text/bert-base-uncased-vocab.txt in $FRUGAL_DATA");
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
