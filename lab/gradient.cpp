// A study of the bias and the variance that each way to keep activations adds to the gradient,
// compared with the variance from the choice of the minibatch.
#include <cstdio>

#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "compress/policies/policy_kind.h"
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
  bool packed_blocks = false;
};
constexpr Scheme kSchemes[] = {
    {"every tensor packed, masks", false, "masks"},
    {"recipes, masks", true, "masks"},
    {"recipes, signs in codes", true, "codes"},
    {"the same with checkpoints", true, "codes", true},
    {"every tensor packed, checkpoints, too", false, "masks", true, true}};

const char* rounding_text(std::optional<compress::Rounding> rounding) {
  if (rounding == compress::Rounding::dithered) return "dithered";
  return rounding == compress::Rounding::nearest ? "nearest" : "stochastic";
}

// `given`: the rounding before resolve().
CompressionConfig compression_of(const Scheme& scheme, const Config& config,
                                 std::optional<compress::Rounding> given) {
  CompressionConfig compression = config.compression;
  compression.policy = PolicyKind::gact;
  compression.gact_adaptive = false;
  compression.recipes = scheme.recipes;
  compression.pack_recomputed = scheme.packed_blocks;
  compression.signs =
      std::string_view(scheme.signs) == "masks" ? compress::Signs::masks : compress::Signs::codes;
  compression.rounding = given;
  resolve_rounding(compression, config.run.device);
  return compression;
}

}  // namespace

void study_gradient(const LabArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets, "compression");
  const std::optional<compress::Rounding> rounding = config.compression.rounding;
  resolve(config);
  const int64_t draws = arguments.repeats > 0 ? arguments.repeats : 64;
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  bench.begin(arguments.batches);
  const auto plain = static_cast<double>(bench.whole_memory().saved());
  GradientRows rows{
      "schemes",
      {{"", "bits", "activations", "L0's over these", "unbiased", "variance", "squared bias"}}};
  for (const Scheme& scheme : kSchemes) {
    if (scheme.checkpoints && family_of(config.model) == Family::graph) continue;  // has none
    for (const int64_t bits : arguments.bits) {
      CompressionConfig compression = compression_of(scheme, config, rounding);
      compression.bits = static_cast<double>(bits);
      const std::unique_ptr<SavePolicy> policy =
          make_policy(make_choice(compression), kCpu, static_cast<uint64_t>(config.run.seed));
      const auto found = bench.measure(*policy, draws, scheme.checkpoints ? kAllBlocks : 0);
      const bool unbiased = found.squared_bias.value < 1.96 * found.squared_bias.error;
      const int64_t bytes = found.memory.saved();
      const double less = plain / static_cast<double>(bytes);
      rows.last = found;
      rows.add({scheme.name, std::to_string(bits), readable_bytes(bytes),
                fmt::format("{:.2f}x", less), unbiased ? "yes" : "no"},
               {{"scheme", scheme.name},
                {"recipes", scheme.recipes},
                {"signs", scheme.signs},
                {"checkpoints", scheme.checkpoints},
                {"packed_blocks", scheme.packed_blocks},
                {"rounding", rounding_text(compression.rounding)},
                {"bits", bits},
                {"activation_bytes", bytes},
                {"L0_activations_over_these", less},
                {"unbiased", unbiased}},
               found, found.unit());
      std::fprintf(stderr, "%s, %d bits: done\n", scheme.name, static_cast<int>(bits));
    }
  }
  print_gradients(arguments, config, draws, rows);
}

}  // namespace frugal::lab
