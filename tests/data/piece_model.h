// The wire format of Protocol Buffers, and files of SentencePiece in it.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

namespace frugal_test {

inline std::string wire_varint(uint64_t value) {
  std::string out;
  for (; value > 0x7F; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
inline std::string wire_number(uint64_t field, uint64_t value) {
  return wire_varint(field << 3) + wire_varint(value);
}
inline std::string wire_content(uint64_t field, const std::string& bytes) {
  return wire_varint(field << 3 | 2) + wire_varint(bytes.size()) + bytes;
}
inline std::string wire_single(uint64_t field, float value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return wire_varint(field << 3 | 5) + bytes;
}

// Types: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
inline std::string wire_piece(const std::string& text, float score, uint64_t type) {
  return wire_content(1, wire_content(1, text) + wire_single(2, score) + wire_number(3, type));
}
constexpr uint64_t kUnigram = 1, kBpe = 2;
inline std::string wire_trainer(uint64_t type, const std::string& more = "") {
  return wire_content(2, wire_number(3, type) + more);
}

// A BPE model whose texts begin with a space; its pieces for <s> and </s> are 1 and 2.
inline std::string small_piece_model(const std::string& more = "") {
  return wire_piece("<unk>", 0, 2) + wire_piece("<s>", 0, 3) + wire_piece("</s>", 0, 3) +
         wire_piece("\xE2\x96\x81", -9, 1) + wire_piece("a", -9, 1) + wire_piece("b", -9, 1) +
         wire_piece("ab", -1, 1) + wire_piece("<own>", 0, 4) + wire_trainer(kBpe) +
         wire_content(3, wire_number(4, 0)) + more;
}

}  // namespace frugal_test
