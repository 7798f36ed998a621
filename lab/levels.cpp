// Ways to round saved activations at equal bytes: what each loses on the tensors of a network that
// learns, and what it adds to the variance of their gradients.
#include <cmath>
#include <cstdio>

#include "apps/bench/gradient_bench.h"
#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/config/resolve.h"
#include "apps/gradient_noise.h"
#include "compress/policies/fixed_policy.h"
#include "compress/quantize/identity.h"
#include "compress/quantize/rounding_schemes.h"

namespace frugal::apps {
namespace {

using compress::RoundingScheme;

struct Result {
  RoundingScheme scheme;
  double bits = 0;       // sum over tensors of elements and bits
  double log_ratio = 0;  // sum over tensors of log of the squared error over the first scheme's
  Estimate variance = {}, bias = {};  // of the gradient
  bool has_gradient = false;
};

// What a fixed policy packs, by another codec.
class OtherCodec final : public SavePolicy {
 public:
  OtherCodec(const CompressionConfig& config, const Codec& codec)
      : keep_([&] {
          compress::FixedPolicyOptions options;
          options.level = "L1";
          options.recipes = config.recipes;
          options.chain = config.chain;
          options.min_elements = config.min_elements;
          options.slice_bytes = 0;
          return options;
        }()),
        codec_(codec) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = keep_.decide(info, value);
    if (decision.codec != nullptr) decision.codec = &codec_;
    return decision;
  }
  int64_t slice_bytes() const override { return 0; }

 private:
  compress::FixedPolicy keep_;
  const Codec& codec_;
};

// Rounds what it is given in every way, and keeps it as it is.
class Measure final : public Codec {
 public:
  explicit Measure(std::vector<Result>& results) : results_(results) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    elements += tensor.numel(), ++tensors;
    double first = 0;
    int bits = 0;
    for (Result& result : results_) {
      const Tensor y = compress::round_trip(result.scheme, tensor, 1, info);
      double error = 0;
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        const double d = static_cast<double>(y.data<float>()[i] - tensor.data<float>()[i]);
        error += d * d;
      }
      // The first scheme of each width is what others are compared with.
      if (result.scheme.bits != std::exchange(bits, result.scheme.bits)) first = error;
      result.log_ratio += std::log(std::max(error, 1e-30) / std::max(first, 1e-30));
      result.bits += static_cast<double>(tensor.numel()) *
                     result.scheme.bits_per_element(info.sign != nullptr);
    }
    return compress::Identity().pack(tensor, info);
  }
  mutable int64_t elements = 0, tensors = 0;

 private:
  std::vector<Result>& results_;
};

// Relative variance of uniform rounding at a width that need not be whole.
double relative(double bits) { return 1 / std::pow(std::exp2(bits) - 1, 2); }

// A ratio of variances as it would be had both the first one's bytes.
double at_equal_bytes(double ratio, const Result& result, const Result& first, double elements) {
  const double more = (result.bits - first.bits) / elements, bits = first.scheme.bits;
  return ratio * relative(bits) / relative(bits + more);
}

// Those whose gradients are worth their time.
bool is_candidate(const RoundingScheme& scheme) {
  if (scheme.axis == compress::GroupAxis::row) return false;
  if (scheme.kind == RoundingScheme::uniform) return scheme.group == 256 || scheme.group == 128;
  return scheme.kind != RoundingScheme::outliers || scheme.parameter == 2;
}

}  // namespace

void bench_levels(const BenchArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets, "compression");
  resolve(config);
  const int64_t draws = arguments.repeats > 0 ? arguments.repeats : 16;
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  const RngKey key = bench.rng();
  const double unit = bench.minibatch_variance(arguments.batches, key);
  const Batch batch = bench.next();

  std::vector<Result> results;
  for (const int64_t bits : arguments.bits)
    for (const RoundingScheme& scheme : compress::rounding_schemes(static_cast<int>(bits)))
      results.push_back({scheme});
  const Measure measure(results);
  OtherCodec measured(config.compression, measure);
  bench.gradient(batch, &measured, 0, key);
  FRUGAL_CHECK(measure.elements > 0, "[bench] expected a model with activations to pack, got none");

  const std::vector<float> exact = bench.gradient(batch, nullptr, 0, key);
  for (Result& result : results) {
    if (!is_candidate(result.scheme)) continue;
    const compress::RoundTripCodec codec(result.scheme, static_cast<uint64_t>(config.run.seed));
    OtherCodec policy(config.compression, codec);
    GradientNoise noise(exact);
    for (int64_t draw = 0; draw < draws; ++draw)
      noise.add(bench.gradient(batch, &policy, static_cast<uint64_t>(draw), key));
    result.variance = noise.variance();
    result.bias = noise.squared_bias();
    result.has_gradient = true;
    std::fprintf(stderr, "%s, %d bits: done\n", result.scheme.name().c_str(), result.scheme.bits);
  }

  const auto elements = static_cast<double>(measure.elements);
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"", "bits", "bits of an element", "squared error", "at equal bytes", "gradient's variance",
       "over the first", "at equal bytes", "squared bias"}};
  const Result* first = nullptr;
  for (const Result& result : results) {
    if (first == nullptr || first->scheme.bits != result.scheme.bits) first = &result;
    const double error =
        std::exp((result.log_ratio - first->log_ratio) / static_cast<double>(measure.tensors));
    const double error_at = at_equal_bytes(error, result, *first, elements);
    Json row = {{"scheme", result.scheme.name()},
                {"bits", result.scheme.bits},
                {"bits_per_element", result.bits / elements},
                {"unbiased", result.scheme.unbiased()},
                {"squared_error", error},
                {"squared_error_at_equal_bytes", error_at}};
    std::vector<std::string> line = {result.scheme.name(), std::to_string(result.scheme.bits),
                                     fmt::format("{:.3f}", result.bits / elements),
                                     fmt::format("{:.3f}", error), fmt::format("{:.3f}", error_at)};
    if (result.has_gradient) {
      const double ratio = result.variance.value / first->variance.value;
      const double ratio_at = at_equal_bytes(ratio, result, *first, elements);
      row["gradient_variance"] = result.variance.value / unit;
      row["gradient_variance_error"] = result.variance.error / unit;
      row["gradient_variance_at_equal_bytes"] = ratio_at;
      row["squared_bias"] = result.bias.value / unit;
      row["squared_bias_error"] = result.bias.error / unit;
      for (const std::string& text : {fmt::format("{:.5f} +- {:.5f}", result.variance.value / unit,
                                                  1.96 * result.variance.error / unit),
                                      fmt::format("{:.3f}", ratio), fmt::format("{:.3f}", ratio_at),
                                      fmt::format("{:.5f} +- {:.5f}", result.bias.value / unit,
                                                  1.96 * result.bias.error / unit)})
        line.push_back(text);
    } else {
      line.insert(line.end(), {"-", "-", "-", "-"});
    }
    rows.push_back(line);
    list.push_back(row);
  }
  if (arguments.json) {
    const Json document = {{"model", config.model.name},
                           {"batch_size", config.data.batch_size},
                           {"train_steps", arguments.train_steps},
                           {"draws", draws},
                           {"minibatch_variance", unit},
                           {"elements", measure.elements},
                           {"schemes", list}};
    std::printf("%s\n", document.dump(2).c_str());
    return;
  }
  std::printf(
      "%s, batch %lld, after %lld steps, %lld elements in %lld tensors; squared errors over the "
      "first scheme's, geometric mean over tensors; gradients over the variance between "
      "minibatches (of %lld), %lld draws, intervals of 95 %%\n%s",
      config.model.name.c_str(), static_cast<long long>(config.data.batch_size),
      static_cast<long long>(arguments.train_steps), static_cast<long long>(measure.elements),
      static_cast<long long>(measure.tensors), static_cast<long long>(arguments.batches),
      static_cast<long long>(draws), table(rows).c_str());
}

}  // namespace frugal::apps
