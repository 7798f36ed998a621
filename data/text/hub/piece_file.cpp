#include "data/text/hub/piece_file.h"

#include <bit>
#include <cmath>
#include <unordered_map>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/hub/byte_trie.h"
#include "data/text/hub/token_model.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

// The fields of one message, in order.
class WireFields {
 public:
  // `place` is the entry of the file that messages name.
  WireFields(std::string_view bytes, const std::string& file, std::string place)
      : bytes_(bytes), file_(file), place_(std::move(place)) {}

  // Moves to the next field; false: there is none.
  bool next() {
    if (bytes_.empty()) return false;
    const uint64_t tag = varint();
    number_ = tag >> 3;
    type_ = static_cast<int>(tag & 7);
    if (number_ == 0 || number_ > kMostNumber) fail("expected the number of a field");
    switch (type_) {
      case kVarint:
        value_ = varint();
        break;
      case kWord:
      case kLong: {
        content_ = take(type_ == kWord ? 4 : 8);
        value_ = 0;
        for (size_t i = content_.size(); i > 0; --i)
          value_ = value_ << 8 | static_cast<uint8_t>(content_[i - 1]);
        break;
      }
      case kBytes: {
        const uint64_t length = varint();
        content_ = take(length);
        break;
      }
      default:  // groups, which no such file has
        fail(fmt::format("expected a field of type 0, 1, 2 or 5, got {}", type_));
    }
    return true;
  }
  uint64_t number() const { return number_; }

  int64_t integer(const char* name) const {
    want(kVarint, name);
    return static_cast<int64_t>(value_);
  }
  bool flag(const char* name) const { return integer(name) != 0; }
  float single(const char* name) const {
    want(kWord, name);
    return std::bit_cast<float>(static_cast<uint32_t>(value_));
  }
  std::string_view bytes(const char* name) const {
    want(kBytes, name);
    return content_;
  }
  WireFields message(const char* name) const { return {bytes(name), file_, within(name)}; }
  WireFields message(const char* name, size_t index) const {
    return {bytes(name), file_, within(fmt::format("{}[{}]", name, index))};
  }
  const std::string& place() const { return place_; }

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(fmt::format("[tokenizer] {}: {}{}{}", in_quotes(file_, 300), place_,
                            place_.empty() ? "" : ": ", message));
  }

 private:
  static constexpr int kVarint = 0, kLong = 1, kBytes = 2, kWord = 5;
  static constexpr uint64_t kMostNumber = (uint64_t{1} << 29) - 1;

  std::string within(const std::string& name) const {
    return place_.empty() ? name : place_ + "." + name;
  }
  void want(int type, const char* name) const {
    if (type_ != type)
      fail(fmt::format("expected {} as a field of type {}, got {}", name, type, type_));
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) fail("expected a whole number, got the end of the message");
      const auto byte = static_cast<uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    fail("expected a whole number of at most 10 bytes");
  }
  std::string_view take(uint64_t count) {
    if (count > bytes_.size())
      fail(fmt::format("expected {} bytes in field {}, got {}: is the file cut off?", count,
                       number_, bytes_.size()));
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;  // what follows
  const std::string& file_;
  std::string place_;
  uint64_t number_ = 0, value_ = 0;
  int type_ = 0;
  std::string_view content_;
};

Piece read_piece(WireFields fields) {
  Piece piece;
  while (fields.next()) {
    if (fields.number() == 1) {
      piece.text = fields.bytes("piece");
    } else if (fields.number() == 2) {
      piece.score = fields.single("score");
    } else if (fields.number() == 3) {
      const int64_t type = fields.integer("type");
      if (type < 1 || type > 6)
        fields.fail(fmt::format("expected a type from 1 to 6, got {}", type));
      piece.type = static_cast<PieceType>(type);
    }
  }
  if (piece.text.empty() || piece.text.size() > kLongestToken)
    fields.fail(
        fmt::format("expected a piece of 1 to {} bytes, got {}", kLongestToken, piece.text.size()));
  if (valid_utf8(piece.text) != piece.text || piece.text.find('\0') != std::string::npos)
    fields.fail(
        fmt::format("expected a piece of UTF-8 without NUL, got {}", in_quotes(piece.text)));
  if (!std::isfinite(piece.score))
    fields.fail(fmt::format("expected a number as score, got {}", piece.score));
  return piece;
}

// The texts of pieces that have a meaning.
struct PieceNames {
  std::string begin = "<s>", end = "</s>";
};

void read_trainer(WireFields fields, PieceFile& file, PieceNames& names) {
  const auto own_name = [&](const char* key, std::string& name) {
    if (const std::string_view text = fields.bytes(key); !text.empty()) name = text;
  };
  while (fields.next()) {
    switch (fields.number()) {
      case 3: {
        const int64_t type = fields.integer("model_type");
        if (type != 1 && type != 2)
          fields.fail(fmt::format("expected the model_type 1 or 2, Unigram or BPE, got {}", type));
        file.bpe = type == 2;
        break;
      }
      case 24:
        file.space_behind = fields.flag("treat_whitespace_as_suffix");
        break;
      case 35:
        file.byte_fallback = fields.flag("byte_fallback");
        break;
      case 44:
        file.unknown_surface = valid_utf8(fields.bytes("unk_surface"));
        break;
      case 46:
        own_name("bos_piece", names.begin);
        break;
      case 47:
        own_name("eos_piece", names.end);
        break;
      default:
        break;
    }
  }
}

void read_normalizer(WireFields fields, PieceFile& file) {
  while (fields.next()) {
    if (fields.number() == 2) file.rules = fields.bytes("precompiled_charsmap");
    if (fields.number() == 3) file.dummy_prefix = fields.flag("add_dummy_prefix");
    if (fields.number() == 4) file.remove_spaces = fields.flag("remove_extra_whitespaces");
    if (fields.number() == 5) file.escape_spaces = fields.flag("escape_whitespaces");
  }
}

// Finds the pieces that have a meaning.
void check_pieces(PieceFile& file, const PieceNames& names) {
  const auto fail = [&](const std::string& message) {
    throw Error(fmt::format("[tokenizer] {}: pieces: {}", in_quotes(file.name, 300), message));
  };
  std::unordered_map<std::string_view, size_t> ids;
  ids.reserve(file.pieces.size());
  file.unknown = -1;
  size_t bytes = 0;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const Piece& piece = file.pieces[id];
    const auto own = static_cast<int32_t>(id);
    if (const auto [before, fresh] = ids.emplace(piece.text, id); !fresh)
      fail(fmt::format("expected each piece once, got {} as {} and {}", in_quotes(piece.text),
                       before->second, id));
    if (piece.type == PieceType::unknown) {
      if (file.unknown >= 0)
        fail(fmt::format("expected one unknown piece, got {} and {}", file.unknown, id));
      file.unknown = own;
    }
    if (piece.type == PieceType::control && piece.text == names.begin) file.begin = own;
    if (piece.type == PieceType::control && piece.text == names.end) file.end = own;
    if (piece.type == PieceType::byte) ++bytes;
    if (piece.type == PieceType::unused && file.bpe)
      fail(fmt::format("expected no unused piece in a BPE model, got {}", in_quotes(piece.text)));
  }
  if (file.unknown < 0) fail("expected an unknown piece, got none");
  if (!file.byte_fallback && bytes > 0)
    fail(fmt::format("expected no pieces of bytes without byte_fallback, got {}", bytes));
  for (int byte = 0; file.byte_fallback && byte < 256; ++byte) {
    const auto at = ids.find(fmt::format("<0x{:02X}>", byte));
    if (at == ids.end() || file.pieces[at->second].type != PieceType::byte || bytes != 256)
      fail(fmt::format("expected 256 pieces of bytes, of which one is \"<0x{:02X}>\"", byte));
  }
}

}  // namespace

PieceFile read_piece_file(std::string_view bytes, const std::string& name) {
  PieceFile file;
  file.name = name;
  PieceNames names;
  WireFields fields(bytes, name, "");
  while (fields.next()) {
    if (fields.number() == 1) {
      if (file.pieces.size() >= static_cast<size_t>(kMostTokens))
        fields.fail(fmt::format("expected at most {} pieces", kMostTokens));
      file.pieces.push_back(read_piece(fields.message("pieces", file.pieces.size())));
    } else if (fields.number() == 2) {
      read_trainer(fields.message("trainer_spec"), file, names);
    } else if (fields.number() == 3) {
      read_normalizer(fields.message("normalizer_spec"), file);
    } else if (fields.number() == 5) {
      PieceFile decoding;
      const WireFields own = fields.message("denormalizer_spec");
      read_normalizer(own, decoding);
      if (!decoding.rules.empty())
        own.fail(
            fmt::format("expected no rules for decoding, got {} bytes", decoding.rules.size()));
    }
  }
  check_pieces(file, names);
  return file;
}

}  // namespace frugal::data
