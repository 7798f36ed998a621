// The format of entropy-coded payloads, and how it is chosen for a tensor. Internal.
//
// Payload: the metadata of each part, the end of each block's stream (int64), a table for each
// plane of each width, and the streams. A stream has the bytes of raw planes first and then those
// of the coder. If that is not shorter than the codes, the stream is the codes themselves.
#pragma once
#include <cstdint>
#include <vector>

#include "compress/entropy/rans.h"
#include "compress/quantize/code_map.h"

namespace frugal::compress::entropy {

// A plane is coded if that makes it smaller by at least this share. Otherwise decoding would not be
// worth its time.
inline constexpr double kPlaneSaving = 0.01;

enum class Kind : uint8_t { raw, constant, coded };

// How a plane is stored.
struct Plan {
  Kind kind = Kind::raw;
  uint8_t byte = 0;  // Kind::constant: the repeated byte
  rans::Frequencies frequencies{};
  double bits = 0;  // predicted bits for each byte
  int64_t table_bytes() const;
};
Plan plan_of(const rans::Histogram& histogram);
// Both functions return where the next table begins. The table of a coded plane is its kind, one
// bit for each possible byte that occurs, and the frequencies of these bytes.
uint8_t* write_table(const Plan& plan, uint8_t* to);
const uint8_t* read_table(const uint8_t* from, Plan& plan);
// Where the streams begin in a payload.
int64_t streams_at(const CodeMap& map, const std::vector<Plan>& plans);

// Plans for all tables. Nothing if coding would save a smaller share than min_saving of the payload
// of `bytes` bytes. histograms: of all codes, for each table.
std::vector<Plan> plans_of(const CodeMap& map, const std::vector<rans::Histogram>& histograms,
                           int64_t bytes, double min_saving);

// Evenly spread pieces of the codes, from which the saving is estimated.
struct Sample {
  struct Piece {
    int64_t table = 0;
    int64_t offset = 0, size = 0;  // a piece, in the payload
  };
  std::vector<Piece> pieces;
  std::vector<double> bytes;  // for each table, the number of bytes that the pieces stand for
};
Sample sample_of(const CodeMap& map);
// The share of the codes that coding would save. seen: counts of the pieces, for each table.
double saving(const Sample& sample, const std::vector<rans::Histogram>& seen);

}  // namespace frugal::compress::entropy
