#include "data/image/mix.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/image/draws.h"

namespace frugal::data {
namespace {

// What a batch draws lies at these counters; those of draw_beta() begin at kBeta.
enum Counter : uint64_t { kKind, kRow, kColumn, kBeta = 16 };

// Below 1 and above 0.
double open_uniform(RngKey key, uint64_t index) {
  return static_cast<double>(uniform(key, index)) + 0x1p-25;
}

// The logarithm of a draw from Gamma(shape, 1). A small shape makes draws that a double cannot
// hold, so all is done with logarithms.
double log_gamma_draw(RngKey key, uint64_t& counter, double shape) {
  if (shape < 1) {
    const double log_uniform = std::log(open_uniform(key, counter++));
    return log_gamma_draw(key, counter, shape + 1) + log_uniform / shape;
  }
  // Normal draws have a key of their own, since they take other words of a counter.
  const RngKey normals = inner_key(key);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const auto x = static_cast<double>(normal(normals, counter++));
    const double root = 1 + c * x, u = open_uniform(key, counter++);
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d * (1 - v + std::log(v))) return std::log(d * v);
  }
}

// out = share * out + (1 - share) * other
void blend(float* out, const float* other, int64_t count, double share) {
  const auto own = static_cast<float>(share), rest = static_cast<float>(1 - share);
  for (int64_t i = 0; i < count; ++i) out[i] = own * out[i] + rest * other[i];
}

// The rectangle of CutMix, clipped at the border.
Rectangle draw_cut(RngKey key, int64_t height, int64_t width, double share) {
  const double side = std::sqrt(1 - share) / 2;
  const auto half_height = static_cast<int64_t>(side * static_cast<double>(height)),
             half_width = static_cast<int64_t>(side * static_cast<double>(width));
  const int64_t y = draw(key, kRow, height), x = draw(key, kColumn, width);
  const int64_t top = std::max<int64_t>(y - half_height, 0),
                left = std::max<int64_t>(x - half_width, 0);
  return {top, left, std::min(y + half_height, height) - top,
          std::min(x + half_width, width) - left};
}

}  // namespace

double draw_beta(RngKey key, double alpha) {
  FRUGAL_CHECK(alpha > 0 && std::isfinite(alpha),
               "[mix] expected a positive strength, the alpha of a Beta distribution, got {}",
               alpha);
  uint64_t counter = kBeta;
  const double a = log_gamma_draw(key, counter, alpha), b = log_gamma_draw(key, counter, alpha);
  return 1 / (1 + std::exp(b - a));
}

void mix_samples(const Batch& batch, const std::vector<int64_t>& labels, const MixOptions& options,
                 RngKey key, const SampleBefore* before) {
  const auto count = static_cast<int64_t>(labels.size());
  if (count == 0) return;
  const int64_t floats = batch.input.numel() / count;
  float* const input = batch.input.mut<float>();
  const bool cuts = options.cutmix > 0 && (options.mixup == 0 || draw(key, kKind, 2) == 1);
  double share = draw_beta(key, cuts ? options.cutmix : options.mixup);
  Rectangle cut;
  const int64_t height = cuts ? batch.input.size(1) : 0, width = cuts ? batch.input.size(2) : 0;
  if (cuts) {
    cut = draw_cut(key, height, width, share);
    share = 1 - static_cast<double>(cut.height * cut.width) / static_cast<double>(height * width);
  }
  // Backwards, so that the sample before each one is still as it was; the last one is kept for the
  // first.
  std::vector<float> last;
  if (before == nullptr) last.assign(input + (count - 1) * floats, input + count * floats);
  const float* const before_first = before == nullptr ? last.data() : before->values.data();
  for (int64_t i = count - 1; i >= 0; --i) {
    float* const out = input + i * floats;
    const float* const other = i > 0 ? out - floats : before_first;
    if (!cuts) {
      blend(out, other, floats, share);
      continue;
    }
    const int64_t channels = batch.input.size(3);
    for (int64_t y = cut.top; y < cut.top + cut.height; ++y) {
      const int64_t from = (y * width + cut.left) * channels;
      std::copy_n(other + from, cut.width * channels, out + from);
    }
  }
  const int64_t label_before = before == nullptr ? labels.back() : before->label;
  float* target = batch.target.mut<float>();
  for (int64_t i = 0; i < count; ++i, target += options.classes) {
    const int64_t own = labels[static_cast<size_t>(i)],
                  other = i > 0 ? labels[static_cast<size_t>(i - 1)] : label_before;
    const bool counts = own != kIgnored && other != kIgnored;
    std::fill_n(target, options.classes, counts ? 0.0f : static_cast<float>(kIgnored));
    if (!counts) continue;
    target[own] += static_cast<float>(share);
    target[other] += static_cast<float>(1 - share);
  }
}

}  // namespace frugal::data
