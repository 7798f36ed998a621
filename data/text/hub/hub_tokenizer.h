// HubTokenizer: the tokenizer that a tokenizer.json or a tokenizer.model describes, as folders of
// published models have it. Ids are those of the reference libraries, which are SentencePiece and
// Hugging Face's tokenizers.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer.h"

namespace frugal::data {

// Texts are UTF-8; U+FFFD stands for what is not. Thread safety: const.
class HubTokenizer : public Tokenizer {
 public:
  // Reads a tokenizer.json. Entries "truncation" and "padding" are not looked at: who makes batches
  // decides. Errors (with the file and the entry): no JSON; a component of a type that is not
  // known; members that are missing or have another type; ids that occur twice or leave large gaps;
  // merges that occur twice or name no tokens; a regular expression that cannot be read. A name
  // that ends with ".model": SentencePiece's file alone, as read_piece_file() reads it
  // (piece_file.h); its pieces for <s> and </s> are not found in texts. Texts of more than 64 KiB
  // are cut in parts of that size where no piece can lie, because SentencePiece's sums in f32 lose
  // their digits.
  explicit HubTokenizer(const std::string& path);
  // The tokenizer.json of a folder, or its tokenizer.model with what tokenizer_config.json,
  // added_tokens.json and special_tokens_map.json say beside it (piece_settings.h).
  static std::unique_ptr<const HubTokenizer> of_folder(const std::string& folder);
  // Reads the text of such a file; messages call it `name`.
  HubTokenizer(std::string_view json, const std::string& name);
  ~HubTokenizer() override;

  int64_t size() const override;  // one more than the highest id; ids may have gaps
  // Added tokens within the text become their ids. Adds none of the tokens that a model expects
  // around a text. Errors: an expression of the file that takes too many steps for the text; a
  // character that a vocabulary without an unknown token does not have; 2^31 bytes and more.
  TokenIds encode(std::string_view text) const override;
  TokenIds encode_counting(std::string_view text, const std::vector<size_t>& places,
                           std::vector<int64_t>& counts) const override;
  // With special tokens. Ids of gaps give nothing.
  std::string decode(const TokenIds& ids) const override;
  std::string describe() const override;
  std::optional<int32_t> find(const std::string& token) const override;

  // Without the added tokens that are special.
  std::string decode_plain(const TokenIds& ids) const;
  bool is_special(int64_t id) const;
  TokenIds before_text() const override;  // the file's post-processor names them
  TokenIds after_text() const override;
  // As the post-processor puts two texts together. It is null if there is none, or if it has no
  // place for a second text. Padding is the token [PAD] or <pad>; without one, the id 0.
  const EncoderLayout* encoder_layout() const override;

 private:
  struct Parts;
  explicit HubTokenizer(std::unique_ptr<const Parts> parts);
  std::string decode(const TokenIds& ids, bool special) const;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace frugal::data
