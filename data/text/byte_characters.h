// GPT-2's way to write bytes as characters, which vocabularies of byte-level tokenizers use:
// printable characters of Latin-1 stand for themselves, and the other bytes are U+0100 and the
// following code points, in order.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace frugal::data {

// The bytes that `characters` stand for; nothing: one of them stands for no byte.
std::optional<std::string> bytes_of_characters(std::string_view characters);
// Appends the character of each byte.
void append_byte_characters(std::string& text, std::string_view bytes);

}  // namespace frugal::data
