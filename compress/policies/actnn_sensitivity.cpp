#include "compress/policies/actnn_sensitivity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "compress/policies/actnn_ranges.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"

namespace frugal::compress {
namespace {

constexpr int kStripColumns = 16;
constexpr float kInfiniteValue = std::numeric_limits<float>::infinity();

double squared_range(float mn, float mx) {
  const double range = static_cast<double>(mx) - static_cast<double>(mn);
  return std::isfinite(range) ? range * range : 0;
}

struct Strip {
  alignas(64) std::array<float, kStripColumns> mn, mx;
};

template <class T>
float value_of(const T& x) {
  return static_cast<float>(x);
}

// Finds the minima and maxima of `rows` rows of `columns` columns. For whole strips the inner loop
// has a constant bound, so that the compiler keeps the extremes in registers.
template <bool kWhole, class T>
void extremes(const T* x, int64_t stride, int64_t rows, size_t columns, Strip& strip) {
  strip.mn.fill(kInfiniteValue);
  strip.mx.fill(-kInfiniteValue);
  std::array<float, kStripColumns> mn = strip.mn, mx = strip.mx;
  const size_t width = kWhole ? kStripColumns : columns;
  for (int64_t r = 0; r < rows; ++r, x += stride)
    for (size_t c = 0; c < width; ++c) {
      const float v = value_of(x[c]);
      mn[c] = v < mn[c] ? v : mn[c];
      mx[c] = v > mx[c] ? v : mx[c];
    }
  strip.mn = mn;
  strip.mx = mx;
}

// Adds rows * range^2 of each column to `sums`.
template <class T>
void column_ranges(const T* x, int64_t rows, int64_t cols, int64_t group, double* sums) {
  Strip strip;
  for (int64_t r = 0; r < rows; r += group) {
    const int64_t take = std::min(group, rows - r),
                  every = std::max<int64_t>(take / RangeJob::kLookedRows, 1);
    for (int64_t c = 0; c < cols; c += kStripColumns) {
      const auto width = static_cast<size_t>(std::min<int64_t>(kStripColumns, cols - c));
      const T* from = x + r * cols + c;
      if (width == kStripColumns)
        extremes<true>(from, every * cols, take / every, width, strip);
      else
        extremes<false>(from, every * cols, take / every, width, strip);
      for (size_t j = 0; j < width; ++j)
        sums[c + static_cast<int64_t>(j)] +=
            static_cast<double>(take) * squared_range(strip.mn[j], strip.mx[j]);
    }
  }
}

template <class T>
void add_ranges(const T* x, const RangeJob& job, double* sums) {
  const Samples& samples = job.samples;
  const int64_t grain =
      std::max<int64_t>((int64_t{1} << 16) / std::max<int64_t>(samples.size(), 1), 1);
  parallel_for(0, samples.count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = samples.begin(i), count = samples.end(i) - begin;
      column_ranges(x + begin, count / samples.cols, samples.cols, job.group,
                    sums + i * samples.cols);
    }
  });
}

// One more bit for a sample, and the variance that the bit removes.
struct BitStep {
  double gain;
  int32_t sample;
  int bits;  // before it
};
// Orders by gain, the largest first. Ties are ordered by bits, then by sample, so that the order is
// unique.
bool before(const BitStep& a, const BitStep& b) {
  if (a.gain != b.gain) return a.gain > b.gain;
  if (a.bits != b.bits) return a.bits < b.bits;
  return a.sample < b.sample;
}

std::vector<double> variances(int min_bits, int max_bits, const StepVariance& variance) {
  std::vector<double> all;
  for (int bits = min_bits; bits <= max_bits; ++bits) all.push_back(variance(bits));
  return all;
}

std::vector<BitStep> steps_of(std::span<const double> weights, const std::vector<double>& s,
                              int min_bits) {
  std::vector<BitStep> steps;
  steps.reserve(weights.size() * (s.size() - 1));
  for (size_t n = 0; n < weights.size(); ++n)
    for (size_t k = 0; k + 1 < s.size(); ++k)
      steps.push_back({weights[n] * (s[k] - s[k + 1]), static_cast<int32_t>(n),
                       min_bits + static_cast<int>(k)});
  return steps;
}

}  // namespace

void range_sums_kernel(Cpu, const RangeJob& job, double* sums) {
  with_dtype(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>)
      throw InternalError("group ranges of integers");
    else
      add_ranges(static_cast<const T*>(job.x), job, sums);
  });
}

GroupRanges group_ranges(const Tensor& tensor, const Samples& samples, int64_t group) {
  const auto n = static_cast<size_t>(samples.count), cols = static_cast<size_t>(samples.cols);
  // These sums may take as many bytes as the tensor, so they are counted as a tensor, also on meta.
  const CategoryScope scope(Category::workspace);
  const Tensor of_columns = Tensor::empty({samples.count, samples.cols}, DType::f64,
                                          tensor.device() == kMeta ? kMeta : kCpu);
  if (tensor.device() == kMeta || tensor.numel() == 0)
    return {std::vector<double>(n, 1), std::vector<double>(cols, 1)};
  const RangeJob job{tensor.raw(), tensor.dtype(), samples, group};
  auto* const sums = of_columns.mut<double>();
  std::fill(sums, sums + n * cols, 0.0);
  dispatch(tensor.device(), [&](auto backend) { range_sums_kernel(backend, job, sums); });
  GroupRanges ranges{std::vector<double>(n), std::vector<double>(cols)};
  const auto elements = [&](size_t i) {
    const auto index = static_cast<int64_t>(i);
    return static_cast<double>(std::max<int64_t>(samples.end(index) - samples.begin(index), 1));
  };
  for (size_t i = 0; i < n; ++i)
    for (size_t c = 0; c < cols; ++c) {
      ranges.samples[i] += sums[i * cols + c] / elements(i);
      ranges.channels[c] += sums[i * cols + c];
    }
  const double rows = static_cast<double>(samples.numel) / static_cast<double>(cols);
  for (double& channel : ranges.channels) channel /= rows;
  return ranges;
}

std::vector<int> spread_bits(std::span<const double> weights, int64_t extra, int min_bits,
                             int max_bits, const StepVariance& variance) {
  const auto n = static_cast<int64_t>(weights.size());
  FRUGAL_ASSERT(extra >= 0 && extra <= n * (max_bits - min_bits));
  std::vector<int> bits(weights.size(), min_bits);
  if (extra == 0) return bits;
  if (extra == n * (max_bits - min_bits)) return std::vector<int>(weights.size(), max_bits);
  // S is convex, so each further bit of a sample gains less than the one before. Therefore the
  // `extra` best steps never contain a step without the earlier steps of its sample.
  std::vector<BitStep> steps = steps_of(weights, variances(min_bits, max_bits, variance), min_bits);
  std::nth_element(steps.begin(), steps.begin() + extra, steps.end(), before);
  for (int64_t i = 0; i < extra; ++i)
    ++bits[static_cast<size_t>(steps[static_cast<size_t>(i)].sample)];
  return bits;
}

std::vector<double> spread_costs(std::span<const double> weights, std::span<const int64_t> extras,
                                 int min_bits, int max_bits, const StepVariance& variance) {
  const std::vector<double> s = variances(min_bits, max_bits, variance);
  std::vector<BitStep> steps = steps_of(weights, s, min_bits);
  std::sort(steps.begin(), steps.end(), before);
  double cost = 0;
  for (const double weight : weights) cost += weight * s.front();
  std::vector<double> costs;
  size_t taken = 0;
  for (const int64_t extra : extras) {
    for (; taken < static_cast<size_t>(extra); ++taken) cost -= steps[taken].gain;
    // Rounding may make the difference negative. The cost is at least 0.
    costs.push_back(std::max(cost, 0.0) / static_cast<double>(std::max<size_t>(weights.size(), 1)));
  }
  return costs;
}

}  // namespace frugal::compress
