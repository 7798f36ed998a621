// The gradient's variance under each policy at equal bits, beside the one that the choice of the
// minibatch has anyway: ActNN's table, from groups that mix channels to bits by sensitivity.
// Ref: Chen et al. 2021 (ActNN), section 6.1, "gradient variance".
#include <cstdio>

#include "apps/commands.h"
#include "apps/gradient_bench.h"
#include "apps/gradient_noise.h"
#include "apps/make_policy.h"
#include "apps/makers.h"
#include "apps/progress.h"
#include "apps/report.h"
#include "apps/sensitivity.h"

namespace frugal::apps {
namespace {

// What a row changes in the configuration's compression, at so many bits.
using Change = void (*)(CompressionConfig& c, int64_t bits);

struct Row {
  const char* name;
  Change change;
  compress::GroupAxis axis = compress::GroupAxis::column;
};

void fixed(CompressionConfig& c, int64_t bits) {
  c.level = "L1";
  c.bits = bits;
}
void gact(CompressionConfig& c, int64_t bits) {
  c.level = "L2";
  c.average_bits = static_cast<double>(bits);
}

// As published: every tensor packed, signs in masks. A range of the largest group that codes have
// stands for one of the whole tensor; like the published groups it mixes channels, while elements
// lie as [N, H, W, C].
constexpr Row kRows[] = {
    {"a range per 65536 neighbours",
     [](CompressionConfig& c, int64_t bits) {
       fixed(c, bits);
       c.group_size = 65536;
     },
     compress::GroupAxis::row},
    {"groups across channels", fixed, compress::GroupAxis::row},
    {"groups in a channel", fixed},
    {"gact", gact},
};

// Counts what another policy packs, and may cut its groups along the other axis.
class CountingPolicy final : public compress::WrappingPolicy {
 public:
  CountingPolicy(std::shared_ptr<SavePolicy> inner, const Row& row, const CompressionConfig& c,
                 uint64_t seed)
      : WrappingPolicy(std::move(inner)) {
    if (row.axis == compress::GroupAxis::column) return;
    compress::QuantizeOptions options;
    options.bits = static_cast<int>(c.bits);
    options.group = c.group_size;
    options.axis = row.axis;
    options.seed = seed;
    codec_.emplace(options);
  }
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    if (info.seq == 0) elements_ = 0;
    Decision decision = inner().decide(info, value);
    if (decision.what != Decision::pack) return decision;
    elements_ += value.numel();
    if (codec_) decision.codec = &*codec_;
    return decision;
  }
  int64_t elements() const { return elements_; }  // of the last step

 private:
  std::optional<compress::Quantizer> codec_;
  int64_t elements_ = 0;
};

// What it decides by, from steps like those of training.
void let_learn(GradientBench& bench, SavePolicy& policy, const Config& config, RngKey key) {
  constexpr int64_t kSteps = 16;
  Batch batch;
  for (int64_t i = 0; i < kSteps; ++i)
    bench.gradient(batch = bench.next(), &policy, static_cast<uint64_t>(i), key);
  auto* adaptive = find_in<compress::AdaptivePolicy>(policy);
  if (adaptive == nullptr) return;
  SensitivityOptions options;
  options.batch = batch.input.size(0);
  options.samples = config.compression.adapt_samples;
  Adaptation(bench.model(), *adaptive, options)
      .refresh(batch, 1, {0, key, config.train.label_smoothing, config.train.checkpointing});
}

Json json(const Estimate& e, double unit) {
  return {{"value", e.value / unit}, {"standard_error", e.error / unit}};
}
std::string text(const Estimate& e, double unit) {
  return fmt::format("{:.4f} +- {:.4f}", e.value / unit, 1.96 * e.error / unit);
}

}  // namespace

void bench_policies(const BenchArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  config.compression.recipes = false;
  config.compression.signs = "masks";
  config.compression.offload.clear();
  resolve(config);
  const int64_t draws = arguments.repeats > 0 ? arguments.repeats : 32;
  const auto seed = static_cast<uint64_t>(config.run.seed);
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  const RngKey key = bench.rng();
  const double unit = bench.minibatch_variance(arguments.batches, key);
  const Batch batch = bench.next();
  const std::vector<float> exact = bench.gradient(batch, nullptr, 0, key);
  const auto plain = static_cast<double>(bench.memory().saved());

  Json results = Json::array();
  std::vector<std::vector<std::string>> rows = {{"", "bits", "bits per element", "activations",
                                                 "L0's over these", "variance", "squared bias"}};
  for (const int64_t bits : arguments.bits)
    for (const Row& row : kRows) {
      Config changed = config;
      row.change(changed.compression, bits);
      resolve(changed);
      CountingPolicy policy(make_policy(changed.compression, seed), row, changed.compression, seed);
      let_learn(bench, policy, changed, key);
      GradientNoise noise(exact);
      for (int64_t draw = 0; draw < draws; ++draw)
        noise.add(bench.gradient(batch, &policy, static_cast<uint64_t>(1000 + draw), key));
      const Estimate variance = noise.variance(), bias = noise.squared_bias();
      const StepMemory& memory = bench.memory();
      const double each = 8 * static_cast<double>(memory.packed) /
                          static_cast<double>(std::max<int64_t>(policy.elements(), 1));
      const double over = plain / static_cast<double>(memory.saved());
      results.push_back({{"policy", row.name},
                         {"bits", bits},
                         {"bits_per_element", each},
                         {"activation_bytes", memory.saved()},
                         {"L0_activations_over_these", over},
                         {"variance", json(variance, unit)},
                         {"squared_bias", json(bias, unit)}});
      rows.push_back({row.name, std::to_string(bits), fmt::format("{:.2f}", each),
                      readable_bytes(memory.saved()), fmt::format("{:.2f}x", over),
                      text(variance, unit), text(bias, unit)});
      std::fprintf(stderr, "%s, %d bits: done\n", row.name, static_cast<int>(bits));
    }
  if (arguments.json) {
    const Json document = {{"model", config.model.name},
                           {"batch_size", config.data.batch_size},
                           {"train_steps", arguments.train_steps},
                           {"draws", draws},
                           {"batches", arguments.batches},
                           {"minibatch_variance", unit},
                           {"policies", results}};
    std::printf("%s\n", document.dump(2).c_str());
    return;
  }
  std::printf(
      "%s, batch %lld, after %lld steps; %lld draws; every tensor packed; over the variance of the "
      "gradient between minibatches (of %lld); intervals of 95 %%\n%s",
      config.model.name.c_str(), static_cast<long long>(config.data.batch_size),
      static_cast<long long>(arguments.train_steps), static_cast<long long>(draws),
      static_cast<long long>(arguments.batches), table(rows).c_str());
}

}  // namespace frugal::apps
