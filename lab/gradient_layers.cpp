// A study of the bias and the variance that compression adds to the gradient of each layer,
// compared with the variance from the choice of the minibatch in the same layer.
#include <algorithm>
#include <cstdio>

#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "compress/policies/policy_kind.h"
#include "compress/policies/wrapping_policy.h"
#include "lab/commands.h"
#include "lab/gradient_report.h"

namespace frugal::lab {

using namespace apps;

namespace {

// Keeps what some ops save as it is, so that a study sees what compressing it adds.
class KeepsWhole final : public compress::WrappingPolicy {
 public:
  KeepsWhole(std::shared_ptr<SavePolicy> inner, const std::vector<std::string>& ops)
      : WrappingPolicy(std::move(inner)), ops_(ops) {}
  bool decides_by_shape() const override { return ops_.empty() && inner().decides_by_shape(); }
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    const Decision decision = inner().decide(info, value);
    const bool whole = std::find(ops_.begin(), ops_.end(), info.op) != ops_.end();
    return whole && decision.what == Decision::pack ? Decision{Decision::raw} : decision;
  }

 private:
  const std::vector<std::string>& ops_;
};

// The configuration with each width of --bits, or as it is without --bits.
std::vector<Config> packings(const LabArguments& arguments, const Config& config) {
  std::vector<std::vector<std::string>> changes;
  for (const int64_t bits : arguments.bits)
    changes.push_back({fmt::format("compression.bits={}", bits)});
  if (changes.empty()) changes.emplace_back();
  std::vector<Config> configs;
  for (const std::vector<std::string>& change : changes) {
    std::vector<std::string> sets = arguments.sets;
    sets.insert(sets.end(), change.begin(), change.end());
    configs.push_back(load_config(arguments.config, sets, "compression"));
    configs.back().data.opened = config.data.opened;
    resolve(configs.back());
  }
  return configs;
}

}  // namespace

void study_layers(const LabArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets, "compression");
  resolve(config);
  if (const PolicyKind policy = config.compression.policy;
      policy != PolicyKind::gact && policy != PolicyKind::actnn)
    throw ConfigError("compression", fmt::format("--layers: expected a policy with --bits, gact or "
                                                 "actnn without memory_budget, got {}",
                                                 name_of(policy)));
  const int64_t draws = arguments.repeats > 0 ? arguments.repeats : 64;
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  bench.begin(arguments.batches);
  GradientRows rows{
      "layers", {{"layer", "bits", "share of the minibatch variance", "variance", "squared bias"}}};
  for (const Config& packing : packings(arguments, config)) {
    const std::string bits = fmt::format("{}", packing.compression.bits);
    KeepsWhole policy(
        make_policy(make_choice(packing.compression), kCpu, static_cast<uint64_t>(config.run.seed)),
        arguments.whole);
    bench.let_learn(policy, packing);
    const train::LayeredErrors found = bench.measure(policy, draws);
    rows.last = found;
    const auto add = [&](const std::string& name, const train::GradientErrors& layer) {
      const double unit = found.has_minibatches() ? layer.minibatch.value : layer.square;
      if (unit == 0) return;  // frozen
      const double share = unit / found.unit();
      rows.add({name, bits, fmt::format("{:.3f}", share)},
               {{"layer", name}, {"bits", packing.compression.bits}, {"share", share}}, layer,
               unit);
    };
    for (size_t i = 0; i < found.layers.size(); ++i) add(bench.layers().names[i], found.layers[i]);
    add("all", found);
    std::fprintf(stderr, "%s bits: done, %s of activations\n", bits.c_str(),
                 readable_bytes(found.memory.saved()).c_str());
  }
  print_gradients(arguments, config, draws, rows);
}

}  // namespace frugal::lab
