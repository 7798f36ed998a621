// Tokenizers and token streams, read once however often they are asked for.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/config.h"
#include "data/text/wordpiece.h"

namespace frugal::apps {

// The vocabulary of data.vocabulary. Errors: ConfigError where there is none; those of the file.
std::shared_ptr<const data::WordPiece> word_pieces(const Config& config);

struct TextTokens {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  std::vector<std::shared_ptr<const data::TokenIds>> ids;  // one list for each file
};
// The tokenizer of the configured text; null where the data are no text. Errors: as below.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const Config& config);

// The tokenizer's files for a run folder, as names and contents; none where there is no tokenizer.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const Config& config);
// The tokenizer of these files in `folder`; null: there are none. Errors: those of the files.
std::shared_ptr<const data::Tokenizer> read_tokenizer(const std::string& folder);

// The files at `paths` by data.tokenizer; read(path) is the text of one. Characters are those of
// all files. Errors: those of read and of the vocabulary.
TextTokens text_tokens(const Config& config, const std::vector<std::string>& paths,
                       const std::function<std::string(const std::string&)>& read);

}  // namespace frugal::apps
