#include "compress/policies/acgc_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/computed.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"

namespace frugal::compress::acgc {

namespace {

// Stochastic rounding with a step of B has a variance of at most B^2 / 4.
constexpr double kVariance = 0.25;
constexpr double kFloor = 0x1p-16;  // the least squared bound of a normalization, as published

// Returns the positive b with a b + c b^2 = e, or infinity if a and c are 0.
double root(double a, double c, double e) {
  if (a == 0 && c == 0) return kInf;
  if (!std::isfinite(e)) return kInf;
  return 2 * e / (a + std::sqrt(a * a + 4 * c * e));
}

double ratio(double allowed, double price) { return price > 0 ? allowed / price : kInf; }

struct Pair {
  double x, g;
};

constexpr int64_t kSamples = 4096;
constexpr size_t kBins = 64;
// g counts as a smooth function of x if the scatter within bins of similar x is at most this share
// of g's variance.
constexpr double kScatter = 0.05;
constexpr double kSafety = 2;  // slopes between the samples

}  // namespace

double allowed_share(double e, Count count) {
  return e * e / (count == Count::expected ? 1 + e * e : 1);
}

double product_price(double rows, double fan, double dy2, Count count) {
  return fan * dy2 * (count == Count::worst ? rows : kVariance);
}
double published_price(double numel, double gain, double dy2) { return 2 * numel * gain * dy2; }

double normalized_bound2(const Channel& c, double rows, double channels, double allowed_dx,
                         double allowed_dw, Count count) {
  const double r = c.invstd, w = std::fabs(c.weight), dx2 = allowed_dx / channels;
  const double dw2 = allowed_dw / channels;
  if (count == Count::worst) {
    const double dy = std::sqrt(c.dy2), w_r2 = w * r * r;
    const double by_dx =
        root(w_r2 * (dy + std::fabs(c.dw) / std::sqrt(rows)), w_r2 * r * dy, std::sqrt(dx2));
    return std::min(by_dx * by_dx, ratio(dw2, r * r * rows * c.dy2));
  }
  const double w2_r4 = w * w * r * r * r * r / rows;
  const double variance =
      root(w2_r4 * (c.dy2 + (1 + 2 / rows) * c.dw * c.dw), w2_r4 * r * r * c.dy2, dx2);
  return std::min(variance, ratio(dw2, r * r * c.dy2)) / kVariance;
}

double normalized_rows_bound2(const RowSums& sums, double allowed_dx, double allowed_dw,
                              Count count) {
  const double d = sums.elements;
  double a = 0, c = 0;
  for (const Row& row : sums.rows) {
    const double r2 = row.invstd * row.invstd;
    const double r4_d = r2 * (row.scale > 0 ? row.scale * row.scale : r2) / d;
    const double worst = row.g1 + std::fabs(row.t);
    if (count == Count::worst) {
      a += r4_d * worst * worst;
      c += r4_d * r2 * row.g1 * row.g1;
    } else {
      a += r4_d * (row.g2 + (1 + 2 / d) * row.t * row.t);
      c += r4_d * r2 * row.g2;
    }
  }
  if (count == Count::worst) {
    const double by_dx = root(std::sqrt(a), std::sqrt(c), std::sqrt(allowed_dx));
    return std::min(by_dx * by_dx, ratio(allowed_dw, sums.dw_worst));
  }
  return std::min(root(a, c, allowed_dx), ratio(allowed_dw, sums.dw_variance)) / kVariance;
}

double published_normalized_price(const Channel& c, double rows, double channels) {
  const double r2 = c.invstd * c.invstd, half = c.max_x / 2;
  const double g2 = c.dw * c.dw + r2 * c.nonzeros * c.nonzeros * c.max_dy2 * half * half;
  return channels * c.weight * c.weight * r2 * r2 * g2 / rows;
}

double published_normalized_bound2(const Channel& c, double rows, double channels,
                                   double allowed_dx) {
  return std::max(ratio(allowed_dx, published_normalized_price(c, rows, channels)), kFloor);
}

namespace {

// Every `step`-th element, n of them, on the host.
Tensor picked(const Tensor& x, int64_t n, int64_t step) {
  const CategoryScope scope(Category::workspace);
  const Tensor all = ops::contiguous(x);
  return to_device(ops::contiguous(all.as_strided({n}, {step}, all.offset())), kCpu);
}

}  // namespace

std::optional<double> elementwise_slope(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  if (!(x.shape() == dy.shape() && x.shape() == dx.shape()) || x.numel() == 0) return {};
  const int64_t n = std::min(x.numel(), kSamples), step = x.numel() / n;
  const Tensor a = picked(x, n, step), b = picked(dy, n, step), c = picked(dx, n, step);
  double most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::fabs(b.item(i)));
  std::vector<Pair> pairs;
  for (int64_t i = 0; i < n; ++i) {
    const double of = b.item(i);
    // A quotient with a divisor near 0 is noise, so it is left out.
    if (std::fabs(of) > 1e-4 * most) pairs.push_back({a.item(i), c.item(i) / of});
  }
  if (pairs.size() < 4 * kBins) return {};
  for (const Pair& pair : pairs)
    if (!std::isfinite(pair.x) || !std::isfinite(pair.g)) return {};
  std::sort(pairs.begin(), pairs.end(),
            [](const Pair& p, const Pair& q) { return p.x != q.x ? p.x < q.x : p.g < q.g; });
  double mean = 0;
  for (const Pair& pair : pairs) mean += pair.g / static_cast<double>(pairs.size());
  double total = 0, within = 0, slope = 0;
  Pair before{};
  for (size_t bin = 0; bin < kBins; ++bin) {
    const size_t begin = bin * pairs.size() / kBins, end = (bin + 1) * pairs.size() / kBins;
    const auto count = static_cast<double>(end - begin);
    // Fits a line through the pairs of the bin. The distance from the line is scatter.
    double sx = 0, sg = 0, sxx = 0, sxg = 0, sgg = 0;
    for (size_t i = begin; i < end; ++i) sx += pairs[i].x / count, sg += pairs[i].g / count;
    for (size_t i = begin; i < end; ++i) {
      const double u = pairs[i].x - sx, v = pairs[i].g - sg;
      sxx += u * u, sxg += u * v, sgg += v * v;
      total += (pairs[i].g - mean) * (pairs[i].g - mean);
    }
    const double line = sxx > 0 ? sxg / sxx : 0;
    within += sgg - line * sxg;
    slope = std::max(slope, std::fabs(line));
    if (bin > 0 && sx > before.x)
      slope = std::max(slope, std::fabs((sg - before.g) / (sx - before.x)));
    before = {sx, sg};
  }
  if (within > kScatter * total) return {};
  return kSafety * slope;
}

double elementwise_bound2(double slope, double allowed_dx, double dy2, Count count) {
  return ratio(allowed_dx, slope * slope * dy2 * (count == Count::worst ? 1 : kVariance));
}

double linear_bound2(double numel, double mean_x2, double e2, double dx2, double dy2, Count count) {
  if (count == Count::expected) return e2 * mean_x2 / kVariance;
  return ratio(e2 * dx2, numel * dy2);
}

double ChannelSums::all() const { return std::accumulate(squares.begin(), squares.end(), 0.0); }

namespace {
constexpr int64_t kRows = 2048;  // rows of a part; the sums of the parts are added in order

// Copies only what is on another device or not contiguous. Plans of memory count no copy.
Tensor on_host(const Tensor& x) {
  const CategoryScope scope(Category::workspace);
  return to_device(ops::contiguous(x), kCpu);
}

// The elements of a tensor on the host as f64. T: the type of its elements.
template <class T>
struct Numbers {
  const T* values;
  explicit Numbers(const Tensor& x) : values(x.data<T>()) {}
  double operator[](size_t i) const {
    return static_cast<double>(static_cast<Computed<T>>(values[i]));
  }
};

template <class T>
ChannelSums channel_sums_of(const Tensor& x) {
  const int64_t channels = x.dim() == 0 ? 1 : std::max<int64_t>(x.shape().back(), 1);
  const int64_t rows = x.numel() / channels;
  const int64_t parts = (rows + kRows - 1) / kRows;
  const auto width = static_cast<size_t>(channels);
  std::vector<double> squares(static_cast<size_t>(parts) * width, 0), nonzeros(squares),
      max(squares);
  const Numbers<T> from(x);
  parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      double* const sum = squares.data() + static_cast<size_t>(p) * width;
      double* const count = nonzeros.data() + static_cast<size_t>(p) * width;
      double* const most = max.data() + static_cast<size_t>(p) * width;
      for (int64_t r = p * kRows; r < std::min(rows, (p + 1) * kRows); ++r)
        for (size_t c = 0; c < width; ++c) {
          const double value = from[static_cast<size_t>(r) * width + c];
          sum[c] += value * value;
          count[c] += value != 0 ? 1 : 0;
          most[c] = std::max(most[c], std::fabs(value));
        }
    }
  });
  ChannelSums sums{std::vector<double>(width, 0), std::vector<double>(width, 0),
                   std::vector<double>(width, 0)};
  for (size_t i = 0; i < squares.size(); ++i) {
    sums.squares[i % width] += squares[i];
    sums.nonzeros[i % width] += nonzeros[i];
    sums.max[i % width] = std::max(sums.max[i % width], max[i]);
  }
  return sums;
}

template <class T>
RowSums row_sums_of(const Tensor& x, const Tensor& dy, const RowNorm& norm) {
  const Tensor invstds = on_host(norm.invstd);
  const Tensor means = norm.mean.defined() ? on_host(norm.mean) : Tensor();
  const Tensor weights = norm.weight.defined() ? on_host(norm.weight) : Tensor();
  const int64_t channels = x.shape().back(), rows = x.numel() / channels, groups = norm.groups;
  const int64_t runs = invstds.numel() / groups, width = channels / groups;
  const int64_t each = runs == 0 ? 0 : rows / runs;  // rows of a run
  FRUGAL_ASSERT(runs * groups == invstds.numel() && width * groups == channels &&
                runs * each == rows);
  const Numbers<T> values(x), gradients(dy);
  std::vector<double> w(static_cast<size_t>(channels), 1);
  if (weights.defined()) w = weights.to_vector();
  RowSums sums;
  sums.elements = static_cast<double>(each * width);
  sums.rows.resize(static_cast<size_t>(invstds.numel()));
  parallel_for(0, runs, std::max<int64_t>(kRows / std::max<int64_t>(each, 1), 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t k = begin * groups; k < end * groups; ++k) {
                   Row& row = sums.rows[static_cast<size_t>(k)];
                   (norm.normalized ? row.scale : row.invstd) = invstds.item(k);
                   const double mean = means.defined() ? means.item(k) : 0;
                   const int64_t first = k % groups * width;
                   for (int64_t r = k / groups * each; r < (k / groups + 1) * each; ++r)
                     for (int64_t c = first; c < first + width; ++c) {
                       const auto i = static_cast<size_t>(r * channels + c);
                       const double g = w[static_cast<size_t>(c)] * gradients[i];
                       row.g1 += std::fabs(g);
                       row.g2 += g * g;
                       row.t += g * row.invstd * (values[i] - mean);
                     }
                 }
               });
  const auto count = static_cast<size_t>(channels);
  const int64_t parts = (rows + kRows - 1) / kRows;
  std::vector<double> first(static_cast<size_t>(parts) * count, 0), second(first);
  parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t r = p * kRows; r < std::min(rows, (p + 1) * kRows); ++r)
        for (int64_t c = 0; c < channels; ++c) {
          const auto at = static_cast<size_t>(p * channels + c);
          const Row& row = sums.rows[static_cast<size_t>(r / each * groups + c / width)];
          const double of = row.invstd * gradients[static_cast<size_t>(r * channels + c)];
          first[at] += std::fabs(of);
          second[at] += of * of;
        }
  });
  std::vector<double> by_channel(count, 0);
  for (size_t i = 0; i < first.size(); ++i) {
    by_channel[i % count] += first[i];
    sums.dw_variance += second[i];
  }
  for (const double sum : by_channel) sums.dw_worst += sum * sum;
  sums.slope.assign(count, 0);
  for (size_t k = 0; k < sums.rows.size(); ++k)
    for (int64_t j = 0; j < width; ++j) {
      const auto c = static_cast<size_t>(static_cast<int64_t>(k) % groups * width + j);
      const double steep = w[c] * sums.rows[k].invstd;
      sums.slope[c] = std::max(sums.slope[c], steep * steep);
    }
  return sums;
}

}  // namespace

ChannelSums channel_sums(const Tensor& x) {
  const Tensor here = on_host(x);
  return with_computed(x.dtype(), [&](auto zero) { return channel_sums_of<decltype(zero)>(here); });
}

RowSums row_sums(const Tensor& x, const Tensor& dy, const RowNorm& norm) {
  FRUGAL_ASSERT(x.dtype() == dy.dtype());
  const Tensor rows = on_host(x), gradients = on_host(dy);
  return with_computed(
      x.dtype(), [&](auto zero) { return row_sums_of<decltype(zero)>(rows, gradients, norm); });
}

}  // namespace frugal::compress::acgc
