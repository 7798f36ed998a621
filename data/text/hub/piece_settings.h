// PieceSettings: what stands beside the tokenizer.model of a folder. Internal to data/text.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "data/text/hub/piece_file.h"

namespace frugal::data {

struct PieceSettings {
  std::string name;      // the file that names the added tokens, for messages
  nlohmann::json added;  // {"added_tokens_decoder": [...]}, as tokenizer.json writes such tokens
  bool add_begin = false, add_end = false;  // around a text
  int32_t begin = -1, end = -1;             // their ids; -1: there is none
  bool prefix_once = false;  // the space that stands before a text does not follow added tokens
  bool prefix = true;        // false: it never does
};

// What the file alone says: no added tokens, nothing around a text.
PieceSettings settings_of_file(const PieceFile& file);
// Reads tokenizer_config.json, added_tokens.json and special_tokens_map.json, as far as they are
// there, as the library transformers does for LlamaTokenizer and GemmaTokenizer.
// Errors (with the file and the entry): no JSON; members of another type; a special token that has
// no id; a tokenizer_class that gives other ids than the pieces have.
PieceSettings read_piece_settings(const std::string& folder, const PieceFile& file);

}  // namespace frugal::data
