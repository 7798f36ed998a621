// The gradient under each policy whose widths come from what it measures: it has no bias, and the
// variance that was predicted.
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "compress/policies/acgc_policy.h"
#include "compress/policies/adaptive_policy.h"
#include "models/layers.h"
#include "ops/dense/elementwise.h"
#include "tests/integration/bias.h"
#include "tests/train/find_in.h"
#include "tests/train/gradient_of.h"
#include "tests/train/tiny_run.h"
#include "train/noise/gradient_noise.h"
#include "train/noise/sensitivity.h"
#include "train/planning/own_plan.h"

using namespace frugal;
using namespace frugal::train;
using compress::AdaptivePolicy;
using compress::BudgetPolicy;

namespace {

// conv, norm, relu, pool, conv, relu, linear: [N, 12, 12, 3] -> [N, 4].
class Convnet final : public Module {
 public:
  explicit Convnet(models::Init& init)
      : first_(register_module("conv1", models::conv_same(init, 3, 12, 3, 1, kInit))),
        norm_(register_module("norm", std::make_shared<models::BatchNorm2d>(init, 12))),
        second_(register_module("conv2", models::conv_same(init, 12, 16, 3, 1, kInit))),
        last_(register_module("fc", std::make_shared<models::Linear>(init, 16 * 36, 4))) {}
  Variable forward(Variable x, Context& context) override {
    Variable y = norm_->forward_relu(first_->forward(std::move(x), context), context);
    y = relu(second_->forward(max_pool2d(y, {}), context));
    return last_->forward(reshape(y, {y.size(0), -1}), context);
  }

 private:
  static constexpr auto kInit = models::ConvInit::pytorch;
  std::shared_ptr<models::Conv2d> first_;
  std::shared_ptr<models::BatchNorm2d> norm_;
  std::shared_ptr<models::Conv2d> second_;
  std::shared_ptr<models::Linear> last_;
};

constexpr TinyImages kPictures{.side = 12, .batch = 128, .samples = 128};

RunRecipe small_run(const std::string& network) {
  const std::vector<int64_t> hidden = {48, 32};
  if (network == "mlp") return tiny_run(network, {{"hidden", hidden}, {"dropout", 0.3}}, kPictures);
  if (network == "gcn")
    return tiny_run(network,
                    {{"layers", 3}, {"width", 16}, {"batch_norm", true}, {"residual", true}},
                    TinyGraph{.nodes = 300, .edges = 900, .classes = 4, .fanouts = {}});
  if (network == "resnet20")
    return tiny_run(network, {{"shortcut", "A"}}, TinyImages{.batch = 16, .samples = 16});
  RunRecipe convnet = tiny_run("mlp", {}, kPictures);
  convnet.make_model = [](Device device) {
    models::Init init;
    init.device = device;
    return std::make_shared<Convnet>(init);
  };
  return convnet;
}

// A network, and a batch of it.
struct Noisy {
  std::string name;
  std::unique_ptr<Run> run;
  Batch batch;
  PassSettings pass{3, {5, 0}, 0, 0};

  explicit Noisy(const std::string& network)
      : name(network), run(std::make_unique<Run>(small_run(network))), batch(run->next_batch()) {}

  Module& model() { return run->model(); }
  const Task& task() { return run->task(); }
  std::vector<float> gradient(SavePolicy* policy, uint64_t number) {
    return gradient_of(task(), model(), batch, policy, number, pass.rng);
  }
  int64_t samples() const { return batch.input.size(0); }
  // Sensitivities of all that was packed, the means of some.
  void measure(AdaptivePolicy& policy, const Batch& by) {
    constexpr uint64_t kMeans = 6;
    std::vector<uint64_t> seqs;
    for (const auto& item : policy.items())
      if (item.bits != AdaptivePolicy::kRaw) seqs.push_back(item.seq);
    REQUIRE(!seqs.empty());
    std::vector<double> sums(seqs.size());
    for (pass.number = 0; pass.number < kMeans; ++pass.number) {
      const auto c = measure_sensitivity(task(), model(), policy, by, samples(), pass, seqs);
      REQUIRE(c);
      for (size_t i = 0; i < seqs.size(); ++i) sums[i] += (*c)[i] / kMeans;
    }
    for (size_t i = 0; i < seqs.size(); ++i) policy.measured(seqs[i], sums[i], 0);
  }
  double drawn_variance(SavePolicy& policy) {
    GradientNoise noise(gradient(nullptr, 0));
    for (uint64_t draw = 1; draw <= 32; ++draw) noise.add(gradient(&policy, draw));
    return noise.variance().value;
  }
  // The gradient's squared bias over its variance, from bias.h.
  double bias(SavePolicy& policy) {
    const int draws = name == "gcn" ? 512 : 128;  // fewer elements, more draws
    const auto wide = [](const std::vector<float>& g) {
      return std::vector<double>(g.begin(), g.end());
    };
    Bias found(wide(gradient(nullptr, 0)));
    for (int draw = 1; draw <= draws; ++draw)
      found.add(wide(gradient(&policy, static_cast<uint64_t>(draw))));
    return (found.chi_square() - 1) / draws;
  }
};

std::vector<Noisy> small_networks() {
  std::vector<Noisy> all;
  for (const char* name : {"mlp", "gcn", "convnet"}) all.emplace_back(name);
  return all;
}

std::unique_ptr<AdaptivePolicy> adaptive(double average,
                                         compress::Signs signs = compress::Signs::codes) {
  compress::AdaptiveOptions options;
  options.average = average;
  options.keep.signs = signs;
  options.keep.min_elements = 256;
  return std::make_unique<AdaptivePolicy>(options);
}

// Decides as another policy, whose codecs then pack every tensor a fifth too large.
class TooLarge final : public SavePolicy {
 public:
  explicit TooLarge(SavePolicy& inner) : inner_(inner) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = inner_.decide(info, value);
    if (decision.codec != nullptr)
      decision.codec = &codecs_.try_emplace(decision.codec, *decision.codec).first->second;
    return decision;
  }
  int64_t slice_bytes() const override { return inner_.slice_bytes(); }

 private:
  class Scaled final : public Codec {
   public:
    explicit Scaled(const Codec& inner) : inner_(inner) {}
    std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
      return inner_.pack(ops::affine(tensor, 1.2, 0), info);
    }

   private:
    const Codec& inner_;
  };
  SavePolicy& inner_;
  std::map<const Codec*, Scaled> codecs_;
};

// Nothing is found below it; batch norm over 300 nodes, whose gradient is quadratic in what it
// saves, has a quarter.
constexpr double kNoBias = 0.0016;

// A policy within a budget that planned with sensitivities.
struct Budgeted {
  std::shared_ptr<Planner> planner;
  std::unique_ptr<SavePolicy> policy;
  BudgetPolicy& budget;
  Budgeted(Noisy& of, const compress::Choice& choice)
      : planner(plan(of, choice)),
        policy(compress::make_policy(choice, kCpu, 1)),
        budget(*find_in<BudgetPolicy>(*policy)) {
    planner->adopt(budget);
    of.gradient(policy.get(), 0);
    of.measure(budget.adaptive(), of.batch);
    planner->plan_again(budget);
    of.gradient(policy.get(), 0);
    REQUIRE(budget.plan()->mode == compress::BudgetPlan::mixed);
  }
  static std::shared_ptr<Planner> plan(Noisy& of, const compress::Choice& choice) {
    TrainerOptions options = small_run(of.name).options;
    options.compression.choice = choice;
    return plan_of_own(options, of.model(), of.run->optimizer(), of.run->batches());
  }
};

}  // namespace

TEST_CASE("sensitivities predict the variance of an mlp, a graph network and a convnet") {
  for (Noisy& p : small_networks()) {
    CAPTURE(p.name);
    for (const double average : {2.0, 4.0}) {
      const auto policy = adaptive(average);
      p.gradient(policy.get(), 0);
      p.measure(*policy, p.batch);
      for (const bool own : {false, true}) {  // one width, and then its own
        if (own) policy->allocate();
        p.gradient(policy.get(), 0);
        check_within(policy->predicted_variance(), p.drawn_variance(*policy));
      }
      // Half of the batch: groups of 64 rows still lie as those of all.
      if (!p.task().is_divisible(p.batch)) continue;
      p.measure(*policy, p.task().part(p.batch, 0, p.samples() / 2));
      check_within(policy->predicted_variance(), p.drawn_variance(*policy));
    }
  }
}

TEST_CASE("a plan within a budget has the variance that it predicts") {
  for (const char* name : {"mlp", "gcn", "resnet20"}) {
    Noisy p(name);
    CAPTURE(p.name);
    Budgeted b(p, compress::budget("1/8 activations", {.min_elements = 256}));
    p.measure(b.budget.adaptive(), p.batch);
    const double drawn = p.drawn_variance(*b.policy);
    check_within(BudgetPolicy::variance(b.budget.items(), *b.budget.plan()), drawn);
    // The planner predicted it from sensitivities at other widths.
    check_within(b.planner->planned().variance, drawn);
  }
}

TEST_CASE("gradients have no bias: widths that adapt") {
  for (Noisy& p : small_networks()) {
    CAPTURE(p.name);
    for (const compress::Signs signs : {compress::Signs::masks, compress::Signs::codes}) {
      const auto policy = adaptive(2, signs);
      p.gradient(policy.get(), 0);
      p.measure(*policy, p.batch);
      policy->allocate();
      CHECK(p.bias(*policy) < kNoBias);
    }
  }
  // Which this would find.
  compress::FixedPolicyOptions masks;
  masks.bits = 4;
  masks.min_elements = 256;
  masks.signs = compress::Signs::masks;
  compress::FixedPolicy policy(masks);
  TooLarge biased(policy);
  CHECK(Noisy("convnet").bias(biased) > 5 * kNoBias);
}

TEST_CASE("gradients have no bias: within a budget") {
  for (const char* name : {"mlp", "gcn"}) {
    Noisy p(name);
    CAPTURE(p.name);
    Budgeted b(p, compress::budget("1/12 activations", {.min_elements = 256}));
    CHECK(p.bias(*b.policy) < kNoBias);
  }
}

TEST_CASE("gradients have no bias: error bounds, rounded stochastically") {
  for (Noisy& p : small_networks())
    for (const std::string codec : {"fixed", "fixed_z", "entropy", "predicted"}) {
      if (p.name == "convnet" && codec != "fixed_z" && codec != "predicted") continue;  // slow
      CAPTURE(p.name);
      CAPTURE(codec);
      compress::AcgcOptions options;
      options.codec = codec;
      options.rounding = compress::Rounding::stochastic;
      options.count = compress::acgc::Count::expected;
      options.interval = 1000;  // the first step alone is looked at
      options.keep.min_elements = 256;
      options.keep.recipes = false;
      compress::AcgcPolicy policy(options);
      p.gradient(&policy, 0);
      CHECK(p.bias(policy) < kNoBias);
      CHECK(policy.average_bits() < 5);
    }
}
