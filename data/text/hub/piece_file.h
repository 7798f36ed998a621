// PieceFile: what a tokenizer.model of SentencePiece holds. Internal to data/text.
// Ref: sentencepiece_model.proto; Protocol Buffers, "Encoding".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace frugal::data {

// The values are the file's.
enum class PieceType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,       // stands for no text, as </s>
  user_defined = 4,  // is always one token, wherever it stands
  unused = 5,        // is never chosen
  byte = 6           // stands for a byte of a character that is unknown
};

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::normal;
};

struct PieceFile {
  std::string name;           // for messages
  std::vector<Piece> pieces;  // by id
  bool bpe = false;           // false: Unigram
  bool byte_fallback = false;
  int32_t unknown = 0, begin = -1, end = -1;       // ids; -1: there is none
  std::string unknown_surface = " \xE2\x81\x87 ";  // what an unknown token decodes to
  // How a text is changed before it is cut.
  std::string rules;          // for CharacterRules (normalizers.h); empty: characters stay
  bool dummy_prefix = true;   // a space stands before a text, or behind it with space_behind
  bool space_behind = false;  // a word's space is behind it
  bool remove_spaces = true;  // at both ends, and all but one between words
  bool escape_spaces = true;  // U+2581 stands for a space
};

// `bytes`: the file, which messages call `name`. Takes memory in proportion to it. Errors (with the
// file and the entry): a message that is cut off or nested wrongly; pieces that are empty, no
// UTF-8, longer than kLongestToken (byte_trie.h), or there twice; scores that are no numbers; not
// one unknown piece; bytes without pieces; a model that is neither Unigram nor BPE.
// Two things are errors because nothing here follows them: unused pieces in a BPE model, and rules
// for decoding.
PieceFile read_piece_file(std::string_view bytes, const std::string& name);

}  // namespace frugal::data
