#include "compress/quantize/quantize_split.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace frugal::compress {

namespace {

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t to_bf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

// One group as its metadata describe it, in one of its rows.
struct Classes {
  ClassRange of[2];
  SplitCodes codes;
  float lo[2], step[2];  // what codes unpack to
  int offset(bool k) const { return k ? codes.count[0] : 0; }
  float inverse(bool k) const {
    return codes.count[k] < 2 ? 0.0f : static_cast<float>(codes.count[k] - 1) / of[k].range;
  }
};

Classes read_classes(const uint8_t* payload, const GroupLayout& layout, const SplitWeights& weights,
                     const CodeStream& stream, int64_t row, int64_t column) {
  uint16_t words[4];
  const int64_t group = row / layout.group_rows;
  for (int64_t i = 0; i < 4; ++i)
    std::memcpy(&words[i], payload + layout.meta_offset(group) + (i * layout.metas() + column) * 2,
                2);
  Classes classes;
  classes.of[0] = {from_bf16(words[0]), from_bf16(words[1])};
  classes.of[1] = {from_bf16(words[2]), from_bf16(words[3])};
  const bool draws = draws_rows(weights, layout.bits, classes.of[0].range, classes.of[1].range);
  const bool drawn =
      draws && drawn_row(drawn_row_of_block(stream.key[0], static_cast<uint32_t>(row / 8)),
                         drawn_row_of_column(stream.key[1], static_cast<uint32_t>(column))) ==
                   static_cast<uint32_t>(row % 8);
  const int most = (1 << layout.bits) - 1;
  classes.codes = !draws
                      ? split_codes(classes.of[0].range, classes.of[1].range, weights, layout.bits)
                  : drawn ? SplitCodes{{most, 1}}
                          : SplitCodes{{1, most}};
  const int above =
      class_above(classes.of[0].lo, classes.of[0].range, classes.of[1].lo, classes.of[1].range);
  for (int k = 0; k < 2; ++k) {
    const int n = classes.codes.count[k];
    const float range = classes.of[k].range;
    classes.lo[k] = classes.of[k].lo;
    classes.step[k] = n < 2 ? 0.0f : range / static_cast<float>(n - 1);
    if (!draws) continue;
    classes.lo[k] =
        std::fma(range, n < 2 ? drawn_place(k, above) : drawn_base(k, above), classes.of[k].lo);
    classes.step[k] *= drawn_factor(k);
  }
  return classes;
}

bool bit_of(const uint8_t* mask, const GroupLayout& layout, int64_t row, int64_t column) {
  return mask[row / 8 * layout.cols + column] >> (row % 8) & 1;
}

// Calls f(row, column, classes, code) for each element.
template <class F>
void for_codes(const uint8_t* payload, const GroupLayout& layout, const SplitWeights& weights,
               const CodeStream& stream, F f) {
  const Planes planes = planes_of(layout.bits);
  for (int64_t g = 0; g < layout.groups; ++g)
    for (int64_t c = 0; c < layout.cols; ++c)
      for (int64_t r = 0; r < layout.rows_of(g); ++r) {
        const uint8_t* codes = payload + layout.code_offset(g);
        const int64_t row = g * layout.group_rows + r;
        f(row, c, read_classes(payload, layout, weights, stream, row, c),
          static_cast<int>(read_code(codes, layout, planes, layout.rows_of(g), r, c)));
      }
}

}  // namespace

SplitWeights split_weights(double slope, DType dtype, Rounding rounding) {
  constexpr float kLeast = 1.0f / 9;
  const float s = std::clamp(std::fabs(static_cast<float>(slope)), kLeast, 1 / kLeast);
  // Values lie up to kDrawEvery + 5 ranges away from their class, and have to be finite in f32 and
  // bf16. In f16, narrow classes alone stay that near.
  const float widest = dtype == DType::f16 ? 0x1p9f : 0x1p120f;
  const bool draws = slope == 0 && rounding != Rounding::nearest;
  return {std::min(s, 1.0f) / 4, std::min(1.0f / s, 1.0f) / 4, draws ? widest : 0};
}

double split_variance(double slope, int bits) {
  const SplitWeights weights = split_weights(slope);
  const SplitCodes codes = split_codes(1, 1, weights, bits);
  const double of[2] = {weights.class0 * 4.0, weights.class1 * 4.0};
  double sum = 0;
  for (int k = 0; k < 2; ++k) {
    const bool draws = may_draw_rows(weights, bits);
    const double steps = (draws ? (1 << bits) - 1 : codes.count[k]) - 1;
    double variance = 1 / (steps * steps);
    // The mean square of the distance from the place of one code, which is about as large as the
    // variance of rounding to two codes, adds to this.
    constexpr double kDistance = 0.6;
    const double known = k == 0 ? 1.0 / kDrawEvery : 1 - 1.0 / kDrawEvery;
    if (draws) variance = (variance + (1 - known) * kDistance) / known;
    sum += of[k] * of[k] * of[k] * variance;
  }
  return sum;
}

SplitCodes split_codes(float range0, float range1, const SplitWeights& weights, int bits) {
  const int all = 1 << bits;
  // A class of equal values, or with NaN, takes one code.
  const int few0 = std::bit_cast<uint32_t>(range0) == uint32_t{kEmptyRangeBits} << 16 ? 0 : 1;
  const int few1 = std::bit_cast<uint32_t>(range1) == uint32_t{kEmptyRangeBits} << 16 ? 0 : 1;
  if (!(range0 > 0)) return {{few0, range1 > 0 ? all - few0 : few1}};
  if (!(range1 > 0)) return {{all - few1, few1}};
  const float a = weights.class0 * range0;
  const float share = a / std::fma(weights.class1, range1, a);
  const float n0 = std::nearbyint(static_cast<float>(all) * share);
  const int first = static_cast<int>(std::clamp(n0, 2.0f, static_cast<float>(all - 2)));
  return {{first, all - first}};
}

ClassRange class_range(float mn, float mx) {
  if (mn > mx) return {0.0f, -0.0f};
  mn += 0.0f, mx += 0.0f;
  const uint32_t m = std::bit_cast<uint32_t>(mn);
  const float lo = std::bit_cast<float>((m >> 31 ? m + 0xffffu : m) & 0xffff0000u);
  const uint32_t up = (std::bit_cast<uint32_t>(mx - lo) + 0xffffu) & 0xffff0000u;
  return {lo, up == 0 ? 0.0f : std::max(std::bit_cast<float>(up), kSplitMinRange)};
}

int64_t reference_split_pack(const float* x, const uint8_t* mask, const GroupLayout& layout,
                             const SplitWeights& weights, const CodeStream& stream, bool stochastic,
                             uint8_t* payload) {
  int64_t nonfinite = 0;
  const Planes planes = planes_of(layout.bits);
  std::memset(payload, 0, static_cast<size_t>(layout.bytes()));
  for (int64_t g = 0; g < layout.groups; ++g)
    for (int64_t c = 0; c < layout.cols; ++c) {
      const int64_t n = layout.rows_of(g), row0 = g * layout.group_rows;
      float mn[2], mx[2];
      mn[0] = mn[1] = std::numeric_limits<float>::infinity();
      mx[0] = mx[1] = -mn[0];
      bool finite = true;
      for (int64_t row = row0; row < row0 + n; ++row) {
        const float value = x[row * layout.cols + c];
        const bool k = bit_of(mask, layout, row, c);
        finite = finite && std::fabs(value) <= kSplitMaxMagnitude;
        mn[k] = std::min(mn[k], value), mx[k] = std::max(mx[k], value);
      }
      nonfinite += !finite;
      ClassRange ranges[2];
      if (finite)
        for (int k = 0; k < 2; ++k) ranges[k] = class_range(mn[k], mx[k]);
      for (int k = 0; k < 2; ++k) {
        uint16_t words[2] = {kNonfiniteBits, kNonfiniteBits};
        if (finite) words[0] = to_bf16(ranges[k].lo), words[1] = to_bf16(ranges[k].range);
        for (int64_t i = 0; i < 2; ++i)
          std::memcpy(payload + layout.meta_offset(g) + ((2 * k + i) * layout.metas() + c) * 2,
                      &words[i], 2);
      }

      for (int64_t r = 0; r < n; ++r) {
        const int64_t row = row0 + r;
        const Classes classes = read_classes(payload, layout, weights, stream, row, c);
        const bool k = bit_of(mask, layout, row, c);
        int code = classes.offset(k);
        if (finite) {
          const float u = element_dither(stream, stochastic, row, c);
          const float d = x[row * layout.cols + c] - classes.of[k].lo;
          const float v = std::min(std::fma(d, classes.inverse(k), 1.0f + u),
                                   static_cast<float>(classes.codes.count[k]));
          code += static_cast<int>(v) - 1;
        }
        write_code(payload + layout.code_offset(g), layout, planes, n, r, c,
                   static_cast<uint32_t>(code));
      }
    }
  return nonfinite;
}

void reference_split_unpack(const uint8_t* payload, const GroupLayout& layout,
                            const SplitWeights& weights, const CodeStream& stream, bool dithered,
                            float* x, const float* affine) {
  for_codes(payload, layout, weights, stream,
            [&](int64_t row, int64_t column, const Classes& classes, int code) {
              const bool k = code >= classes.codes.count[0];
              float lo = classes.lo[k], step = classes.step[k];
              if (affine != nullptr) {
                const float* a = affine + column;
                lo = k ? std::fma(lo - a[0], a[layout.cols], a[2 * layout.cols]) : 0.0f;
                step = k ? step * a[layout.cols] : 0.0f;
              }
              float level = static_cast<float>(code - classes.offset(k));
              if (dithered) level += 0.5f - element_dither(stream, true, row, column);
              x[row * layout.cols + column] = std::fma(level, step, lo);
            });
}

void reference_split_sign(const uint8_t* payload, const GroupLayout& layout,
                          const SplitWeights& weights, const CodeStream& stream, uint8_t* mask) {
  std::memset(mask, 0, static_cast<size_t>(layout.numel / 8));
  for_codes(payload, layout, weights, stream,
            [&](int64_t row, int64_t column, const Classes& classes, int code) {
              uint8_t& byte = mask[row / 8 * layout.cols + column];
              byte = static_cast<uint8_t>(byte | (code >= classes.codes.count[0]) << (row % 8));
            });
}

}  // namespace frugal::compress
