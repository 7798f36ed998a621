// A study of the bias and the variance that each way to keep activations adds to the gradient,
// compared with the variance from the choice of the minibatch.
#include <cstdio>

#include "apps/bench/gradient_bench.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "lab/commands.h"
#include "lab/gradient_report.h"

namespace frugal::lab {

using namespace apps;

namespace {

struct Scheme {
  const char* name;
  bool recipes;
  const char* signs;
  bool checkpoints = false;
};
constexpr Scheme kSchemes[] = {{"every tensor packed, masks", false, "masks"},
                               {"recipes, masks", true, "masks"},
                               {"recipes, signs in codes", true, "codes"},
                               {"the same with checkpoints", true, "codes", true}};

// `given`: the rounding before resolve().
CompressionConfig compression_of(const Scheme& scheme, const Config& config,
                                 const std::string& given) {
  CompressionConfig compression = config.compression;
  compression.policy = PolicyKind::gact;
  compression.gact_adaptive = false;
  compression.recipes = scheme.recipes;
  compression.signs = scheme.signs;
  compression.rounding = given;
  resolve_rounding(compression, config.run.device);
  return compression;
}

}  // namespace

void study_gradient(const LabArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets, "compression");
  const std::string rounding = config.compression.rounding;
  resolve(config);
  const int64_t draws = arguments.repeats > 0 ? arguments.repeats : 64;
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  const RngKey key = bench.rng();
  const double unit = bench.minibatch_variance(arguments.batches, key);
  const Batch batch = bench.next();
  const std::vector<float> exact = bench.gradient(batch, nullptr, 0, key);
  const auto plain = static_cast<double>(bench.memory().saved());

  Json results = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"", "bits", "activations", "L0's over these", "variance", "squared bias", "unbiased"}};
  for (const Scheme& scheme : kSchemes) {
    if (scheme.checkpoints && family_of(config.model) == Family::graph) continue;  // has none
    const int64_t blocks = scheme.checkpoints ? kAllBlocks : 0;
    for (const int64_t bits : arguments.bits) {
      CompressionConfig compression = compression_of(scheme, config, rounding);
      compression.bits = static_cast<double>(bits);
      const std::unique_ptr<SavePolicy> policy =
          make_policy(make_choice(compression), kCpu, static_cast<uint64_t>(config.run.seed));
      GradientNoise noise(exact);
      for (int64_t draw = 0; draw < draws; ++draw)
        noise.add(bench.gradient(batch, policy.get(), static_cast<uint64_t>(draw), key, blocks));
      const Estimate variance = noise.variance(), bias = noise.squared_bias();
      const bool unbiased = bias.value < 1.96 * bias.error;
      const auto bytes = static_cast<double>(bench.memory().saved());
      results.push_back({{"scheme", scheme.name},
                         {"recipes", scheme.recipes},
                         {"signs", scheme.signs},
                         {"checkpoints", scheme.checkpoints},
                         {"rounding", compression.rounding},
                         {"bits", bits},
                         {"activation_bytes", bench.memory().saved()},
                         {"L0_activations_over_these", plain / bytes},
                         {"variance", estimate_json(variance, unit)},
                         {"squared_bias", estimate_json(bias, unit)},
                         {"unbiased", unbiased}});
      rows.push_back({scheme.name, std::to_string(bits), readable_bytes(bench.memory().saved()),
                      fmt::format("{:.2f}x", plain / bytes), estimate_text(variance, unit),
                      estimate_text(bias, unit), unbiased ? "yes" : "no"});
      std::fprintf(stderr, "%s, %d bits: done\n", scheme.name, static_cast<int>(bits));
    }
  }
  print_gradients({arguments, config, draws, unit}, "schemes", results, rows);
}

}  // namespace frugal::lab
