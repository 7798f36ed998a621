#include "compress/policies/levels.h"

#include <algorithm>
#include <string>
#include <vector>

#include "compress/policies/policy_kind.h"
#include "core/error.h"

namespace frugal::compress {
namespace {

constexpr int64_t kWholeBatch = 1 << 20;  // samples

Choice fixed(int bits) { return {.policy = FixedPolicyOptions{.bits = bits}}; }
Choice by_tensor(double average) { return {.policy = AdaptiveOptions{.average = average}}; }
Choice coded(Choice choice) {
  choice.entropy = true;
  return choice;
}

// What the published programs of GACT and ActNN did with every tensor.
FixedPolicyOptions as_published() {
  FixedPolicyOptions keep;
  keep.recipes = false;
  keep.signs = Signs::masks;
  keep.group = 256;
  keep.rounding = Rounding::stochastic;
  keep.min_elements = 0;
  keep.slice_bytes = 0;
  return keep;
}
Choice published_gact() {
  AdaptiveOptions options{.keep = as_published(), .average = 4, .greedy = true};
  options.keep.axis = GroupAxis::nchw;
  options.keep.pack_recomputed = true;
  return {.policy = options, .measuring = {.interval = 1000, .samples = kWholeBatch, .share = 1}};
}
Choice published_actnn() {
  return {.policy = ActnnOptions{.keep = as_published(),
                                 .average = 2,
                                 .mixed = true,
                                 .norms_outside = true,
                                 .momentum = 0,
                                 .interval = 1}};
}
Choice published_acgc() {
  AcgcOptions options;
  options.e = 1;
  options.rule = acgc::Rule::published;
  options.codec = "fixed_z";
  options.rounding = Rounding::nearest;
  options.interval = 100;
  options.keep.recipes = false;
  options.keep.min_elements = 0;
  options.keep.slice_bytes = 0;
  return {.policy = options};
}

std::vector<Named> all_rows() {
  std::vector<Named> rows;
  const auto gact = [&](std::string_view name, std::string_view summary, Choice choice) -> Named& {
    return rows.emplace_back(
        Named{Named::level, PolicyKind::gact, name, summary, std::move(choice)});
  };
  gact("L0", "activations are kept raw", fixed(0));
  gact("L1", "activations in 4 bits", fixed(4));
  gact("L1.1", "activations in 8 bits", fixed(8));
  gact("L1.2", "activations in 2 bits", fixed(2));
  gact("L2", "4 bits on average, by sensitivity", by_tensor(4));
  gact("L2.1", "3 bits on average, by sensitivity", by_tensor(3));
  gact("L2.2", "2 bits on average, by sensitivity", by_tensor(2));
  gact("L3", "L2, offloaded", by_tensor(4)).offload = true;
  gact("CB1", "L1 with checkpointing", fixed(4)).checkpointing = true;
  gact("CB2", "CB1", {}).same_as = "CB1";

  const auto actnn = [&](std::string_view name, std::string_view summary,
                         const ActnnOptions& options) -> Named& {
    return rows.emplace_back(
        Named{Named::level, PolicyKind::actnn, name, summary, {.policy = options}});
  };
  actnn("L0", "activations are kept raw", {.average = 0});
  actnn("L1", "what products read in 4 bits", {.average = 4, .products_only = true});
  actnn("L2", "activations in 4 bits", {.average = 4});
  actnn("L2.5", "2 bits on average, by tensor", {.average = 2, .mixed = true, .by_sample = false});
  actnn("L3", "2 bits on average, by sample", {.average = 2, .mixed = true});
  actnn("L4", "L3, offloaded", {.average = 2, .mixed = true}).offload = true;
  actnn("L5", "L4", {}).same_as = "L4";

  const auto preset = [&](std::string_view name, std::string_view summary, Choice choice,
                          Named::Of of = Named::preset) {
    const PolicyKind kind = choice.kind();
    rows.push_back({of, kind, name, summary, std::move(choice)});
  };
  preset("lossless", "no change of results", fixed(0));
  preset("safe", "no loss of accuracy in our tables", coded(by_tensor(4)));
  preset("small", "less memory, with little or no loss of accuracy", coded(by_tensor(3)));
  preset("smallest", "the least memory, with a loss of accuracy where data are hard",
         coded(by_tensor(2)));
  preset("gact_paper", "GACT as published, to compare with", published_gact(), Named::paper_preset);
  preset("actnn_paper", "ActNN as published, to compare with", published_actnn(),
         Named::paper_preset);
  preset("acgc_paper", "AC-GC as published, to compare with", published_acgc(),
         Named::paper_preset);
  return rows;
}

template <class Is>
std::span<const Named> rows_that(const Is& is) {
  const std::span<const Named> all = named_choices();
  const auto begin = std::find_if(all.begin(), all.end(), is);
  return {begin, std::find_if_not(begin, all.end(), is)};
}

}  // namespace

std::span<const Named> named_choices() {
  static const std::vector<Named> all = all_rows();
  return all;
}

std::span<const Named> levels(PolicyKind policy) {
  return rows_that(
      [&](const Named& each) { return each.of == Named::level && each.policy == policy; });
}

std::span<const Named> presets() {
  return rows_that([](const Named& each) { return each.of != Named::level; });
}

const Named& level(std::string_view name, PolicyKind policy) {
  std::string known;
  for (const Named& each : levels(policy)) {
    if (each.name == name) return each.same_as.empty() ? each : level(each.same_as, policy);
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", each.name, each.summary);
  }
  throw Error(fmt::format("[{}] expected a level of {}, got \"{}\"",
                          policy == PolicyKind::gact ? "compression" : name_of(policy), known,
                          name));
}

}  // namespace frugal::compress
