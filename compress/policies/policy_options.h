// The options of the policies. A program needs not to know their classes: make_policy() makes them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "autograd/saved_tensor.h"
#include "compress/quantize/quantize_options.h"
#include "core/option.h"

namespace frugal::compress {

// ---- one width (fixed_policy.h)
// Where the exact signs of activation functions are kept.
//   codes: in the codes of the function's input or output, at no cost (quantize.h). Where there are
//          no such codes, in masks.
//   masks: 1 bit per element
enum class Signs : uint8_t { codes, masks };

struct FixedPolicyOptions {
  int bits = 4;  // bits per packed element; 0: everything is kept raw
  bool recipes = true;
  bool corrected = true;  // uses recipes whose bias is corrected, from 2 bits on
  Signs signs = Signs::codes;
  // How many elements may be rebuilt on the way to a tensor, as a multiple of the tensor's own.
  // They cost time once, and packed memory while backward is among them. 0: recipes start from kept
  // tensors alone.
  double chain = 16;
  // Activations of at most this many elements stay raw. They take little memory, and the input of a
  // classifier is among them, which quantizing hurts most. Ref: Liu et al. 2022 (GACT).
  // Groups by column also need kLeastRows rows (group_layout.h).
  int64_t min_elements = 16384;
  int64_t group = 256;  // see QuantizeOptions
  // Groups along rows mix channels: a channel of small values beside one of large values is lost.
  // They exist to compare with. Their codes carry no sign, so masks
  // are kept even with Signs::codes. Ref: Liu et al. 2022 (GACT), whose groups are neighbours in
  // memory: GroupAxis::nchw.
  GroupAxis axis = GroupAxis::column;
  // Backward takes packed and rebuilt tensors in slices of about this many bytes. 0: whole. Not
  // set: as many as suit the device (make_policy()); a policy that is made without one takes
  // SavePolicy::kSliceBytes.
  std::optional<int64_t> slice_bytes = {};
  // Not set: what suits the device (make_policy()); a policy that is made without one rounds
  // stochastically, as published.
  std::optional<Rounding> rounding = {};
  // Packs the inputs of recomputed blocks, and what is saved while one is recomputed, instead of
  // keeping both whole. As GACT's program does, to compare with: it biases the gradient. Policies
  // that look at gradients, and budgets, refuse it.
  bool pack_recomputed = false;
  uint64_t seed = 0;

  int64_t slice_bytes_here() const { return slice_bytes.value_or(SavePolicy::kSliceBytes); }
  Rounding rounding_here() const { return rounding.value_or(Rounding::stochastic); }
  bool operator==(const FixedPolicyOptions&) const = default;
  // Without `bits`, whose meaning depends on the policy (choice.h).
  static std::vector<by_name::Option<FixedPolicyOptions>> list();
};

// ---- widths by sensitivity (adaptive_policy.h)
struct AdaptiveOptions {
  FixedPolicyOptions keep = {};  // its bits do not count
  double average = 4;            // bits per element of what is packed, in [1, 16], without metadata
  int min_bits = 1, max_bits = 16;
  // As the published program: widths 1, 2, 4, 8 and raw, by its greedy search; the average counts
  // codes alone, and no rebuild is used whose bias is corrected.
  bool greedy = false;
  bool operator==(const AdaptiveOptions&) const = default;

  static std::vector<by_name::Option<AdaptiveOptions>> list() {
    return {{{"solver", by_name::range::choice("exact, greedy"),
              "exact: widths of 1 to 16 bits with the least variance; greedy: as the published "
              "program, 1, 2, 4, 8 bits or raw, by steps down from raw."},
             &AdaptiveOptions::greedy}};
  }
};

// ---- a memory budget (budget_policy.h)
struct BudgetPolicyOptions {
  FixedPolicyOptions keep = {};  // bits, recipes and slice_bytes do not count
  // What the tensors of a step may take (train/planning/budget.h). Who makes the plan reads it; the
  // policy does not.
  std::string memory = {};
  bool operator==(const BudgetPolicyOptions&) const = default;
};

// ---- bounds instead of bits (acgc_policy.h)
namespace acgc {
// What errors keep a bound: acgc_bounds.h derives both.
enum class Count : uint8_t { worst, expected };
//   derived:    bounds that hold
//   published:  products and normalizations as published
enum class Rule : uint8_t { derived, published };
}  // namespace acgc

struct AcgcOptions {
  double e = 1;
  // Published: the bounds and the widths of the paper (AutoQuant; with fixed_z AutoQuantZ), as its
  // public program executes them (bounded_fixed.h). `e` is the paper's: e^2 |dW|^2 is allowed. The
  // program allows e |dW|^2, which is equal at e = 1.
  acgc::Rule rule = acgc::Rule::derived;
  acgc::Count count = acgc::Count::worst;    // expected: with stochastic rounding
  std::string codec = "fixed_z";             // see error_bounded.h
  Rounding rounding = Rounding::stochastic;  // nearest or stochastic
  int64_t interval = 100;
  int64_t window = 10;
  int start_bits = 0;  // before the first bounds; 0: 8 as published, 4 with expected errors
  int min_bits = 2, max_bits = 16;
  FixedPolicyOptions keep = {};  // bits, signs and rounding do not count
  bool operator==(const AcgcOptions&) const = default;
  static std::vector<by_name::Option<AcgcOptions>> list();
};

// ---- formulas for tensors and samples (actnn_policy.h)
// The paper's levels are sets of these options (levels.h); the defaults are its L2 with recipes.
struct ActnnOptions {
  FixedPolicyOptions keep = {};  // its bits do not count
  double average = 4;            // bits per element, without metadata; 0: everything is kept raw
  bool mixed = false;            // false: each tensor has `average` bits, a whole number
  bool products_only = false;    // what no product reads is kept raw
  int min_bits = 1, max_bits = 8;
  bool by_sample = true, by_tensor = true;
  bool use_gradient = false;  // gradients of samples weigh them, too; needs by_sample
  // As published: the average does not count tensors that only normalizations read. They take the
  // bits of the product before them, or 8 where no product comes before.
  bool norms_outside = false;
  // The share of the old value in the moving average of |dy|^2. With 0, the last observed step
  // alone counts.
  double momentum = 0.5;
  // Steps between observations. Steps 1, 2, 4, ... before it are observed, too.
  int64_t interval = 1000;
  bool operator==(const ActnnOptions&) const = default;
  static std::vector<by_name::Option<ActnnOptions>> list();
};

}  // namespace frugal::compress
