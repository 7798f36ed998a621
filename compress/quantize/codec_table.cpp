#include "compress/quantize/codec_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/entropy/entropy.h"
#include "compress/quantize/identity.h"
#include "compress/quantize/quantize.h"

namespace frugal::compress {

namespace {

double no_error(double, double, double) { return 0; }

// See compress/quantize/quantize.h: lo lies at most 2^-7 |min| below the minimum, bf16 rounds the
// step up by at most 2^-7, and arithmetic and the result round to f32.
double step_bound(double min, double max, double bits) {
  const double range = max - min + std::abs(min) * 0x1p-7;
  const double step = std::max(range / (std::exp2(bits) - 1) * (1 + 0x1p-7), 0x1p-126);
  return step * (1 + 0x1p-7) + std::max(std::abs(min), std::abs(max)) * 0x1p-22;
}
double half_step_bound(double min, double max, double bits) {
  const double magnitude = std::max(std::abs(min), std::abs(max));
  return (step_bound(min, max, bits) - magnitude * 0x1p-22) / 2 + magnitude * 0x1p-22;
}

// Half a step where the dither is taken away, and a whole step elsewhere. The dither stays where
// steps are near the ends of f32's range, and in groups without negative values that begin near
// zero (takes_dither_away).
double dithered_bound(double min, double max, double bits) {
  const double step = step_bound(min, max, bits);
  const bool taken = step > 0x1p-120 && step < 0x1p120 && (min < 0 || min > step);
  return taken ? half_step_bound(min, max, bits) : step;
}

std::unique_ptr<Codec> make_identity(const CodecRow&, uint64_t) {
  return std::make_unique<Identity>();
}
std::unique_ptr<Codec> make_quantizer(const CodecRow& row, uint64_t seed) {
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
std::unique_ptr<Codec> make_entropy(const CodecRow& row, uint64_t seed) {
  return std::make_unique<Entropy>(make_quantizer(row, seed),
                                   EntropyOptions{-std::numeric_limits<double>::infinity(), 0});
}

// A way of rounding, with what the rows of its codecs say.
struct Way {
  const char* suffix;
  bool unbiased, dithered;
  double (*bound)(double, double, double);
};
constexpr Way kWays[] = {{"", true, false, step_bound},
                         {"-nearest", false, false, half_step_bound},
                         {"-dithered", true, true, dithered_bound}};

std::vector<CodecRow> build() {
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

}  // namespace

const std::vector<CodecRow>& codec_table() {
  static const std::vector<CodecRow> table = build();
  return table;
}

const CodecRow& find_codec(std::string_view name) {
  for (const CodecRow& row : codec_table())
    if (row.name == name) return row;
  throw Error(fmt::format(
      "[codec] expected identity or q1 to q16 with an optional -row and -nearest or -dithered, got "
      "\"{}\"",
      name));
}

}  // namespace frugal::compress
