// Policies that look at gradients learn from bf16 what they learn from f32.
#include <doctest/doctest.h>

#include <cmath>

#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "ops/precision.h"
#include "tests/error_bounds.h"
#include "tests/train/tiny_run.h"

namespace frugal::train {
namespace {

using compress::AcgcOptions;
using compress::ActnnOptions;
using compress::Choice;

// Two networks, whose normalizations are those of channels and those of rows.
RunRecipe network(bool of_tokens, bool bf16) {
  RunRecipe recipe;
  if (of_tokens) {
    BatchSpec spec;
    spec.sample = {8};
    spec.classes = 2;
    spec.kind = BatchSpec::Kind::sequences;
    spec.vocabulary = 7;
    recipe = tiny_run("bert_tiny",
                      {{"layers", 1},
                       {"width", 16},
                       {"heads", 2},
                       {"max_positions", 8},
                       {"vocab_size", 7},
                       {"num_classes", 2}},
                      spec);
    recipe.open_train = [] {
      std::vector<data::Sequence> all(16);
      for (size_t i = 0; i < all.size(); ++i) {
        for (size_t k = 0; k < 8; ++k) all[i].ids.push_back(k * (i + 3) % 3 == 0 ? 5 : 6);
        all[i].label = static_cast<int64_t>(i % 2);
      }
      return std::make_unique<data::SequenceBatches>(all,
                                                     data::SequenceBatchOptions{.batch_size = 16});
    };
  } else {
    recipe = tiny_run("resnet20", {{"layers", 8}}, TinyImages{.batch = 16, .samples = 16});
  }
  if (bf16)
    recipe.make_model = [make = recipe.make_model](Device device) {
      std::shared_ptr<Module> model = make(device);
      model->set_activations(DType::bf16);
      return model;
    };
  return recipe;
}

// What a policy knows after one step: one number for each tensor, by SaveInfo::seq.
template <class Policy>
std::map<uint64_t, double> learned(bool of_tokens, bool bf16, Choice choice,
                                   std::map<uint64_t, double> (*numbers)(const Policy&)) {
  choice.keep().min_elements = 0;
  PolicyRun run(network(of_tokens, bf16), choice);
  ops::set_bf16_products(false);  // as bf16_in_f32, which every CPU has
  run.gradient(run.next(), 0);
  ops::set_bf16_products(true);
  const auto* policy = dynamic_cast<const Policy*>(run.policy.get());
  REQUIRE(policy != nullptr);
  return numbers(*policy);
}

// The numbers are sums of squares of gradients, or quotients of two of them. A gradient passes
// through at most 32 roundings to bf16 on its way, forth and back, and errors of squares are twice
// as large.
template <class Policy>
void check_alike(bool of_tokens, const Choice& choice,
                 std::map<uint64_t, double> (*numbers)(const Policy&)) {
  CAPTURE(of_tokens);
  const auto in_f32 = learned(of_tokens, false, choice, numbers);
  const auto in_bf16 = learned(of_tokens, true, choice, numbers);
  REQUIRE(!in_f32.empty());
  CHECK(in_bf16.size() >= in_f32.size());  // it may keep more tensors, such as casts
  for (const auto& [seq, number] : in_f32) {
    CAPTURE(seq);
    const auto found = in_bf16.find(seq);
    REQUIRE(found != in_bf16.end());
    CHECK(found->second ==
          doctest::Approx(number).epsilon(2 * frugal_test::rounding_bound(32, DType::bf16)));
  }
}

}  // namespace

TEST_CASE("AC-GC has in bf16 the bounds that it has in f32") {
  using compress::acgc::Count;
  using compress::acgc::Rule;
  const auto bounds = [](const compress::AcgcPolicy& policy) {
    std::map<uint64_t, double> all;
    for (const auto& [seq, seen] : policy.state().bounds2) {
      const std::vector<double>& squares = seen.back().squares;
      for (const double each : squares)
        all[seq] += std::sqrt(each) / static_cast<double>(squares.size());
    }
    return all;
  };
  for (const bool of_tokens : {false, true}) {
    AcgcOptions options;
    options.start_bits = 16;
    options.rounding = compress::Rounding::nearest;
    check_alike<compress::AcgcPolicy>(of_tokens, {.policy = options}, bounds);
    options.rounding = compress::Rounding::stochastic;
    options.count = Count::expected;
    check_alike<compress::AcgcPolicy>(of_tokens, {.policy = options}, bounds);
    options = {};
    options.rule = Rule::published;
    options.start_bits = 16;
    options.rounding = compress::Rounding::nearest;
    check_alike<compress::AcgcPolicy>(of_tokens, {.policy = options}, bounds);
  }
}

TEST_CASE("ActNN has in bf16 the sensitivities that it has in f32") {
  const auto sensitivities = [](const compress::ActnnPolicy& policy) {
    std::map<uint64_t, double> all;
    for (const auto& item : policy.items())
      if (item.sensitivity) all[item.seq] = *item.sensitivity;
    return all;
  };
  for (const bool of_tokens : {false, true}) {
    ActnnOptions options;
    options.average = 8;
    options.mixed = true;
    options.interval = 1;
    check_alike<compress::ActnnPolicy>(of_tokens, {.policy = options}, sensitivities);
  }
}

}  // namespace frugal::train
