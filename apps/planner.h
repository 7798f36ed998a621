// Planner: from a number of bytes to a plan of how each saved tensor is kept.
//
// A forward and a backward pass on `meta` gives the peak of any plan in about a millisecond,
// exactly but for what kernels take for themselves, for which reserve() is left. So plans are
// tried. From the fastest kind of plan to the smallest, the first that fits is taken:
//   everything raw; raw and recipes; recipes and, for each tensor, raw or 1 to 16 bits, or 1 to 8
//   in a file (compression.offload).
// Where none fits, or none with good widths, the same with blocks recomputed
// (compression.budget.recompute): the first ones, as few as let the widths be good, or all.
// Widths are those of least predicted variance (compress/policies/allocate.h) for a number of kept
// bytes, the largest whose peak fits. Then what is not alive at the peak takes what room it has:
// tensors that cannot have a bit more are settled, the others share what is left, and so on.
// Smaller slices (compression.advanced.slice_bytes, to a sixteenth) and a file for the tensors that
// wait longest are used where they lower the variance by much, since they cost time. Then recipes
// that fit are kept raw and not rebuilt, lossy ones first, then those that rebuild most for their
// bytes. Until sensitivities are measured, each element counts alike. What an entropy stage saves
// counts as far as it was seen (compress/policies/budget_policy.h), so the first plan counts on
// nothing, and later ones code nothing where that predicts less variance.
//
// With equal configurations, sensitivities and steps so far, plans are equal.
#pragma once
#include "apps/meta_step.h"
#include "compress/policies/budget_policy.h"

namespace frugal::apps {

// What compression.memory_budget says: bytes ("2 GiB", "500 MB"), or a share of what the same run
// takes with everything raw ("1/6", or the same as "6x"); of the peak, or with " activations" of
// what is kept when backward begins ("13 MiB activations", "1/16 activations").
struct Budget {
  int64_t bytes = 0;
  double share = 0;  // instead of bytes, where not 0
  bool activations = false;
};
Budget parse_budget(const std::string& text, const std::string& path);  // Errors: ConfigError

struct Planned {
  compress::BudgetPlan plan;
  StepMemory memory;    // of a step, as meta counts it
  double variance = 0;  // predicted, in the unit of the sensitivities
  std::vector<compress::AdaptivePolicy::Item> items = {};  // of a mixed plan, with its bits
  double average_bits = 32;
};

class Planner {
 public:
  // A first plan. REQUIRES: resolved, compression.memory_budget set, policy `budget`.
  // Errors: ConfigError at compression.memory_budget if there is no plan within the budget: by how
  // much the smallest misses it, and which settings would fit, each tried.
  explicit Planner(const Config& config);
  // Is there a plan? Errors: ConfigError for a budget that says nothing.
  static bool is_feasible(const Config& config);

  const Planned& planned() const { return planned_; }
  int64_t limit() const { return limit_; }  // of the peak and the reserve, or of activations
  int64_t reserve() const { return reserve_; }
  bool of_activations() const { return budget_.activations; }
  // Settings of the run that the budget asks for: checkpointing, a smaller batch where an
  // evaluation would take more than the budget, and less workspace for CUDA's libraries.
  void apply(Config& config) const;
  // With how many samples of a batch sensitivities may be measured under the plan; 0: not at all.
  int64_t most_samples();

  // Gives `policy` the plan; then plans again with its sensitivities, which may have changed.
  // Keeps the plan it has where there is none within the budget any more, and warns once.
  void adopt(compress::BudgetPolicy& policy) const { policy.adopt(planned_.plan); }
  void plan_again(compress::BudgetPolicy& policy);
  // For checkpoints: what is known beside the plan, which the policy keeps.
  struct State {
    StepMemory memory;  // these four: see Planned
    double variance = 0, average_bits = 32;
    std::vector<compress::AdaptivePolicy::Item> items = {};
    int64_t margin = 0;    // bytes that steps took more than planned
    bool feasible = true;  // did the last search find a plan?
  };
  State state() const;
  // Goes on with `state` and the plan that `policy` has from the same checkpoint. Errors: a policy
  // without a plan; bytes below 0; items that the plan has no widths for.
  void resume(const State& state, const compress::BudgetPolicy& policy);
  // After a step of the run: if it took more than planned and than the budget, plans again with
  // so much less; if tensors would have taken more than was expected of their codes, with what they
  // took; and says true.
  bool observe(const StepMemory& taken, compress::BudgetPolicy& policy);

  Json report() const;                                  // the plan in numbers, for metrics
  int64_t meta_steps() const { return meta_.steps(); }  // so far

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
  Planner(const Config& config, Unplanned);
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
  double variance_at(int bits) const;  // with these everywhere
  double good_variance() const;
  void learn_items();
  compress::BudgetPlan least(const Kind& kind) const;
  std::vector<int64_t> slices() const;
  StepMemory smallest(int64_t batch);
  std::string advice();
  void reduce_test_batch();

  Config config_;
  Budget budget_;
  MetaStep meta_;
  std::unique_ptr<SavePolicy> policy_;
  compress::BudgetPolicy* draft_ = nullptr;  // in policy_
  int64_t blocks_ = 0;                       // that are recomputed, the first ones
  int64_t batch_ = 0, reserve_ = 0, limit_ = 0, margin_ = 0;
  int64_t test_batch_ = 0, workspace_limit_ = 0;
  bool feasible_ = true;  // did the last search find a plan?
  Items items_;
  Planned planned_;
};

}  // namespace frugal::apps
