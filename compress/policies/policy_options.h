// The options of policies whose classes a program needs not to know: make_policy() makes them.
#pragma once
#include <string>

#include "compress/offload/offload_options.h"
#include "compress/policies/fixed_policy.h"

namespace frugal::compress {

namespace acgc {
// What errors keep a bound: acgc_bounds.h derives both.
enum class Count : uint8_t { worst, expected };
//   derived:    bounds that hold
//   published:  products and normalizations as published
enum class Rule : uint8_t { derived, published };
}  // namespace acgc

// Bounds instead of bits (acgc_policy.h).
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
  int start_bits = 8, min_bits = 2, max_bits = 16;
  FixedPolicyOptions keep = {};  // bits, signs and rounding do not count
  bool operator==(const AcgcOptions&) const = default;
  static std::vector<options::Option<AcgcOptions>> list();
};

// Formulas for tensors and samples (actnn_policy.h). The paper's levels are sets of these options
// (levels.h); the defaults are its L2 with recipes.
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
  static std::vector<options::Option<ActnnOptions>> list();
};

}  // namespace frugal::compress
