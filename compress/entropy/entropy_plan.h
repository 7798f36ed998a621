// The format of entropy-coded payloads and how each tensor's is chosen. Internal.
//
// Payload: the metadata of each part, the end of each block's stream (int64), a table for each
// plane of each width, the streams, and kReadBeyond bytes. A stream is the bytes of raw planes,
// then those of the coder; or, if that is no less, the codes as they are.
#pragma once
#include <cstdint>
#include <vector>

#include "compress/entropy/rans.h"
#include "compress/quantize/code_map.h"

namespace frugal::compress::entropy {

enum class Kind : uint8_t { raw, constant, coded };

// What is done with a plane.
struct Plan {
  Kind kind = Kind::raw;
  uint8_t byte = 0;  // constant
  rans::Frequencies frequencies{};
  double bits = 0;  // predicted
  int64_t table_bytes() const;
};
Plan plan_of(const rans::Histogram& histogram);
// Both return where the next table begins. One of Kind::coded: the kind, a bit for each byte that
// there is, and their frequencies.
uint8_t* write_table(const Plan& plan, uint8_t* to);
const uint8_t* read_table(const uint8_t* from, Plan& plan);
// Where the streams begin in a payload.
int64_t streams_at(const CodeMap& map, const std::vector<Plan>& plans);

// Evenly spread pieces of the codes, by which is guessed what coding would save.
struct Sample {
  struct Piece {
    int64_t table = 0;
    int64_t offset = 0, size = 0;  // in the payload
  };
  std::vector<Piece> pieces;
  std::vector<double> bytes;  // that those of each table stand for
};
Sample sample_of(const CodeMap& map);
// The share of the codes that coding would save. seen: of the pieces, by table.
double saving(const Sample& sample, const std::vector<rans::Histogram>& seen);

}  // namespace frugal::compress::entropy
