// Tokenizers, and texts as tokens.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/config.h"
#include "data/text/chat/text_samples.h"
#include "data/text/wordpiece.h"

namespace frugal::apps {

struct TextTokens {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  std::vector<std::shared_ptr<const data::TokenIds>> ids;  // one list for each file
};

// The tokenizers of an open data set (open_data.h).
class Tokenizers {
 public:
  // What makes rows for encoders (encoder_layout()), read once: the tokenizer of a model's
  // folder, or word pieces of the vocabulary data.vocabulary. data.tokenizer says which;
  // characters, which no encoder reads: the tokenizer that data.vocabulary or model.weights
  // names, if one does. Errors: ConfigError where there is none, or where it makes no such rows;
  // those of the file.
  std::shared_ptr<const data::Tokenizer> for_encoder(const Config& config);
  // The tokenizer of a model's folder with what stands beside it, which is read once: that of
  // data.vocabulary, of model.weights, or of data.dir. Errors: as above.
  std::shared_ptr<const data::SampleEncoder> samples(const Config& config);
  // The files at `paths` by data.tokenizer; read(path) is the text of one. Characters are those of
  // all files. Errors: those of read and of the vocabulary.
  TextTokens encode(const Config& config, const std::vector<std::string>& paths,
                    const std::function<std::string(const std::string&)>& read);

 private:
  std::shared_ptr<const data::WordPiece> word_pieces(const Config& config);

  std::shared_ptr<const data::WordPiece> words_;
  std::shared_ptr<const data::SampleEncoder> samples_;
};

// The tokenizer's files for a run folder, as names and contents, if they are `wanted`; none where
// there is no tokenizer. Where the files are gone from which a run took its tokenizer: none.
std::vector<std::pair<std::string, std::string>> tokenizer_files(
    const Config& config, const std::function<bool(const std::string& name)>& wanted);
// Whose tokenizer it is, if that of a model's folder, for messages: ` with the tokenizer of
// "FOLDER"`.
std::string tokenizer_place(const Config& config);
// Whether the folder of a run lacks some of these files, and has the others, where the
// configuration names the same tokenizer with all of its files.
bool has_lost_tokenizer_files(const std::string& folder, const Config& config);
// The tokenizer of these files in `folder`; null: there are none. With that of a folder, `samples`
// is what stands beside it. Errors: those of the files.
std::shared_ptr<const data::Tokenizer> read_tokenizer(
    const std::string& folder, std::shared_ptr<const data::SampleEncoder>& samples);

}  // namespace frugal::apps
