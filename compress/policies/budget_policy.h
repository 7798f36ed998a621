// Budget policy: keeps each tensor as a plan says. A planner makes the plan for a number of bytes.
//
// There are three kinds of plans, from the fastest to the smallest:
//   plain: everything raw, as without a policy
//   exact: raw and recipes, without loss
//   mixed: recipes, and for each other tensor raw, 1 to 16 bits, or its codes in a file
// A fineness makes tensors coarser than the plan. With one set, tensors take the fewest bytes whose
// predicted variance is that of so many bits everywhere. No tensor takes more bits than the plan
// gives it, so the budget holds.
//
// An EntropyPolicy and an OffloadPolicy around this policy code and move tensors as the plan says
// (pack_plan.h). Plans count on the bytes that coding gave so far. At a width that was seen, a plan
// expects the most bytes that the tensor took lately and a little more. At a width that was not
// seen, it expects half of what the next narrower width saved. This is the limit of the tensor. If
// the codes of a step would take more, the tensor is packed with fewer bits in that step, and
// drifted() says so. So the budget holds whatever the values are. Decoding takes memory for a
// moment, so a plan may also code nothing.
//
// A plan may keep recipes: such a tensor is kept raw and not rebuilt. Where there is room, this
// saves the time of rebuilding, and the error of the tensors that it would be rebuilt from.
//
// The policy has an AdaptivePolicy of its own, which holds widths and sensitivities. Sensitivities
// are measured and reported there, and checkpoints keep its state.
#pragma once
#include <set>
#include <string>
#include <utility>

#include "compress/entropy/coded_sizes.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/learner.h"
#include "compress/policies/pack_plan.h"

namespace frugal::compress {

struct BudgetPlan {
  enum Mode : uint8_t { plain, exact, mixed } mode = plain;
  int64_t slice_bytes = SavePolicy::kSliceBytes;
  int waiting_bits = 4;  // mixed: see AdaptivePolicy
  uint64_t moved = 0;    // mixed: codes of tensors before this SaveInfo::seq go to the file
  int64_t margin = 0;    // how many bytes more than planned steps took, for the next plan
  std::map<uint64_t, int> bits = {};  // mixed: by SaveInfo::seq, a width or AdaptivePolicy::kRaw
  std::map<uint64_t, int64_t> coded =
      {};  // mixed, entropy: the most bytes of a tensor's codes; 0: it is not coded
  std::set<uint64_t> kept = {};  // exact and mixed: recipes that are kept raw instead
};

// What later plans and steps depend on.
struct BudgetState {
  static constexpr int kVersion = 1;  // version of the checkpoint format
  BudgetPlan plan;
  double fineness = 0;           // the fineness that was set; 0: the plan's
  std::map<uint64_t, int> bits;  // widths in use, by seq: the plan's, or fewer bits
  std::vector<CodedSizes::Entry> sizes;
  AdaptivePolicy::State widths;  // what the policy inside knows

  Learned write() const;
  static BudgetState read(const Learned& learned);  // Errors: see Learner
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class BudgetPolicy final : public SavePolicy, public PackPlan, public Learner, public Adjustable {
 public:
  explicit BudgetPolicy(const BudgetPolicyOptions& options);  // Errors: those of AdaptivePolicy
  Decision decide(const SaveInfo& info, const Tensor& value) override;  // Errors: no plan yet
  bool lossy() const override { return !plan_ || plan_->mode == BudgetPlan::mixed; }
  int64_t slice_bytes() const override { return plan_ ? plan_->slice_bytes : 0; }
  bool decides_by_shape() const override { return true; }
  void add_roles(PolicyRoles& roles) override;

  // Keeps tensors as `plan` says from the next step on. REQUIRES: no graph of this policy is alive.
  // Errors: a width out of range; `moved` without a file.
  void adopt(const BudgetPlan& plan);
  const std::optional<BudgetPlan>& plan() const { return plan_; }
  // The width at which all tensors together would add the predicted variance. 16 where nothing is
  // rounded. 0 before the first plan and with nearest rounding.
  double fineness() const override;
  Range fineness_range() const override { return {1, 16, 0.25}; }
  double set_fineness(double bits) override;
  // The widths in use: the plan's, or fewer bits.
  const std::map<uint64_t, int>& bits() const { return bits_; }
  AdaptivePolicy& adaptive() { return adaptive_; }
  const AdaptivePolicy& adaptive() const { return adaptive_; }

  Keeping keeping(uint64_t seq) const override;
  std::optional<int> width(uint64_t seq) const override;
  void took(uint64_t seq, int bits, int64_t bytes) override;
  std::unique_ptr<Packed> pack_again(const Tensor& tensor, const SaveInfo& info,
                                     int bits) const override {
    return adaptive_.pack_again(tensor, info, bits);
  }

  // The tensors of the last step under a mixed plan, each with a sensitivity. Each element of a
  // tensor that was not measured counts like the mean of all other elements, or 1 if no tensor was
  // measured.
  std::vector<AdaptivePolicy::Item> items() const;
  // Whether bytes() and limit() count on coding from now on, if tensors can be coded at all.
  void plan_codes(bool codes) { plans_codes_ = codes; }
  // The bytes that a tensor is expected to take at `bits`, or kRaw.
  int64_t bytes(const AdaptivePolicy::Item& item, int bits) const;
  // Sets BudgetPlan::coded of the tensors of `items` to bytes() at their widths.
  void limit(const std::vector<AdaptivePolicy::Item>& items, BudgetPlan& plan) const;
  // What coding gave so far. A planner sets it to that of another policy of the same run.
  CodedSizes& sizes() { return sizes_; }
  const CodedSizes& sizes() const { return sizes_; }
  // Did tensors take more than the plan said, since the last call?
  bool drifted() { return std::exchange(drifted_, false); }

  // The recipes of the last step, also those of BudgetPlan::kept; none with a plain plan.
  struct Recipe {
    uint64_t seq = 0;
    int64_t rebuilt = 0;  // elements of the tensor and of those on the way to it
    int64_t raw_bytes = 0;
    bool lossy = false;
  };
  const std::vector<Recipe>& recipes() const { return recipes_; }

  // Sets the widths of least predicted variance for the tensors of `items` within `bytes` of kept
  // memory. Moved tensors take no memory. Where variance hardly differs, raw is preferred, because
  // it takes no time. False, and no change, if not even the least widths fit.
  bool allocate(const std::vector<AdaptivePolicy::Item>& items, int64_t bytes,
                BudgetPlan& plan) const;
  // The predicted variance of a plan, in the unit of the sensitivities.
  static double variance(const std::vector<AdaptivePolicy::Item>& items, const BudgetPlan& plan);

  std::optional<BudgetState> state() const;  // none before the first plan
  void restore(const BudgetState& state);    // Errors: as adopt()
  Learned learned() const override { return plan_ ? state()->write() : Learned(); }
  // A plan follows from what all ranks know already.
  Learned joined(const std::vector<Learned>&) const override { return learned(); }
  bool learns_at(uint64_t /*step*/) const override { return false; }  // plans come from outside
  // An empty one leaves the plan as it is.
  void restore_learned(const Learned& learned) override {
    if (!learned.empty()) restore(BudgetState::read(learned));
  }

 private:
  AdaptivePolicy adaptive_;
  FixedPolicy exact_;
  // Widths of the fewest bytes with at least this fineness, none above the plan's. Tensors that are
  // not in `items` have the plan's width.
  std::map<uint64_t, int> coarser(const std::vector<AdaptivePolicy::Item>& items,
                                  double fineness) const;
  void use(std::map<uint64_t, int> bits);

  std::optional<BudgetPlan> plan_;
  std::map<uint64_t, int> bits_;  // widths in use under a mixed plan, by seq
  double wanted_ = 0;             // the fineness that was set; 0: the plan's
  bool nearest_ = false;
  std::vector<Recipe> recipes_;
  CodedSizes sizes_;
  bool drifted_ = false;
  bool plans_codes_ = true;
};

}  // namespace frugal::compress
