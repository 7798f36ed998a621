// Budget policy: keeps each tensor as a plan says, which somebody makes for a number of bytes
// (apps/planner.h).
//
// A plan is one of three, from the fastest to the smallest:
//   plain: everything raw, as without a policy
//   exact: raw and recipes, without loss
//   mixed: recipes, and for each other tensor raw, 1 to 16 bits, or its codes in a file
// Below a plan's widths there is room: with a fineness set, tensors take the fewest bytes with
// which the predicted variance is that of so many bits everywhere, none more than the plan gives
// it. So the budget holds, and forbids what is finer than the plan.
//
// With an entropy stage, packed tensors are coded, and plans count on what was seen: at the width
// in question, the most that a tensor took of late and a little more; at one that was not seen,
// half of what the next narrower one saved. A plan says the most bytes that each tensor may take. A
// tensor that would take more is packed with fewer bits in that step, and drifted() says so: the
// budget holds whatever the values are. Decoding takes room for a moment; a plan may also code
// nothing.
//
// A recipe that the plan keeps is kept raw, not rebuilt: where there is room, that saves its time,
// and the error of what it would have been rebuilt from. Inside is an AdaptivePolicy,
// which holds widths and sensitivities, so that what measures them (apps/sensitivity.h) and what
// keeps them in checkpoints serves this policy too.
#pragma once
#include <set>
#include <span>
#include <utility>

#include "compress/entropy/coded_sizes.h"
#include "compress/entropy/entropy.h"
#include "compress/offload/offload.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/learner.h"
#include "compress/policies/wrapping_policy.h"

namespace frugal::compress {

struct BudgetPlan {
  enum Mode : uint8_t { plain, exact, mixed } mode = plain;
  int64_t slice_bytes = SavePolicy::kSliceBytes;  // 0 with `plain`
  int waiting_bits = 4;                           // mixed: see AdaptivePolicy
  uint64_t moved = 0;  // mixed: codes of tensors before this SaveInfo::seq go to the file
  int64_t margin = 0;  // bytes that steps took more than planned, for the next plan
  std::map<uint64_t, int> bits = {};  // mixed: by SaveInfo::seq, a width or AdaptivePolicy::kRaw
  std::map<uint64_t, int64_t> coded =
      {};  // mixed, entropy: the most bytes of a tensor's codes; 0: it is not coded
  std::set<uint64_t> kept = {};  // exact and mixed: recipes that are kept raw instead
};

struct BudgetPolicyOptions {
  FixedPolicyOptions keep;  // level, bits, recipes and slice_bytes do not count
  OffloadOptions file;      // without a directory, nothing can be moved
  std::optional<EntropyOptions> entropy = {};
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class BudgetPolicy final : public WrappingPolicy, public Learner, public Adjustable, private Codec {
 public:
  explicit BudgetPolicy(const BudgetPolicyOptions& options);  // Errors: those of PayloadStore
  Decision decide(const SaveInfo& info, const Tensor& value) override;  // Errors: no plan yet
  bool lossy() const override { return !plan_ || plan_->mode == BudgetPlan::mixed; }
  bool rebuilds_signs() const override { return false; }
  int64_t slice_bytes() const override { return plan_ ? plan_->slice_bytes : 0; }

  // From the next step on. REQUIRES: no graph of this policy is alive. Errors: a width out of
  // range; `moved` without a file.
  void adopt(const BudgetPlan& plan);
  const std::optional<BudgetPlan>& plan() const { return plan_; }
  // The width at which all tensors together would add the variance that is predicted; 16 where
  // nothing is rounded. 0 before a plan and with nearest rounding.
  double fineness() const override;
  Range fineness_range() const override { return {1, 16, 0.25}; }
  double set_fineness(double bits) override;
  // The widths in use: the plan's, or fewer bits.
  const std::map<uint64_t, int>& bits() const { return bits_; }
  AdaptivePolicy& adaptive() const { return *adaptive_; }
  bool can_move() const { return store_ != nullptr; }
  const PayloadStore* store() const { return store_.get(); }  // null without a folder

  // The tensors of the last step under a mixed plan, each with a sensitivity: where none was
  // measured the mean of the others, by element, or 1 an element.
  std::vector<AdaptivePolicy::Item> items() const;
  // Whether what follows counts on coding, where there is an entropy stage; else nothing is coded.
  void plan_codes(bool codes) { plans_codes_ = codes; }
  // What a tensor is expected to take at `bits`, or kRaw.
  int64_t bytes(const AdaptivePolicy::Item& item, int bits) const;
  // Sets BudgetPlan::coded of the tensors of `items` to that.
  void limit(const std::vector<AdaptivePolicy::Item>& items, BudgetPlan& plan) const;
  // What coding gave so far, and that of another policy of the same run.
  CodedSizes& sizes() const { return sizes_; }
  // Whether tensors took more than the plan said, since this was asked last.
  bool drifted() { return std::exchange(drifted_, false); }

  // What the last step rebuilt, or would have but for BudgetPlan::kept; nothing with `plain`.
  struct Recipe {
    uint64_t seq = 0;
    int64_t rebuilt = 0;  // elements, of it and on the way to it
    int64_t raw_bytes = 0;
    bool lossy = false;
  };
  const std::vector<Recipe>& recipes() const { return recipes_; }

  // Widths of least predicted variance for the tensors of `items` within `bytes` of kept memory;
  // tensors that are moved take none. Where variance hardly differs, raw is preferred: it takes no
  // time. False, and no change: not even the least widths fit.
  bool allocate(const std::vector<AdaptivePolicy::Item>& items, int64_t bytes,
                BudgetPlan& plan) const;
  // The predicted variance of a plan, in the unit of the sensitivities.
  static double variance(const std::vector<AdaptivePolicy::Item>& items, const BudgetPlan& plan);

  // The plan, the widths in use where they are fewer, and sizes(), as numbers.
  std::vector<double> learned() const override;
  bool learns_at(uint64_t /*step*/) const override { return false; }  // plans come from outside
  void restore_learned(const std::vector<double>& numbers) override;

 private:
  BudgetPolicy(std::shared_ptr<AdaptivePolicy> adaptive, const BudgetPolicyOptions& options);

  std::shared_ptr<AdaptivePolicy> adaptive_;
  FixedPolicy exact_;
  // The least bytes of at least this fineness, of items whose widths are those of the plan at most;
  // the others have the plan's.
  std::map<uint64_t, int> coarser(const std::vector<AdaptivePolicy::Item>& items,
                                  double fineness) const;
  void use(std::map<uint64_t, int> bits);
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  void restore_plan(std::span<const double> numbers, BudgetPlan plan);

  std::optional<BudgetPlan> plan_;
  std::map<uint64_t, int> bits_;  // of a mixed plan, in use
  double wanted_ = 0;             // fineness; 0: the plan's
  bool nearest_ = false;
  std::shared_ptr<PayloadStore> store_;
  std::map<const Codec*, Offload> moving_;
  std::optional<EntropyOptions> entropy_;
  const Codec* plain_ = nullptr;  // the adaptive policy's
  std::vector<Recipe> recipes_;
  mutable CodedSizes sizes_;
  mutable bool drifted_ = false;
  bool plans_codes_ = true;
};

}  // namespace frugal::compress
