// Budget policy: keeps each tensor as a plan says, which somebody makes for a number of bytes
// (apps/planner.h).
//
// A plan is one of three, from the fastest to the smallest:
//   plain: everything raw, as without a policy
//   exact: raw and recipes, without loss
//   mixed: recipes, and for each other tensor raw, 1 to 16 bits, or its codes in a file
// Below a plan's widths there is room: with a fineness set, tensors take the fewest bytes with
// which the predicted variance is that of so many bits everywhere, none more than the plan gives
// it. So the budget holds, and forbids what is finer than the plan. Inside is an AdaptivePolicy,
// which holds widths and sensitivities, so that what measures them (apps/sensitivity.h) and what
// keeps them in checkpoints serves this policy too.
#pragma once
#include "compress/adaptive_policy.h"
#include "compress/learner.h"
#include "compress/offload.h"
#include "compress/wrapping_policy.h"

namespace frugal::compress {

struct BudgetPlan {
  enum Mode : uint8_t { plain, exact, mixed } mode = plain;
  int64_t slice_bytes = SavePolicy::kSliceBytes;  // 0 with `plain`
  int waiting_bits = 4;                           // mixed: see AdaptivePolicy
  uint64_t moved = 0;  // mixed: codes of tensors before this SaveInfo::seq go to the file
  int64_t margin = 0;  // bytes that steps took more than planned, for the next plan
  std::map<uint64_t, int> bits = {};  // mixed: by SaveInfo::seq, a width or AdaptivePolicy::kRaw
};

struct BudgetPolicyOptions {
  FixedPolicyOptions keep;  // level, bits, recipes and slice_bytes do not count
  OffloadOptions file;      // without a directory, nothing can be moved
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class BudgetPolicy final : public WrappingPolicy, public Learner, public Adjustable {
 public:
  explicit BudgetPolicy(const BudgetPolicyOptions& options);  // Errors: those of PayloadStore
  Decision decide(const SaveInfo& info, const Tensor& value) override;  // Errors: no plan yet
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

  // The tensors of the last step under a mixed plan, each with a sensitivity: where none was
  // measured the mean of the others, by element, or 1 an element.
  std::vector<AdaptivePolicy::Item> items() const;
  // Widths of least predicted variance for the tensors of `items` within `bytes` of kept memory;
  // tensors that are moved take none. Where variance hardly differs, raw is preferred: it takes no
  // time. False, and no change: not even the least widths fit.
  bool allocate(const std::vector<AdaptivePolicy::Item>& items, int64_t bytes,
                BudgetPlan& plan) const;
  // The predicted variance of a plan, in the unit of the sensitivities.
  static double variance(const std::vector<AdaptivePolicy::Item>& items, const BudgetPlan& plan);

  // The plan, and the widths in use where they are fewer, as numbers.
  std::vector<double> learned() const override;
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

  std::optional<BudgetPlan> plan_;
  std::map<uint64_t, int> bits_;  // of a mixed plan, in use
  double wanted_ = 0;             // fineness; 0: the plan's
  bool nearest_ = false;
  std::shared_ptr<PayloadStore> store_;
  std::map<const Codec*, Offload> moving_;
};

}  // namespace frugal::compress
