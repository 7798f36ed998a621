// A study of the bias and the variance that compression adds to the gradient of each layer,
// compared with the variance from the choice of the minibatch in the same layer.
#include <algorithm>
#include <cstdio>
#include <map>

#include "apps/bench/gradient_bench.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
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

constexpr int64_t kFirst = 1000;  // the step of the first draw: after those that a policy learns in

// Where the parameters of a layer lie in a gradient of all parameters.
struct Layer {
  std::string name;
  size_t begin = 0, end = 0;
};

// A layer's parameters follow each other. The last one, of all parameters, has the name "all".
std::vector<Layer> layers_of(Module& model) {
  std::vector<Layer> layers;
  size_t at = 0;
  for (const auto& p : model.parameters()) {
    const std::string name = p.name.substr(0, std::min(p.name.rfind('.'), p.name.size()));
    if (layers.empty() || layers.back().name != name) layers.push_back({name, at, at});
    at += static_cast<size_t>(p.parameter->value().numel());
    layers.back().end = at;
  }
  layers.push_back({"all", 0, at});
  return layers;
}

class LayerNoise {
 public:
  LayerNoise(const std::vector<Layer>& layers, const std::vector<float>& exact) : layers_(layers) {
    for (const Layer& layer : layers) noise_.emplace_back(part(exact, layer));
  }
  void add(const std::vector<float>& draw) {
    for (size_t i = 0; i < layers_.size(); ++i) noise_[i].add(part(draw, layers_[i]));
  }
  const GradientNoise& of(size_t layer) const { return noise_[layer]; }

 private:
  static std::vector<float> part(const std::vector<float>& all, const Layer& layer) {
    return {all.begin() + static_cast<std::ptrdiff_t>(layer.begin),
            all.begin() + static_cast<std::ptrdiff_t>(layer.end)};
  }
  const std::vector<Layer>& layers_;
  std::vector<GradientNoise> noise_;
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
  const RngKey key = bench.rng();
  const std::vector<Layer> layers = layers_of(bench.model());
  const std::vector<float> zeros(layers.back().end, 0.0f);
  LayerNoise batches(layers, zeros);
  for (int64_t i = 0; i < arguments.batches; ++i)
    batches.add(bench.gradient(bench.next(), nullptr, 0, key));
  const double unit = batches.of(layers.size() - 1).variance().value;
  const Batch batch = bench.next();
  const std::vector<float> exact = bench.gradient(batch, nullptr, 0, key);

  Json results = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"layer", "bits", "share of the minibatch variance", "variance", "squared bias"}};
  for (const Config& packing : packings(arguments, config)) {
    const std::string bits = fmt::format("{}", packing.compression.bits);
    KeepsWhole policy(
        make_policy(make_choice(packing.compression), kCpu, static_cast<uint64_t>(config.run.seed)),
        arguments.whole);
    bench.let_learn(policy, packing, key);
    LayerNoise noise(layers, exact);
    for (int64_t draw = 0; draw < draws; ++draw)
      noise.add(bench.gradient(batch, &policy, static_cast<uint64_t>(kFirst + draw), key));
    for (size_t i = 0; i < layers.size(); ++i) {
      const double own = batches.of(i).variance().value;
      if (own == 0) continue;  // frozen
      const Estimate variance = noise.of(i).variance(), bias = noise.of(i).squared_bias();
      results.push_back({{"layer", layers[i].name},
                         {"bits", packing.compression.bits},
                         {"share", own / unit},
                         {"variance", estimate_json(variance, own)},
                         {"squared_bias", estimate_json(bias, own)}});
      rows.push_back({layers[i].name, bits, fmt::format("{:.3f}", own / unit),
                      estimate_text(variance, own), estimate_text(bias, own)});
    }
    std::fprintf(stderr, "%s bits: done, %s of activations\n", bits.c_str(),
                 readable_bytes(bench.memory().saved()).c_str());
  }
  print_gradients({arguments, config, draws, unit}, "layers", results, rows);
}

}  // namespace frugal::lab
