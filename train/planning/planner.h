// Planner: from a number of bytes to a plan of how each saved tensor is kept.
//
// A forward and a backward pass on `meta` tells the peak of any plan in about a millisecond. The
// peak is exact, except for the memory that kernels take for themselves; reserve() leaves room for
// that. So the planner tries plans. It takes the first kind of plan that fits, from the fastest to
// the smallest:
//   1. everything is raw;
//   2. tensors are raw or rebuilt by recipes;
//   3. as 2, but each tensor is raw or packed in 1 to 16 bits, or in 1 to 8 bits in a file
//      (compression.offload).
// If no plan fits, or the widths of the one that fits are poor, the planner recomputes blocks
// (compression.budget.recompute): the first blocks, as few as give good widths, or all of them.
//
// For a number of kept bytes, widths are those of least predicted variance
// (compress/policies/allocate.h). The planner takes the largest number of bytes whose peak fits.
// Tensors that are not alive at the peak then get more bits: a tensor that cannot have one more bit
// is settled, the others share the room that is left, and so on.
// Smaller slices (compression.advanced.slice_bytes, down to a sixteenth) and a file for the tensors
// that wait longest cost time. They are used where they lower the variance by much.
// Last, results of recipes for which there is room are kept raw and not rebuilt: lossy ones first,
// then those that rebuild most for their bytes.
//
// Until sensitivities are measured, each element counts alike. An entropy stage counts with the
// bytes that it was seen to save (compress/policies/budget_policy.h). So the first plan counts on
// no saved bytes, and a later plan codes a tensor only if that predicts less variance.
//
// With equal configurations, sensitivities and steps so far, plans are equal, unless kernels of one
// machine take more for themselves than reserve() leaves on the others: peaks count these.
#pragma once
#include <string>

#include "compress/policies/budget_policy.h"
#include "train/planning/meta_step.h"
#include "train/planning/planned_run.h"

namespace frugal::train {

// What a run must do beside keeping to the plan.
struct PlannedSettings {
  int64_t checkpointed_blocks = 0;
  int64_t test_batch = 0;       // with more samples an evaluation would exceed the budget
  int64_t workspace_limit = 0;  // the most bytes that CUDA's libraries may take
};

// A plan, and what a step takes under it.
struct Planned {
  compress::BudgetPlan plan;
  StepMemory memory;    // what a step takes, as meta counts it
  double variance = 0;  // the predicted one, in the unit of the sensitivities
  // The tensors of a mixed plan, with the bits of each.
  std::vector<compress::AdaptivePolicy::Item> items = {};
  double average_bits = 32;
};

class Planner {
 public:
  // Makes a first plan. Errors: OptionError at "budget.memory" if there is no plan within
  // the budget: by how much the smallest misses it, and which settings would fit, each tried.
  explicit Planner(const PlannerOptions& options);
  static bool is_feasible(const PlannerOptions& options);  // is there a plan?

  const Planned& planned() const { return planned_; }
  // The bytes that the peak and the reserve may take together, or that activations may take.
  int64_t limit() const { return limit_; }
  int64_t reserve() const { return reserve_; }
  bool of_activations() const { return budget_.activations; }
  PlannedSettings settings() const { return {blocks_, test_batch_, workspace_limit_}; }
  // The most samples of a batch with which sensitivities may be measured under the plan; 0: they
  // may not be measured.
  int64_t most_samples();

  // Gives `policy` the plan; then plans again with its sensitivities, which may have changed.
  // Keeps the plan it has where there is none within the budget any more, and warns once.
  void adopt(compress::BudgetPolicy& policy) const { policy.adopt(planned_.plan); }
  void plan_again(compress::BudgetPolicy& policy);
  // What checkpoints keep of a planner. The policy keeps the plan itself.
  struct State {
    // The four members of Planned that have these names.
    StepMemory memory;
    double variance = 0, average_bits = 32;
    std::vector<compress::AdaptivePolicy::Item> items = {};
    int64_t margin = 0;    // the bytes that steps took beyond the plan
    bool feasible = true;  // did the last search find a plan?
  };
  State state() const;
  // Goes on with `state` and the plan that `policy` has from the same checkpoint. Errors: a policy
  // without a plan; a margin, a variance or average_bits below 0; items that the plan has no widths
  // for.
  void resume(const State& state, const compress::BudgetPolicy& policy);
  // Called after each step of the run. Plans again, and returns true, in two cases. If the step
  // took more than planned and more than the budget, the new plan has so many bytes less. If
  // tensors would have taken more than was expected of their codes, it counts what they took.
  bool observe(const StepMemory& taken, compress::BudgetPolicy& policy);

  PlanReport report() const;
  int64_t meta_steps() const { return meta_.steps(); }  // counts those so far

 private:
  using Items = std::vector<compress::AdaptivePolicy::Item>;
  struct Kind {
    int64_t slice_bytes = 0;
    uint64_t moved = 0;
  };
  struct Unplanned {};
  // What costs time, smaller slices, a file or recomputation, must leave at most this share of the
  // variance.
  static constexpr double kWorthwhile = 0.75;
  Planner(const PlannerOptions& options, Unplanned);
  bool has_room();
  bool may_recompute();
  void recompute(int64_t blocks);
  void recompute_fewest();
  int64_t measure(const StepMemory& memory) const;
  bool fits(const StepMemory& memory) const { return measure(memory) + margin_ <= limit_; }
  StepMemory run(const compress::BudgetPlan& plan, int64_t batch);
  StepMemory run(const compress::BudgetPlan& plan) { return run(plan, batch_); }
  std::optional<Planned> find();
  std::optional<Planned> find_plan();
  std::optional<Planned> find_mixed(const Kind& kind);
  std::optional<Planned> find_moved(const Planned* unmoved);
  void settle(Planned& found);
  void keep_recipes(Planned& found);
  void replace_plan(compress::BudgetPolicy& policy);
  double variance_at(int bits) const;  // the predicted one, if all items have so many bits
  double good_variance() const;
  void learn_items();
  compress::BudgetPlan least(const Kind& kind) const;
  std::vector<int64_t> slices() const;
  int64_t slice_bytes() const { return options_.choice.keep().slice_bytes_here(); }
  StepMemory smallest(int64_t batch);
  std::string advice();
  void reduce_test_batch();

  PlannerOptions options_;
  Budget budget_;
  MetaStep meta_;
  std::unique_ptr<SavePolicy> policy_;
  compress::BudgetPolicy* draft_ = nullptr;  // lies in policy_
  int64_t blocks_ = 0;                       // so many of the first blocks are recomputed
  int64_t batch_ = 0, reserve_ = 0, limit_ = 0, margin_ = 0;
  int64_t test_batch_ = 0, workspace_limit_ = 0;
  bool feasible_ = true;  // did the last search find a plan?
  Items items_;
  Planned planned_;
};

}  // namespace frugal::train
