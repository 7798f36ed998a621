// What AC-GC promises of whole networks: the gradient's error stays within e^2 of the gradient, for
// each parameter and on every step, errors of one op reaching the others.
#include "compress/policies/acgc_policy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "apps/bench/gradient_bench.h"
#include "apps/config/resolve.h"

using namespace frugal;
using namespace frugal::apps;
using compress::AcgcOptions;
using compress::AcgcPolicy;
using compress::acgc::Count;
using compress::acgc::Rule;

namespace {

using Gradients = std::map<std::string, std::vector<float>>;

const std::string kImages = R"({"name": "random", "shape": [8, 8, 3], "classes": 4,
  "batch_size": 64, "train_samples": 256})";
const std::string kTokens = R"({"name": "random_tokens", "classes": 3, "max_length": 24,
  "batch_size": 16, "train_samples": 128})";

// A model in training on random images, or on tokens.
class Problem {
 public:
  explicit Problem(const std::string& model) : bench_(config_of(model)) {}

  // The exact gradient and the one under `policy`, of the same batch; between steps, training.
  std::pair<Gradients, Gradients> step(SavePolicy& policy, uint64_t number) {
    if (number > 0) bench_.train(1);
    const RngKey key = bench_.rng();
    const Batch batch = bench_.next();
    Gradients packed = split(bench_.gradient(batch, &policy, number, key));
    return {split(bench_.gradient(batch, nullptr, number, key)), std::move(packed)};
  }

 private:
  static Config config_of(const std::string& model) {
    const bool tokens = model.find("bert") != std::string::npos;
    Config config = parse_config(Json::parse(R"({"model": )" + model + R"(, "data": )" +
                                             (tokens ? kTokens : kImages) + "}"));
    resolve(config);
    return config;
  }
  Gradients split(const std::vector<float>& all) {
    Gradients each;
    auto at = all.begin();
    for (const auto& p : bench_.model().parameters()) {
      const int64_t n = p.parameter->value().numel();
      each[p.name] = {at, at + n};
      at += n;
    }
    return each;
  }
  GradientBench bench_;
};

double squares(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - (b.empty() ? 0 : static_cast<double>(b[i]));
    sum += d * d;
  }
  return sum;
}

// The largest |error|^2 / |gradient|^2 of a parameter and of all together, over the steps, and the
// bits at the end.
struct Check {
  double parameter = 0, whole = 0, bits = 0;
};
Check check(const std::string& model, const AcgcOptions& options) {
  Problem problem(model);
  AcgcPolicy policy(options);
  Check found;
  for (uint64_t number = 0; number < 6; ++number) {
    const auto [exact, packed] = problem.step(policy, number);
    double error = 0, norm = 0;
    for (const auto& [name, g] : exact) {
      const double d = squares(g, packed.at(name)), n = squares(g, {});
      error += d, norm += n;
      // A parameter whose gradient is nothing but rounding tells nothing.
      if (n > 1e-12) found.parameter = std::max(found.parameter, d / n);
    }
    found.whole = std::max(found.whole, error / norm);
  }
  found.bits = policy.average_bits();
  return found;
}

AcgcOptions options_of_growth(double e) {
  AcgcOptions all;
  all.e = e;
  all.interval = 3;
  all.keep.min_elements = 256;
  all.keep.recipes = false;
  all.rounding = compress::Rounding::nearest;
  return all;
}

const std::string kResnet = R"({"name": "resnet20", "shortcut": "A"})";
const std::string kBert =
    R"({"name": "bert_tiny", "layers": 2, "width": 32, "heads": 2, "vocab_size": 60})";
const std::string kMlp = R"({"name": "mlp", "hidden": [64, 48]})";

}  // namespace

TEST_CASE("the predicted bound holds on every step") {
  struct Case {
    const std::string& model;
    double e;
    const char* codec;
  };
  for (const Case& each :
       {Case{kResnet, 1, "fixed_z"}, Case{kResnet, 0.2, "entropy"}, Case{kMlp, 1, "entropy"},
        Case{kMlp, 0.2, "fixed_z"}, Case{kBert, 1, "fixed_z"}, Case{kBert, 0.2, "entropy"},
        Case{kResnet, 1, "predicted"}, Case{kBert, 0.2, "predicted"}}) {
    AcgcOptions with = options_of_growth(each.e);
    with.codec = each.codec;
    const Check found = check(each.model, with);
    CAPTURE(each.model);
    CAPTURE(found.bits);
    CHECK(found.parameter <= each.e * each.e);
    CHECK(found.whole > 0);
  }
}

TEST_CASE("expected errors are of the size that was asked for, far above the worst case's") {
  for (const std::string& model : {kResnet, kMlp}) {
    AcgcOptions each = options_of_growth(0.2);
    each.count = Count::expected;
    each.rounding = compress::Rounding::stochastic;
    const Check found = check(model, each);
    CHECK(found.bits < 5);
    CHECK(found.whole > 0.001);
    CHECK(found.whole <= 0.04);
  }
}

TEST_CASE("the published rule stays within it too") {
  AcgcOptions each = options_of_growth(1);
  each.rule = Rule::published;
  CHECK(check(kResnet, each).whole <= 1);
}

TEST_CASE("with recipes there is less to pack, within the bound") {
  AcgcOptions each = options_of_growth(1);
  each.keep.recipes = true;
  CHECK(check(kResnet, each).parameter <= 1);
}
