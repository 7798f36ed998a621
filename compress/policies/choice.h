// Choice: one value that says how activations are kept until the backward pass.
//
//   preset("small")                  a name that our tables recommend, or a paper's method
//   paper("actnn", "L3")             a level of a paper
//   bits(4)                          one width; bits(2.5): widths by sensitivity of this average
//   budget("2 GiB")                  what fits into so many bytes
//   Choice{.policy = ActnnOptions{}} the options of a policy
//
// make_policy() makes the policy of a choice.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "compress/offload/offload_options.h"
#include "compress/policies/policy_options.h"

namespace frugal::compress {

struct WidthProfile;              // width_profile.h
enum class PolicyKind : uint8_t;  // policy_kind.h

// A policy that a program brings. `seed` drives its rounding.
struct OwnPolicy {
  std::function<std::unique_ptr<SavePolicy>(Device device, uint64_t seed)> make;
  FixedPolicyOptions keep = {};  // min_elements counts, for the file around the policy
  // Functions cannot be compared, so no two of these are equal.
  bool operator==(const OwnPolicy&) const { return false; }
};

// How sensitivities are measured while a network trains, for the widths of an AdaptivePolicy and of
// a BudgetPolicy.
struct Measuring {
  int64_t interval = 1000;  // steps between refreshes
  int64_t first = 50;       // the step of the first
  int64_t batch = 0;        // samples of a whole batch; 0: of the one that is measured
  int64_t samples = 32;     // how many samples of a batch are measured; all of a smaller batch
  double share = 0.01;      // a refresh computes at most this share of the samples of an interval
  bool operator==(const Measuring&) const = default;

  static std::vector<by_name::Option<Measuring>> list() {
    namespace range = by_name::range;
    constexpr int64_t kMany = int64_t{1} << 40;
    return {{{"interval", range::integer(1, kMany),
              "Steps from one measurement of sensitivities to the next."},
             &Measuring::interval},
            {{"samples", range::integer(2, kMany), "Samples of the batch that measure."},
             &Measuring::samples},
            {{"share", range::number(0, 1),
              "The share of an interval's samples that may be used to measure; tensors take "
              "turns where it does not suffice for all."},
             &Measuring::share}};
  }
};

struct Choice {
  std::variant<FixedPolicyOptions, AdaptiveOptions, ActnnOptions, AcgcOptions, BudgetPolicyOptions,
               OwnPolicy>
      policy = {};
  bool entropy = false;                              // packed bytes are coded without loss
  std::shared_ptr<const WidthProfile> profile = {};  // the widths of steps on meta
  std::optional<OffloadOptions> offload = {};        // packed bytes are moved to a file
  Measuring measuring = {};

  PolicyKind kind() const;
  // What all policies share.
  FixedPolicyOptions& keep();
  const FixedPolicyOptions& keep() const;
  // Bits of an element of what is packed; 0: everything is kept raw, or the policy is not told.
  double bits() const;
  bool is_adaptive() const;           // has each tensor its own width, by bits() on average?
  std::string memory_budget() const;  // BudgetPolicyOptions::memory; empty: there is none
};

// `bits` is 0 (everything is kept raw), a whole number (each tensor has this width), or another
// number up to 16 (tensors have widths by sensitivity, this many bits on average).
// Errors: other bits.
Choice bits(double bits, const FixedPolicyOptions& keep = {});
// `memory` is what the tensors of a step may take, such as "300 MiB", "1/6" or "13 MiB activations"
// (train/planning/budget.h). The trainer makes a plan for it.
Choice budget(std::string memory, const FixedPolicyOptions& keep = {});
// One of presets() (levels.h). Errors: an unknown name, listing the presets.
Choice preset(std::string_view name);
// A level of the paper of "gact" or "actnn" (levels.h). `folder` is for the levels that move packed
// bytes to a file. Blocks that a level recomputes are not in the choice: TrainerOptions has them.
// Errors: an unknown policy or level, listing those that there are; no folder where one is needed.
Choice paper(std::string_view policy, std::string_view level, const std::string& folder = {});

// The policy that keeps activations so, with all that wraps it.
// `seed` drives the rounding. On `meta`, where no bytes are moved, the policy takes no memory for a
// file. Errors: those of the policy, and of its file.
std::unique_ptr<SavePolicy> make_policy(const Choice& choice, Device device, uint64_t seed);

// What suits a device, where a choice leaves rounding and slices open.
Rounding rounding_on(Device device);
int64_t slice_bytes_on(Device device);
// Returns the choice with what suits the device, where it leaves rounding and slices open.
Choice on_device(Choice choice, Device device);

}  // namespace frugal::compress
