// AC-GC: an error bound for every packed tensor, by channel where that helps. All bounds follow
// from one number, the allowed growth e of the gradient. There is no search and no budget; the data
// decide how many bits the bounds take.
//
// Every `interval` steps the backward pass is observed and gives bounds (acgc_bounds.h). The mean
// of the last `window` squared bounds counts. With the published rule it is a weighted mean, which
// equals the ratio of the mean numerator and the mean denominator (acgc_collect.h). Before the
// first bounds, tensors take start_bits(). Tensors are packed by an error-bounded codec
// (error_bounded.h). As published, recipes are off (keep.recipes is false) and masks take 1 bit.
// With recipes, the bounds of a rebuilt tensor become bounds of the tensors that it is rebuilt
// from.
//
// The bounds hold op by op. They do not include what the errors of one op do to the gradients of
// the ops before it. A test compares whole gradients with what is allowed.
//
// On `meta` there are no values: steps are observed, which takes memory, and give no bounds, and
// every tensor takes assumed_bits(), or start_bits() in a first step
// (Learner::set_first_on_meta()). The widths of a run come from a profile (width_profile.h).
// Tensors are known by SaveInfo::seq. If a step saves other tensors than the steps before, the new
// ones take start_bits(). Ref: Evans & Aamodt 2021 (AC-GC).
#pragma once
#include <deque>
#include <map>
#include <string>

#include "compress/bounded/error_bounded.h"
#include "compress/policies/acgc_collect.h"
#include "compress/policies/adjustable.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/learner.h"
#include "compress/policies/policy_options.h"

namespace frugal::compress {

// The bits of a tensor that has no bounds yet, as in the first step.
int start_bits(const AcgcOptions& options);
// The bits that steps on `meta` count for each element, an average.
//   published: that of the public program's own runs (ResNet-50, CIFAR-10, e = 1: 7.3, with zeros
//              6.7), and 1 for the bit that the program executes and does not count
//   derived:   that of our ResNet-20 on CIFAR-10 after an epoch (batch 128, e = 1, stochastic
//              rounding), with metadata; a bit less where values are rounded to nearest
// Another e changes it by log2 e.
double assumed_bits(const AcgcOptions& options);

// What decisions of later steps depend on.
struct AcgcState {
  // Version of the checkpoint format; version 1 lacks the weights.
  static constexpr int kVersion = 2;
  int64_t last_step = -1;  // the last observed step; -1: none
  double e = 1, fineness = 0;
  std::map<uint64_t, std::deque<acgc::Bounds>> bounds2;  // by SaveInfo::seq; the oldest come first

  Learned write() const;
  static AcgcState read(const Learned& learned);  // Errors: see Learner
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
  void add_roles(PolicyRoles& roles) override;

  // A tensor that the last step packed.
  struct Item {
    uint64_t seq = 0;
    std::string op;  // name of the op that saved it
    int64_t elements = 0, bytes = 0;
    bool bounded = false;  // false: it has start_bits()
  };
  std::vector<Item> items() const;  // by seq
  double average_bits() const;      // over the items' elements, metadata included
  // Mean square bounds of a tensor, one or one for each channel; empty before the first.
  std::vector<double> bounds2(uint64_t seq) const;

  double e() const { return options_.e; }
  // Sets another growth from now on. Bounds that are known change so that they allow no more than
  // `e` until the next step is observed. REQUIRES: no graph of this policy is alive. Errors: not
  // positive and finite.
  void set_e(double e);
  // log2(1 + 15 / e), so 4 at e = 1: steps of a width of so many bits grow in proportion to e. 0
  // with nearest rounding.
  double fineness() const override { return fineness_; }
  Range fineness_range() const override { return {1, 16, 0.25}; }
  double set_fineness(double bits) override;

  AcgcState state() const;
  // Errors: more bounds of a tensor than the window has; a fineness where there is none to set.
  void restore(AcgcState state);
  Learned learned() const override { return state().write(); }
  // Weighted means of the newest bounds.
  Learned joined(const std::vector<Learned>& of_ranks) const override;
  bool learns_at(uint64_t step) const override;
  bool differs_at_first() const override { return true; }
  void restore_learned(const Learned& learned) override {
    restore(learned.empty() ? first_ : AcgcState::read(learned));
  }

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  void settle() const;

  AcgcOptions options_;
  double fineness_ = 0;
  FixedPolicy keep_;
  Quantizer start_;
  std::unique_ptr<ErrorBounded> codec_;
  std::map<uint64_t, Decision::What> decisions_;  // decisions of this step, by seq
  mutable acgc::Collector collector_;
  mutable std::map<uint64_t, std::deque<acgc::Bounds>> seen_;  // by seq; the oldest come first
  mutable std::map<uint64_t, Item> items_;
  bool observing_ = false;
  mutable bool observed_ = false;  // there is an observed backward pass that is not in seen_ yet
  int64_t last_ = -1;              // the step of the last observation; -1: none
  AcgcState first_;                // before anything is learned
};

}  // namespace frugal::compress
