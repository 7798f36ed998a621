#include "compress/quantize/rounding_schemes.h"

#include <algorithm>
#include <bit>

#include "compress/quantize/quantize_split.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"

namespace frugal::compress {
namespace {

constexpr int kBins = 512;

// One group: its values, what is added before truncation, and its classes.
struct Group {
  std::vector<float> x, u;
  std::vector<uint8_t> bit;

  void gather(const float* from, int64_t stride, int64_t first, int64_t last) {
    x.clear();
    for (int64_t r = first; r < last; ++r) x.push_back(from[r * stride]);
  }
  // element_dither of rows `first`, a multiple of 8, to before `last`.
  void draw(const CodeStream& stream, int64_t first, int64_t last, int64_t column) {
    u.clear();
    for (int64_t r = first; r < last; r += 8) {
      const auto words =
          code_words(stream, static_cast<uint32_t>(r / 8), static_cast<uint32_t>(column));
      for (int64_t k = 0; k < std::min<int64_t>(8, last - r); ++k) {
        const uint32_t word = words[static_cast<size_t>(k / 2)];
        u.push_back((static_cast<float>(k % 2 == 0 ? word & 0xffffu : word >> 16) + 0.5f) / 65536);
      }
    }
  }
};

struct Range {
  float lo = 0, hi = 0;
};
Range range_of(const std::vector<float>& x) {
  const auto [lo, hi] = std::minmax_element(x.begin(), x.end());
  return {*lo, *hi};
}

float code_of(float x, float u, float lo, float inverse, float codes) {
  return std::trunc(std::min(std::fma(x - lo, inverse, 1 + u), codes)) - 1;
}

// `shift`: 1/2 - u, or 0.
void round_uniform(Group& group, const Range& range, int bits, bool subtractive) {
  const GroupParameters p = group_parameters(range.lo, range.hi, false, bits);
  const auto codes = static_cast<float>(1 << bits);
  for (size_t i = 0; i < group.x.size(); ++i) {
    const float q = code_of(group.x[i], group.u[i], p.lo, 1 / p.step, codes);
    group.x[i] = std::fma(subtractive ? q + (0.5f - group.u[i]) : q, p.step, p.lo);
  }
}

void round_table(Group& group, const std::vector<float>& levels) {
  const Range range = range_of(group.x);
  const GroupParameters p = group_parameters(range.lo, range.hi, false, 1);
  for (size_t i = 0; i < group.x.size(); ++i) {
    const float t = (group.x[i] - p.lo) / p.step;
    const auto above = std::upper_bound(levels.begin() + 1, levels.end() - 1, t);
    const float a = above[-1], b = *above;
    group.x[i] = std::fma(a + (t - a > group.u[i] * (b - a) ? b - a : 0), p.step, p.lo);
  }
}

float to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

void round_outliers(Group& group, int bits, int count) {
  const size_t n = group.x.size();
  std::vector<float> sorted = group.x;
  std::sort(sorted.begin(), sorted.end());
  size_t first = 0, last = n - 1;
  // The way to drop `count` from both ends that leaves the narrowest range.
  const auto drop = std::min(static_cast<size_t>(count), n - 1);
  for (size_t low = 0; low <= drop; ++low)
    if (sorted[n - 1 - (drop - low)] - sorted[low] < sorted[last] - sorted[first])
      first = low, last = n - 1 - (drop - low);
  const Range range{sorted[first], sorted[last]};
  const std::vector<float> exact = group.x;
  for (float& x : group.x) x = std::clamp(x, range.lo, range.hi);
  round_uniform(group, range, bits, false);
  for (size_t i = 0; i < n; ++i)
    if (exact[i] < range.lo || exact[i] > range.hi) group.x[i] = to_bf16(exact[i]);
}

void round_averages(Group& group, int bits, int count) {
  const size_t n = group.x.size(), each = static_cast<size_t>(count);
  Group means;
  for (size_t i = 0; i < n; i += each) {
    const size_t end = std::min(n, i + each);
    float sum = 0;
    for (size_t k = i; k < end; ++k) sum += group.x[k];
    means.x.push_back(sum / static_cast<float>(end - i));
    means.u.push_back(group.u[i]);
  }
  round_uniform(means, range_of(means.x), std::min(bits * count, 16), false);
  for (size_t i = 0; i < n; ++i) group.x[i] = means.x[i / each];
}

void round_split(Group& group, int bits, const SplitWeights& weights, bool subtractive) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Range found[2] = {{kInfinity, -kInfinity}, {kInfinity, -kInfinity}};
  for (size_t i = 0; i < group.x.size(); ++i) {
    Range& r = found[group.bit[i]];
    r = {std::min(r.lo, group.x[i]), std::max(r.hi, group.x[i])};
  }
  const ClassRange ranges[2] = {class_range(found[0].lo, found[0].hi),
                                class_range(found[1].lo, found[1].hi)};
  const SplitCodes codes = split_codes(ranges[0].range, ranges[1].range, weights, bits);
  for (size_t i = 0; i < group.x.size(); ++i) {
    const ClassRange& r = ranges[group.bit[i]];
    const auto n = static_cast<float>(codes.count[group.bit[i]]);
    const bool rounds = n >= 2 && r.range > 0;
    const float step = rounds ? r.range / (n - 1) : 0;
    const float q = code_of(group.x[i], group.u[i], r.lo, rounds ? (n - 1) / r.range : 0, n);
    group.x[i] = std::fma(subtractive ? q + (0.5f - group.u[i]) : q, step, r.lo);
  }
}

std::vector<double> histogram_of(const float* x, int64_t rows, int64_t cols, int64_t group) {
  std::vector<double> bins(kBins, 0);
  Group values;
  for (int64_t row = 0; row < rows; row += group)
    for (int64_t c = 0; c < cols; ++c) {
      values.gather(x + c, cols, row, std::min(rows, row + group));
      const Range range = range_of(values.x);
      const float span = range.hi - range.lo;
      if (!(span > 0)) continue;
      for (const float v : values.x) {
        const int bin = static_cast<int>((v - range.lo) / span * kBins);
        bins[static_cast<size_t>(std::min(bin, kBins - 1))] += static_cast<double>(span * span);
      }
    }
  return bins;
}

}  // namespace

std::string RoundingScheme::name() const {
  const char* names[] = {"stochastic", "subtractive", "table", "outliers apart", "averages"};
  std::string text = names[kind];
  if (parameter > 0) text += fmt::format(" ({})", parameter);
  if (axis == GroupAxis::row) text += ", rows";
  if (group != 256) text += fmt::format(", groups of {}", group);
  if (split) text += ", signs in codes";
  return text;
}

double RoundingScheme::bits_per_element(bool with_sign) const {
  const double metadata = split && with_sign ? 64 : 32,
               apart = kind == outliers ? 24 * parameter : 0;
  return bits + (metadata + apart) / static_cast<double>(group) + (with_sign && !split ? 1 : 0);
}

std::vector<RoundingScheme> rounding_schemes(int bits) {
  using S = RoundingScheme;
  constexpr GroupAxis kColumn = GroupAxis::column, kRow = GroupAxis::row;
  std::vector<S> all;
  for (const int64_t group : {256, 128})
    for (const S::Kind kind : {S::uniform, S::subtractive})
      for (const bool split : {false, true}) all.push_back({kind, bits, group, kColumn, 0, split});
  for (const int64_t group : {64, 512, 1024})
    all.push_back({S::uniform, bits, group, kColumn, 0, false});
  all.push_back({S::uniform, bits, 256, kRow, 0, false});
  all.push_back({S::subtractive, bits, 512, kColumn, 0, false});
  all.push_back({S::table, bits, 256, kColumn, 0, false});
  for (const int apart : {1, 2, 4}) all.push_back({S::outliers, bits, 256, kColumn, apart, false});
  all.push_back({S::averages, bits, 256, kColumn, 4, false});
  return all;
}

std::vector<float> fit_levels(const std::vector<double>& histogram, int count) {
  const size_t n = histogram.size();
  std::vector<double> mass(n + 1, 0), moment(n + 1, 0);  // of what lies below a bin
  for (size_t i = 0; i < n; ++i) {
    mass[i + 1] = mass[i] + histogram[i];
    moment[i + 1] = moment[i] + histogram[i] * (static_cast<double>(i) + 0.5);
  }
  std::vector<size_t> at(static_cast<size_t>(count));  // in bins
  for (size_t i = 0; i < at.size(); ++i) at[i] = i * n / (at.size() - 1);
  // The variance between levels a < b is the mass of (x - a) (b - x). By a level l between them it
  // grows with the mass of (x - a) below l, and falls with that of (b - x) above.
  for (int sweep = 0; sweep < 100; ++sweep)
    for (size_t i = 1; i + 1 < at.size(); ++i) {
      const size_t a = at[i - 1], b = at[i + 1];
      size_t low = a + 1, high = std::max(b - 1, low);
      while (low < high) {
        const size_t l = (low + high) / 2;
        const double below = moment[l] - moment[a] - static_cast<double>(a) * (mass[l] - mass[a]);
        const double above = static_cast<double>(b) * (mass[b] - mass[l]) - (moment[b] - moment[l]);
        if (below < above)
          low = l + 1;
        else
          high = l;
      }
      at[i] = low;
    }
  std::vector<float> levels;
  for (const size_t l : at) levels.push_back(static_cast<float>(l) / static_cast<float>(n));
  return levels;
}

Tensor round_trip(const RoundingScheme& scheme, const Tensor& tensor, uint64_t seed,
                  const SaveInfo& info) {
  FRUGAL_CHECK(tensor.is_contiguous() && tensor.dtype() == DType::f32,
               "[round_trip] expected a contiguous f32 tensor, got {}", describe(tensor));
  const Tensor x = to_device(tensor, kCpu);
  const Tensor out = Tensor::empty(x.shape());
  const int64_t cols = scheme.axis == GroupAxis::row || x.dim() == 0 ? 1 : x.size(-1);
  const int64_t rows = cols == 0 ? 0 : x.numel() / cols, size = scheme.group;
  const CodeStream stream = code_stream(seed, info);
  const GroupLayout layout =
      make_layout(x.shape(), GroupAxis::column, size, std::max(scheme.bits, 2));
  const bool split = scheme.split && info.sign != nullptr && can_split(layout, x.shape());
  const SplitWeights weights = split_weights(split ? info.sign->slope : 0);
  const Tensor bits = split ? to_device(info.sign->mask, kCpu) : Tensor();
  const auto* mask = split ? bits.data<uint8_t>() : nullptr;
  const float* in = x.data<float>();
  float* y = out.mut<float>();
  std::vector<float> levels;
  if (scheme.kind == RoundingScheme::table)
    levels = fit_levels(histogram_of(in, rows, cols, size), 1 << scheme.bits);
  const bool subtractive = scheme.kind == RoundingScheme::subtractive;
  parallel_for(0, (rows + size - 1) / size, 1, [&](int64_t begin, int64_t end) {
    Group group;
    for (int64_t g = begin; g < end; ++g)
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t first = g * size, last = std::min(rows, first + size);
        group.gather(in + c, cols, first, last);
        group.draw(stream, first, last, c);
        if (split) {
          group.bit.clear();
          for (int64_t r = first; r < last; ++r)
            group.bit.push_back(mask[r / 8 * cols + c] >> (r % 8) & 1);
          round_split(group, scheme.bits, weights, subtractive);
        } else if (scheme.kind == RoundingScheme::table) {
          round_table(group, levels);
        } else if (scheme.kind == RoundingScheme::outliers) {
          round_outliers(group, scheme.bits, scheme.parameter);
        } else if (scheme.kind == RoundingScheme::averages) {
          round_averages(group, scheme.bits, scheme.parameter);
        } else {
          round_uniform(group, range_of(group.x), scheme.bits, subtractive);
        }
        for (int64_t r = first; r < last; ++r)
          y[r * cols + c] = group.x[static_cast<size_t>(r - first)];
      }
  });
  return to_device(out, tensor.device());
}

std::unique_ptr<Packed> RoundTripCodec::pack(const Tensor& tensor, const SaveInfo& info) const {
  struct Rounded final : Packed {
    Tensor value, mask;
    Tensor unpack() const override { return ops::clone(value); }
    bool carries_sign() const override { return mask.defined(); }
    Tensor unpack_sign() const override { return mask.defined() ? ops::clone(mask) : Tensor(); }
  };
  CategoryScope scope(Category::packed);
  auto rounded = std::make_unique<Rounded>();
  rounded->value = round_trip(scheme_, tensor, seed_, info);
  if (scheme_.split && info.sign != nullptr) rounded->mask = ops::clone(info.sign->mask);
  return rounded;
}

}  // namespace frugal::compress
