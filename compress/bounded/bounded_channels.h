// From ranges and bounds to codes: what each channel of a tensor holds, how its values are coded,
// and the order that puts columns of equal width together. Internal to error-bounded codecs.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "compress/bounded/error_bounded.h"
#include "compress/quantize/quantize_reference.h"

namespace frugal::compress::bounded {

// A tensor seen as rows of `cols` elements. If its own rows are short, `repeat` of them lie side by
// side in one row. Column j is channel j % channels. A block is 8 rows; the last block may be
// short.
struct View {
  int64_t numel = 0, channels = 1, repeat = 1;
  int64_t cols() const { return channels * repeat; }
  int64_t block() const { return 8 * cols(); }
  int64_t blocks() const { return (numel + block() - 1) / block(); }
};
View make_view(const Shape& shape);

struct Range {
  float min = 0, max = 0;  // the smallest and the largest finite value
  bool finite = true;      // whether all values are finite
  int64_t values = 0, zeros = 0;
  // Only if `zeros` was asked for and some values are not 0.
  float nonzero_min = 0, nonzero_max = 0;
};
// One range for each channel.
std::vector<Range> ranges_of(const float* x, const View& view, bool zeros);

// x becomes the integer trunc((x - lo) / step + u), at most 2^width - 1, with u in [0, 1). It
// returns as lo + code * step. Width 0: always lo. kRaw: the bits of x.
inline constexpr int kRaw = 32;
struct Code {
  float lo = 0, step = 0;
  int width = 0;
};

// The narrowest code with |x^ - x| <= bound for x in [min, max], in f32 arithmetic:
//   nearest:    step <= 2 bound;   stochastic: step <= bound
// Its step is the smallest for that width. If it would be wider than max_bits, the result is raw,
// or max_bits with `clip`.
Code tight_code(float min, float max, double bound, const ErrorBoundedOptions& options);

// So many steps from zero at most: beyond, f32 cannot tell them apart well enough.
inline constexpr double kMostSteps = 65536;
// How a channel is kept by a codec whose steps begin at zero.
struct Steps {
  enum Kind : uint8_t { kept, constant, coded };  // kept: every value as it is
  Kind kind = kept;
  float step = 0;  // constant: the value
};
// widest(allowed, most): the widest step that allows errors of `allowed` in values of magnitudes up
// to `most`. The step is `part` of that, or of what options.min_bits ask for.
template <class Widest>
Steps steps_of(const Range& range, double bound, const ErrorBoundedOptions& options,
               const Widest& widest, double part = 1) {
  const double min = range.min, max = range.max, most = std::max(std::fabs(min), std::fabs(max));
  if (!range.finite) return {};
  if (min == max) return {Steps::constant, range.min};
  if (options.rounding == Rounding::nearest && options.min_bits == 0 && most <= bound)
    return {Steps::constant, 0};
  double wanted = widest(std::min(bound, 2 * most), most);
  if (options.min_bits > 0)
    wanted = std::min(wanted, (max - min) / (std::ldexp(1.0, options.min_bits) - 1));
  const auto step = static_cast<float>(wanted * part);
  if (!(step >= std::numeric_limits<float>::min()) || !(most < 0x1p120) ||
      most / static_cast<double>(step) >= kMostSteps)
    return {};
  return {Steps::coded, step};
}

// The order of the columns of a block: sorted by width, so that equal widths are neighbours.
struct Lanes {
  struct Run {
    int64_t begin = 0, end = 0;
    int width = 0;
  };
  std::vector<int32_t> column;  // the column at each sorted place
  bool sorted = false;          // the columns were sorted already
  std::vector<float> lo, step, inverse, top;
  std::vector<Run> runs;
  int64_t block_bytes = 0;  // bytes of the codes of 8 rows
};
Lanes make_lanes(const View& view, std::span<const Code> codes);

// Bytes that describe a code.
inline constexpr int64_t kCodeBytes = 9;
void write_codes(std::span<const Code> codes, uint8_t* to);
std::vector<Code> read_codes(const uint8_t* from, int64_t count);

// Copies the elements of `block` to [8][cols] sorted places. Places after the last element get
// `lo`, or 0 with zero_fill.
void stage(const float* x, const View& view, const Lanes& lanes, int64_t block, bool zero_fill,
           float* staged);
// The inverse of stage(): [8][cols] sorted places to rows of `cols`.
void unstage(const float* staged, const Lanes& lanes, int64_t cols, float* x);

// u for each sorted place of a block, as in quantize_reference.h.
void fill_dither(const CodeStream& stream, const Lanes& lanes, int64_t block, float* to);

// Packs w bits of 8 rows of n codes, `stride` apart, into w * n bytes: planes of 8, 4, 2 and 1 bits
// as in group_layout.h.
void pack_planes(const uint32_t* codes, int64_t stride, int64_t n, int width, uint8_t* to);
void unpack_planes(const uint8_t* from, int64_t n, int width, int64_t stride, uint32_t* codes);

}  // namespace frugal::compress::bounded
