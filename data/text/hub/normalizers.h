// Normalizers: the changes that a tokenizer makes to a text before it cuts it. Internal to
// data/text.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/text/hub/piece_file.h"
#include "data/text/hub/tokenizer_entry.h"

namespace frugal::data {

// Thread safety: const.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;     // text is UTF-8 and stays so
  virtual bool writes_bytes() const { return false; }  // as characters (byte_characters.h)
};

// The normalizers of an entry, in order; those of a Sequence one by one. Types: NFC, NFD, NFKC,
// NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, BertNormalizer, Nmt, Precompiled,
// ByteLevel. Errors: another type; members that are missing or have another type.
std::vector<std::unique_ptr<Normalizer>> read_normalizers(const TokenizerEntry& entry);

// What SentencePiece makes of a text before it cuts it. prefix: with the space that stands before a
// text, if the file wants one. Errors: rules that cannot be read.
std::unique_ptr<Normalizer> make_piece_normalizer(const PieceFile& file, bool prefix);

// Replaces parts of a text by the rules of SentencePiece's compiled files (`Precompiled`).
// Thread safety: const.
class CharacterRules {
 public:
  // `bytes`: the size of the trie as u32, the trie (a double array of u32), and the replacements,
  // each with a NUL behind it. Errors: sizes that do not fit.
  explicit CharacterRules(const std::string& bytes);
  // What replaces the shortest beginning of `text` that a rule names; null: no rule does.
  const char* find(std::string_view text) const;
  // What replaces the longest one, whose bytes are `length`.
  const char* find_longest(std::string_view text, size_t& length) const;

 private:
  template <class Found>
  void for_beginnings(std::string_view text, const Found& found) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace frugal::data
