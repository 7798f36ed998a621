// Whatever the shape of a tensor is, codecs and policies keep each channel by its own size: a
// channel of small values beside one of large values loses no more than its own range allows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "compress/bounded/error_bounded.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/choice.h"
#include "compress/policies/fixed_policy.h"
#include "compress/quantize/mixed.h"
#include "tests/compress/codec_table.h"
#include "tests/compress/policies/one_step.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr int64_t kChannels = 24;

// [rows, kChannels] in one of three shapes. Scales of channels go from 1e-4 to 1e4; every fifth
// channel is far from zero, as far as its own size.
Tensor spread_channels(int64_t rows, int form) {
  std::vector<float> x = normals(rows * kChannels, 11);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto c = static_cast<double>(i % kChannels);
    const double scale = std::pow(10, -4 + 8 * c / (kChannels - 1));
    x[i] = static_cast<float>(scale * (static_cast<double>(x[i]) + (i % 5 == 0 ? 3 : 0)));
  }
  const Shape shapes[] = {{rows, kChannels}, {rows, 1, 1, kChannels}, {1, rows, kChannels}};
  return Tensor::from(x, shapes[form]);
}

// The largest error of a channel, as a part of the channel's largest error under 1 bit: its range,
// and what bf16 takes from its smallest value.
double worst_share(const Tensor& x, const Tensor& back) {
  const std::vector<double> a = x.to_vector(), b = back.to_vector();
  double worst = 0;
  for (size_t c = 0; c < kChannels; ++c) {
    double least = a[c], most = a[c], error = 0;
    for (size_t i = c; i < a.size(); i += kChannels) {
      least = std::min(least, a[i]), most = std::max(most, a[i]);
      error = std::max(error, std::abs(a[i] - b[i]));
      if (!std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
    }
    const double magnitude = std::max(std::abs(least), std::abs(most));
    worst = std::max(worst, error / ((most - least) + magnitude / 64));
  }
  return worst;
}

void each_tensor(const std::function<void(const Tensor&)>& f) {
  for (const int64_t rows : {1, 2, 3, 7, 8, 9, 15, 16, 31, 46, 63, 64, 65, 255, 300})
    for (int form = 0; form < 3; ++form) {
      const Tensor x = spread_channels(rows, form);
      CAPTURE(x.shape());
      f(x);
    }
}

}  // namespace

TEST_CASE("codecs keep each channel by its own size, however few rows there are") {
  for (const CodecRow& row : codec_table()) {
    if (row.shares_lanes) continue;  // groups along rows are asked for by name
    CAPTURE(row.name);
    const auto codec = row.make(row, 3);
    each_tensor([&](const Tensor& x) {
      // A step is at most the range over 2^bits - 1, and a code loses at most a step.
      const double steps = row.bits == 0 ? 1 : std::exp2(row.bits) - 1;
      CHECK(worst_share(x, codec->pack(x, entry(1))->unpack()) <= 1.02 / steps + 1e-5);
    });
  }
}

TEST_CASE("codecs of mixed widths keep each channel by its own size") {
  const MixedQuantizer codec;
  each_tensor([&](const Tensor& x) {
    const auto count = static_cast<size_t>(samples_of(x.shape(), false).count);
    std::vector<int> widths(count);
    for (size_t n = 0; n < count; ++n) widths[n] = 2 + static_cast<int>(n % 5);
    CHECK(worst_share(x, codec.pack(x, entry(1), widths)->unpack()) <= 1.02 / 3);
  });
}

TEST_CASE("error-bounded codecs keep each channel by its own size where a bound allows all") {
  constexpr int kBits = 4;
  for (const std::string& name : error_bounded_names())
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      CAPTURE(name);
      ErrorBoundedOptions options;
      options.rounding = rounding;
      options.min_bits = kBits;
      const auto codec = make_error_bounded(name, options);
      each_tensor([&](const Tensor& x) {
        const auto packed =
            codec->pack(x, ErrorBound(std::numeric_limits<double>::infinity()), entry(1));
        // zfp counts bits from the largest magnitude of a channel.
        CHECK(worst_share(x, packed->unpack()) <= (name == "zfp" ? 0.5 : 1.02 / 15));
      });
    }
}

TEST_CASE("policies keep each channel by its own size, and few rows raw") {
  FixedPolicyOptions keep;
  keep.min_elements = 0;
  std::vector<std::pair<std::string, Choice>> all;
  for (const int bits : {1, 2, 3, 4, 8}) {
    keep.bits = bits;
    for (const Rounding rounding : {Rounding::stochastic, Rounding::dithered}) {
      keep.rounding = rounding;
      all.push_back({"fixed", {.policy = keep}});
      all.push_back({"adaptive", {.policy = AdaptiveOptions{keep, static_cast<double>(bits)}}});
      ActnnOptions actnn;
      actnn.mixed = true;
      actnn.keep = keep;
      actnn.average = bits;
      all.push_back({"actnn", {.policy = actnn}});
      all.push_back({"entropy", {.policy = keep, .entropy = true}});
    }
  }
  AcgcOptions acgc;
  acgc.rounding = Rounding::nearest;
  acgc.keep.min_elements = 0;
  all.push_back({"acgc", {.policy = acgc}});
  all.push_back({"budget", {.policy = BudgetPolicyOptions{keep}}});
  Choice offload{.policy = keep};
  offload.offload = OffloadOptions{.directory = std::filesystem::temp_directory_path().string()};
  all.push_back({"offload", offload});
  for (const auto& each : all) {
    const auto& name = each.first;
    const auto& options = each.second;
    CAPTURE(name);
    each_tensor([&](const Tensor& x) {
      const auto policy = make_policy(options, kCpu, 0);
      if (auto* budget = dynamic_cast<BudgetPolicy*>(policy.get()); budget != nullptr) {
        BudgetPlan plan;
        plan.mode = BudgetPlan::mixed;
        budget->adopt(plan);
      }
      // The first step, and one with what was learned in the first.
      for (int n = 0; n < 2; ++n) {
        const auto packed = step(*policy, {x});
        const bool is_packed = packed.contains(0);
        if (name != "offload") CHECK(is_packed == (x.numel() / kChannels >= 8));
        if (is_packed) CHECK(worst_share(x, packed.at(0)->unpack()) <= 1.02);
      }
    });
  }
}

TEST_CASE("a tensor whose codes would not pay takes no more memory than raw") {
  FixedPolicyOptions keep;
  keep.min_elements = 0;
  for (const int bits : {1, 2, 4, 8, 16}) {
    keep.bits = bits;
    FixedPolicy policy(keep);
    for (int64_t rows = 1; rows <= 70; ++rows)
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Tensor x = Tensor::empty({rows, kChannels}, dtype, kMeta);
        if (policy.decide({}, x).what != Decision::pack) continue;
        CAPTURE(bits);
        CAPTURE(rows);
        CHECK(policy.codec().packed_bytes(x.shape()) <=
              x.nbytes() + (bits == 16 ? 4 * kChannels : 0));
      }
  }
}
