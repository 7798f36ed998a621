// The table of codecs. The tests walk over it, so a codec with a row here is tested. A new codec is
// a new row.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compress/entropy/entropy.h"
#include "compress/quantize/quantize.h"
#include "tests/compress/identity.h"

namespace frugal::compress {

struct CodecRow {
  std::string name;  // "identity", "q4", "q4-nearest", "q4-row", "q4-row-dithered"
  double bits = 0;   // bits per element, without metadata; 0: as many as the dtype has
  bool lossless = false;
  bool unbiased = false;      // the mean of unpacked values over seeds is the packed value
  bool shares_lanes = false;  // groups run along the last axis
  bool dithered = false;      // unbiased because dither is taken away after unpacking
  // The largest |x^ - x| of an element in a group with this minimum and maximum.
  double (*bound)(double min, double max, double bits) = nullptr;
  std::unique_ptr<Codec> (*make)(const CodecRow& row, uint64_t seed) = nullptr;
};

namespace codec_rows {

inline double no_error(double, double, double) { return 0; }

// See compress/quantize/quantize.h: lo lies at most 2^-7 |min| below the minimum, bf16 rounds the
// step up by at most 2^-7, and arithmetic and the result round to f32.
inline double step_bound(double min, double max, double bits) {
  const double range = max - min + std::abs(min) * 0x1p-7;
  const double step = std::max(range / (std::exp2(bits) - 1) * (1 + 0x1p-7), 0x1p-126);
  return step * (1 + 0x1p-7) + std::max(std::abs(min), std::abs(max)) * 0x1p-22;
}
inline double half_step_bound(double min, double max, double bits) {
  const double magnitude = std::max(std::abs(min), std::abs(max));
  return (step_bound(min, max, bits) - magnitude * 0x1p-22) / 2 + magnitude * 0x1p-22;
}

// Half a step where the dither is taken away, and a whole step elsewhere. The dither stays where
// steps are near the ends of f32's range, and in groups without negative values that begin near
// zero (takes_dither_away).
inline double dithered_bound(double min, double max, double bits) {
  const double step = step_bound(min, max, bits);
  const bool taken = step > 0x1p-120 && step < 0x1p120 && (min < 0 || min > step);
  return taken ? half_step_bound(min, max, bits) : step;
}

inline std::unique_ptr<Codec> make_identity(const CodecRow&, uint64_t) {
  return std::make_unique<Identity>();
}
inline std::unique_ptr<Codec> make_quantizer(const CodecRow& row, uint64_t seed) {
  QuantizeOptions options;
  options.bits = static_cast<int>(row.bits);
  options.axis = row.shares_lanes ? GroupAxis::row : GroupAxis::column;
  options.rounding = row.dithered   ? Rounding::dithered
                     : row.unbiased ? Rounding::stochastic
                                    : Rounding::nearest;
  options.seed = seed;
  return std::make_unique<Quantizer>(options);
}

// Codes even where that saves nothing, so that the tests that walk the table test the coder.
inline std::unique_ptr<Codec> make_entropy(const CodecRow& row, uint64_t seed) {
  return std::make_unique<Entropy>(make_quantizer(row, seed),
                                   EntropyOptions{-std::numeric_limits<double>::infinity(), 0});
}

// A way of rounding, with what the rows of its codecs say.
struct Way {
  const char* suffix;
  bool unbiased, dithered;
  double (*bound)(double, double, double);
};
inline constexpr Way kWays[] = {{"", true, false, step_bound},
                                {"-nearest", false, false, half_step_bound},
                                {"-dithered", true, true, dithered_bound}};

inline std::vector<CodecRow> build() {
  std::vector<CodecRow> rows;
  rows.push_back({"identity", 0, true, true, false, false, no_error, make_identity});
  for (int bits = 1; bits <= 16; ++bits)
    for (bool shares_lanes : {false, true})
      for (const Way& way : kWays)
        rows.push_back({fmt::format("q{}{}{}", bits, shares_lanes ? "-row" : "", way.suffix),
                        static_cast<double>(bits), false, way.unbiased, shares_lanes, way.dithered,
                        way.bound, make_quantizer});
  for (int bits : {2, 4, 8})
    for (const Way& way : kWays)
      if (way.unbiased)
        rows.push_back({fmt::format("q{}{}-entropy", bits, way.suffix), static_cast<double>(bits),
                        false, true, false, way.dithered, way.bound, make_entropy});
  return rows;
}

}  // namespace codec_rows

inline const std::vector<CodecRow>& codec_table() {
  static const std::vector<CodecRow> table = codec_rows::build();
  return table;
}

inline const CodecRow& find_codec(std::string_view name) {  // Errors: an unknown name
  for (const CodecRow& row : codec_table())
    if (row.name == name) return row;
  throw Error(fmt::format("[codec] expected the name of a row of the table, got {}", name));
}

}  // namespace frugal::compress
