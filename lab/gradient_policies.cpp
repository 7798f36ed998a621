// The gradient's variance under each policy at equal bits, beside the one that the choice of the
// minibatch has anyway: ActNN's table, from groups that mix channels to bits by sensitivity.
// AC-GC has a bound instead of bits.
// Ref: Chen et al. 2021 (ActNN), section 6.1, "gradient variance".
#include <cstdio>

#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/policy_kind.h"
#include "compress/policies/wrapping_policy.h"
#include "lab/commands.h"
#include "lab/gradient_report.h"
#include "train/planning/planner.h"

namespace frugal::lab {

using namespace apps;

namespace {

using PolicyPtr = std::unique_ptr<SavePolicy>;

struct Setting {
  const Config& config;
  int64_t bits = 0;
  int64_t bytes = 0;  // bytes that groups in a channel keep at these bits
  uint64_t seed() const { return static_cast<uint64_t>(config.run.seed); }
};

// Options as published: every tensor is packed, and signs are in masks. Rounding is that of the
// configuration, as in all rows except acgc's.
compress::FixedPolicyOptions packed(const Setting& s) {
  CompressionConfig gact = s.config.compression;
  gact.policy = PolicyKind::gact;
  compress::FixedPolicyOptions options = make_choice(gact).keep();
  options.seed = s.seed();
  options.bits = static_cast<int>(s.bits);
  options.recipes = false;
  options.axis = compress::GroupAxis::column;
  options.signs = compress::Signs::masks;
  return options;
}
PolicyPtr fixed(const Setting& s) { return std::make_unique<compress::FixedPolicy>(packed(s)); }
PolicyPtr gact(const Setting& s, bool recipes) {
  compress::AdaptiveOptions options;
  options.keep = packed(s);
  options.keep.recipes = recipes;
  if (recipes) options.keep.signs = compress::Signs::codes;
  options.average = static_cast<double>(s.bits);
  return std::make_unique<compress::AdaptivePolicy>(options);
}
PolicyPtr actnn(const Setting& s, bool by_tensor) {
  compress::ActnnOptions options;
  options.keep = packed(s);
  options.average = static_cast<double>(s.bits);
  options.mixed = true;
  options.interval = 50;
  options.by_tensor = by_tensor;
  return std::make_unique<compress::ActnnPolicy>(options);
}
PolicyPtr acgc(const Setting& s) {
  compress::AcgcOptions options;
  options.keep = packed(s);
  options.rounding = compress::Rounding::nearest;
  return std::make_unique<compress::AcgcPolicy>(options);
}
Config budgeted(const Setting& s) {
  Config config = s.config;
  config.compression.policy = PolicyKind::budget;
  config.compression.memory_budget = fmt::format("{} B activations", s.bytes);
  config.compression.recipes = true;
  config.compression.signs = compress::Signs::codes;
  resolve(config);
  return config;
}
PolicyPtr budget(const Setting& s) {
  return make_policy(make_choice(budgeted(s).compression), kCpu, s.seed());
}

struct PolicyRow {
  const char* name;
  PolicyPtr (*make)(const Setting&);
  // If not 0, a group has this many neighbours in memory. Elements lie as [N, H, W, C], so such
  // groups mix channels.
  int64_t neighbours = 0;
};
// 65536 is the largest group that codes have; it stands for a range of the whole tensor.
constexpr PolicyRow kRows[] = {
    {"a range per 65536 neighbours", fixed, 65536},
    {"a range per 256 neighbours", fixed, 256},
    {"groups in a channel", fixed},
    {"actnn, by sample", [](const Setting& s) { return actnn(s, false); }},
    {"actnn, by sample and tensor", [](const Setting& s) { return actnn(s, true); }},
    {compress::name_of(PolicyKind::gact).data(), [](const Setting& s) { return gact(s, false); }},
    {"acgc, e = 1", acgc},
    {"gact on recipes", [](const Setting& s) { return gact(s, true); }},
    {"budget, the bytes of groups in a channel", budget},
};

// Counts the tensors that another policy packs, and may form groups along the other axis.
class CountingPolicy final : public compress::WrappingPolicy {
 public:
  CountingPolicy(PolicyPtr inner, const PolicyRow& row, const Setting& setting)
      : WrappingPolicy(std::move(inner)) {
    if (row.neighbours == 0) return;
    compress::QuantizeOptions options;
    options.bits = static_cast<int>(setting.bits);
    options.group = row.neighbours;
    options.axis = compress::GroupAxis::row;
    options.rounding = packed(setting).rounding_here();
    options.seed = setting.seed();
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
  int64_t elements() const { return elements_; }  // packed elements of the last step

 private:
  std::optional<compress::Quantizer> codec_;
  int64_t elements_ = 0;
};

}  // namespace

void study_policies(const LabArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets, "compression");
  config.compression.offload.clear();
  resolve(config);
  const int64_t draws = arguments.repeats > 0 ? arguments.repeats : 32;
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  bench.begin(arguments.batches);
  const auto plain = static_cast<double>(bench.whole_memory().saved());
  GradientRows rows{"policies",
                    {{"", "bits", "bits per element", "activations", "L0's over these", "variance",
                      "squared bias"}}};
  for (const int64_t bits : arguments.bits) {
    Setting setting{config, bits};
    for (const PolicyRow& row : kRows) {
      CountingPolicy policy(row.make(setting), row, setting);
      const bool planned = PolicyParts(policy).budget != nullptr;
      bench.let_learn(policy, planned ? budgeted(setting) : config);
      const train::LayeredErrors found = bench.measure(policy, draws);
      const StepMemory& memory = found.memory;
      if (row.make == fixed && row.neighbours == 0) setting.bytes = memory.saved();
      const double each = 8 * static_cast<double>(memory.packed) /
                          static_cast<double>(std::max<int64_t>(policy.elements(), 1));
      const double over = plain / static_cast<double>(memory.saved());
      rows.last = found;
      rows.add({row.name, std::to_string(bits), fmt::format("{:.2f}", each),
                readable_bytes(memory.saved()), fmt::format("{:.2f}x", over)},
               {{"policy", row.name},
                {"bits", bits},
                {"bits_per_element", each},
                {"activation_bytes", memory.saved()},
                {"L0_activations_over_these", over}},
               found, found.unit());
      std::fprintf(stderr, "%s, %d bits: done\n", row.name, static_cast<int>(bits));
    }
  }
  print_gradients(arguments, config, draws, rows);
}

}  // namespace frugal::lab
