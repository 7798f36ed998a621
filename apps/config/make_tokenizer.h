// Tokenizers and token streams, read once however often they are asked for.
#pragma once
#include <memory>
#include <string>

#include "apps/config/config.h"
#include "data/text/wordpiece.h"

namespace frugal::apps {

// The vocabulary of data.vocabulary. Errors: ConfigError where there is none; those of the file.
std::shared_ptr<const data::WordPiece> word_pieces(const Config& config);

struct TextTokens {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  std::shared_ptr<const data::TokenIds> ids;
};
// Of the configured text; null where the data are none. Errors: as below.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const Config& config);

// The file at `path` by data.tokenizer. Errors: those of the file and of the vocabulary.
TextTokens text_tokens(const Config& config, const std::string& path);

}  // namespace frugal::apps
