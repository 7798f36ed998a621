// AC-GC: an error bound for every packed tensor, by channel where that helps, from one number: the
// allowed growth e of the gradient. No search, no budget; how few bits that takes, the data say.
//
// Every `interval` steps backward is observed and gives bounds (acgc_bounds.h), of which the mean
// square of the last `window` counts; before the first, tensors take `start_bits` bits. They are
// packed by an error-bounded codec (error_bounded.h). As published, recipes are off and masks take
// 1 bit; with recipes, bounds pass to what a tensor is rebuilt from.
// The bounds hold op by op. What errors of one op do to the gradients of those before it is not in
// them; tests/apps/acgc_test.cpp compares whole gradients with what is allowed.
// On `meta` there are no values, so no step is observed and tensors take `start_bits` bits: the
// bytes are those of a run before its first bounds. How many bits bounds take, only data say.
// Tensors are known by SaveInfo::seq: a network that saves others keeps those in `start_bits`.
// Ref: Evans & Aamodt 2021 (AC-GC).
#pragma once
#include <deque>
#include <map>
#include <string>

#include "compress/bounded/error_bounded.h"
#include "compress/policies/acgc_collect.h"
#include "compress/policies/adjustable.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/learner.h"

namespace frugal::compress {

struct AcgcOptions {
  double e = 1;
  // Published: its bounds and its widths (AutoQuant; with fixed_z AutoQuantZ), which do not keep
  // them: see bounded_fixed.h.
  acgc::Rule rule = acgc::Rule::derived;
  acgc::Count count = acgc::Count::worst;  // expected: with stochastic rounding
  std::string codec = "fixed_z";           // see error_bounded.h
  Rounding rounding = Rounding::nearest;   // or stochastic
  int64_t interval = 100;
  int64_t window = 10;
  int start_bits = 8, min_bits = 2, max_bits = 16;
  FixedPolicyOptions keep = {.recipes = false};  // level, bits, signs and rounding do not count
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class AcgcPolicy final : public SavePolicy, public Learner, public Adjustable, private Codec {
 public:
  // Errors: e not positive and finite, an option out of range, groups along rows, a codec that does
  // not go with the rule or the way to count, those of FixedPolicy and of make_error_bounded().
  explicit AcgcPolicy(const AcgcOptions& options = {});
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  int64_t slice_bytes() const override { return keep_.slice_bytes(); }
  BackwardObserver* observer() override { return observing_ ? &collector_ : nullptr; }

  // A tensor that the last step packed.
  struct Item {
    uint64_t seq = 0;
    std::string op;  // who saved it
    int64_t elements = 0, bytes = 0;
    bool bounded = false;  // else in start_bits
  };
  std::vector<Item> items() const;  // by seq
  double average_bits() const;      // over the items' elements, metadata included
  // Mean square bounds of a tensor, one or one for each channel; empty before the first.
  std::vector<double> bounds2(uint64_t seq) const;

  double e() const { return options_.e; }
  // Another growth from now on. Bounds that are known change so that they allow no more than `e`
  // until the next step is observed. REQUIRES: no graph of this policy is alive. Errors: not
  // positive and finite.
  void set_e(double e);
  // Of e, like that of a width whose steps grow as e does: log2(1 + 15 / e), so 4 at e = 1. 0 with
  // nearest rounding.
  double fineness() const override { return fineness_; }
  Range fineness_range() const override { return {1, 16, 0.25}; }
  double set_fineness(double bits) override;

  std::vector<double> learned() const override;
  bool learns_at(uint64_t step) const override;
  void restore_learned(const std::vector<double>& numbers) override;

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  void settle() const;

  AcgcOptions options_;
  double fineness_ = 0;
  FixedPolicy keep_;
  Quantizer start_;
  std::unique_ptr<ErrorBounded> codec_;
  std::map<uint64_t, Decision::What> decisions_;  // of this step, by seq
  mutable acgc::Collector collector_;
  mutable std::map<uint64_t, std::deque<std::vector<double>>>
      seen_;  // squared bounds, oldest first
  mutable std::map<uint64_t, Item> items_;
  bool observing_ = false;
  mutable bool observed_ = false;  // a backward that is not in seen_ yet
  double last_ = -1;               // the step of the last observation; -1: none
};

}  // namespace frugal::compress
