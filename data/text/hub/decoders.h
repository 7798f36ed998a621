// Decoders: how tokens become a text again. Internal to data/text.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/text/hub/piece_file.h"
#include "data/text/hub/tokenizer_entry.h"

namespace frugal::data {

// Thread safety: const.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// Types: BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Strip, WordPiece and
// Sequence. Errors: another type; members that are missing or have another type.
std::vector<std::unique_ptr<Decoder>> read_decoders(const TokenizerEntry& entry);

// How SentencePiece decodes. What stands for no text is a text here: who decodes leaves it out.
std::unique_ptr<Decoder> make_piece_decoder(const PieceFile& file);

}  // namespace frugal::data
