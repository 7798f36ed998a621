#include "train/planning/planner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "compress/policies/choice.h"
#include "core/log.h"
#include "ops/precision.h"
#include "train/option_error.h"
#include "train/planning/bisect.h"
#include "train/planning/bytes.h"
#include "train/policy_parts.h"
#include "train/update_time.h"

namespace frugal::train {
namespace {

using compress::AdaptivePolicy;
using compress::BudgetPlan;
using compress::BudgetPolicy;
constexpr int kRaw = AdaptivePolicy::kRaw;
// Smaller slices are not tried if the variance is at most that of this width for all tensors.
constexpr int kEnoughBits = 8;
// Tensors go to a file, or blocks are recomputed, only if the widths that fit add more variance
// than this width for all tensors.
constexpr int kGoodBits = 4;
constexpr int kMovedBits = 8;
constexpr int kRounds = 4;
constexpr int64_t kLeastSlice = int64_t{128} << 10;

double average_bits(const std::vector<AdaptivePolicy::Item>& items, const BudgetPlan& plan) {
  double bits = 0, elements = 0;
  for (const auto& item : items) {
    bits += plan.bits.at(item.seq) * static_cast<double>(item.elements);
    elements += static_cast<double>(item.elements);
  }
  return elements > 0 ? bits / elements : kRaw;
}

// The width of tensors that wait during a rebuild: about the average width of packed tensors.
int waiting_bits(const std::vector<AdaptivePolicy::Item>& items, const BudgetPlan& plan) {
  std::vector<AdaptivePolicy::Item> packed;
  for (const auto& item : items)
    if (plan.bits.at(item.seq) != kRaw) packed.push_back(item);
  return static_cast<int>(std::clamp(std::round(average_bits(packed, plan)), 2.0, 8.0));
}

constexpr const char* kPath = "budget.memory";
// Memory that kernels take for themselves: partial sums of a weight's gradient, and a little more.
// The real number depends on the machine and its threads. Plans should not, so they take this one
// wherever it is enough: it is with AVX2 and AVX-512. Kernels for SSE4.1 may take more; then steps
// on meta count them.
constexpr int64_t kWeightCopies = 2, kLittle = int64_t{128} << 10;
constexpr int64_t kLeastSamples = 2;  // that measure sensitivities
// The libraries of CUDA may take 1 / kLibraries of the peak for themselves.
constexpr int64_t kLibraries = 16;

PlannerOptions with_slices(PlannerOptions options) {
  options.choice = compress::on_device(std::move(options.choice), options.device);
  return options;
}

// The policy that sees steps on meta.
std::unique_ptr<SavePolicy> draft_of(const PlannerOptions& options) {
  compress::Choice choice = options.choice;
  if (options.moving)
    choice.offload = compress::OffloadOptions{
        .directory = std::filesystem::temp_directory_path().string(), .window = 0};
  return compress::make_policy(choice, kMeta, options.seed);
}

}  // namespace

Planner::Planner(const PlannerOptions& options, Unplanned)
    : options_(with_slices(options)),
      budget_(options.budget),
      meta_(options.run, options.batch),
      policy_(draft_of(options_)),
      draft_(PolicyParts(*policy_).budget),
      blocks_(options.checkpointed_blocks),
      batch_(options.batch),
      test_batch_(options.test_batch) {
  FRUGAL_ASSERT(draft_ != nullptr);
  reserve_ = kWeightCopies * meta_.largest_parameter() + kLittle;
  learn_items();
  if (options.device == kCpu) {
    draft_->adopt(least({slice_bytes(), 0}));
    const int64_t kernels = std::max(meta_.kernel_bytes(nullptr, batch_, blocks_),
                                     meta_.kernel_bytes(policy_.get(), batch_, blocks_));
    if (kernels + kLittle > reserve_) {
      meta_.count_kernels();
      reserve_ = kLittle;
    }
  }
  limit_ = budget_.bytes;
  if (budget_.share > 0) {
    const StepMemory whole = meta_.step(nullptr, batch_, blocks_);
    limit_ = static_cast<int64_t>(static_cast<double>(measure(whole)) * budget_.share);
  }
  workspace_limit_ = options.workspace_limit;
  if (options.device.type == DeviceType::cuda && !budget_.activations) {
    workspace_limit_ = std::min(workspace_limit_, limit_ / kLibraries);
    reserve_ += ops::library_workspace(workspace_limit_, meta_.convolves());
  }
}

Planner::Planner(const PlannerOptions& options) : Planner(options, Unplanned{}) {
  if (!has_room()) throw OptionError(kPath, advice());
  if (may_recompute()) recompute_fewest();
  if (std::optional<Planned> found = find()) planned_ = std::move(*found);
  if (!budget_.activations) reduce_test_batch();
}

bool Planner::may_recompute() {
  return options_.recompute && options_.checkpointed_blocks == 0 && meta_.blocks() > 0;
}

bool Planner::has_room() {
  const StepMemory without = smallest(batch_);
  if (fits(without)) return true;
  if (!may_recompute()) return false;
  recompute(kAllBlocks);
  const StepMemory with = smallest(batch_);
  if (fits(with)) return true;
  if (measure(without) < measure(with)) recompute(0);
  return false;
}

void Planner::recompute(int64_t blocks) {
  blocks_ = blocks;
  items_.clear();  // other tensors are saved
  learn_items();
}

// Recomputes the fewest blocks that leave room for good widths. If not even all blocks do, it
// recomputes all if no other plan fits or if that lowers the variance by much, and otherwise none.
void Planner::recompute_fewest() {
  const bool needed = blocks_ > 0;
  std::optional<Planned> found;
  double without = std::numeric_limits<double>::infinity();
  if (!needed && (found = find())) {
    without = found->variance;
    if (without <= good_variance()) return;
  }
  const auto is_enough = [&](int64_t blocks) {
    recompute(blocks);
    found = fits(smallest(batch_)) ? find() : std::nullopt;
    return found && found->variance <= good_variance();
  };
  const int64_t all = meta_.blocks();
  if (!is_enough(all)) {
    const bool helps = found && found->variance <= kWorthwhile * without;
    return recompute(needed || helps ? kAllBlocks : 0);
  }
  int64_t few = 0, many = all;
  while (many - few > 1) {
    const int64_t middle = few + (many - few) / 2;
    (is_enough(middle) ? many : few) = middle;
  }
  recompute(many == all ? kAllBlocks : many);
}

bool Planner::is_feasible(const PlannerOptions& options) {
  return Planner(options, Unplanned{}).has_room();
}

std::string Planner::advice() {
  const StepMemory least = smallest(batch_);
  std::string text = fmt::format(
      "expected at least {} bytes ({}), the smallest {} found for batches of {}; {} bytes ({}) are "
      "{} too few",
      measure(least), readable_bytes(measure(least)), budget_.activations ? "activations" : "peak",
      batch_, limit_, readable_bytes(limit_), readable_bytes(measure(least) - limit_));
  PlannerOptions fixed = options_;  // a share is of what these options take
  fixed.budget = {limit_, 0, budget_.activations};
  std::vector<std::string> ways;
  auto offer = [&](const std::string& way, const std::function<void(PlannerOptions&)>& change) {
    PlannerOptions other = fixed;
    change(other);
    if (is_feasible(other)) ways.push_back(way);
  };
  const int64_t batch = largest(batch_ - 1, [&](int64_t samples) {
    PlannerOptions other = fixed;
    other.batch = samples;
    return samples > 0 && is_feasible(other);
  });
  if (batch > 0) ways.push_back(fmt::format("loader.batch_size = {}", batch));
  if (blocks_ == 0 && !options_.run.in_backward.value_or(false))
    offer("planner.recompute = true", [](PlannerOptions& other) { other.recompute = true; });
  if (!draft_->can_move())
    offer("a folder for choice.offload with a window of 0",
          [](PlannerOptions& other) { other.moving = true; });
  const UpdateTime time = update_time(options_.run, blocks_);
  if (!keeps_gradients(time).empty() && needs_gradients(time).empty() && !options_.recompute)
    offer("trainer.in_backward = true",
          [](PlannerOptions& other) { other.run.in_backward = true; });
  if (ways.empty()) return text;
  text += ". What fits: ";
  for (size_t i = 0; i < ways.size(); ++i) text += (i == 0 ? "" : ", or ") + ways[i];
  return text;
}

void Planner::reduce_test_batch() {
  while (test_batch_ > 1 && meta_.evaluation(test_batch_, blocks_) + reserve_ > limit_)
    test_batch_ /= 2;
}

int64_t Planner::most_samples() {
  if (budget_.activations || planned_.plan.mode != compress::BudgetPlan::mixed) return batch_;
  run(planned_.plan);  // measuring repeats the decisions of this step
  const int64_t most = largest(batch_, [&](int64_t samples) {
    return meta_.measuring(*policy_, draft_->adaptive(), samples, batch_, blocks_) + reserve_ +
               margin_ <=
           limit_;
  });
  return most < std::min(kLeastSamples, batch_) ? 0 : most;
}

int64_t Planner::measure(const StepMemory& memory) const {
  return budget_.activations ? memory.saved() : memory.peak + reserve_;
}

StepMemory Planner::run(const BudgetPlan& plan, int64_t batch) {
  draft_->adopt(plan);
  return meta_.step(policy_.get(), batch, blocks_);
}

std::vector<int64_t> Planner::slices() const {
  const int64_t largest = slice_bytes();
  std::vector<int64_t> all{largest};
  const int64_t from = largest > 0 ? largest / 4 : SavePolicy::kSliceBytes;
  for (int64_t slice = from; all.size() < 3 && slice >= kLeastSlice; slice /= 4)
    all.push_back(slice);
  return all;
}

// Finds the tensors for which a mixed plan has widths. The trial packs them all, so that each is
// known with its bytes as a raw tensor.
void Planner::learn_items() {
  BudgetPlan plan;
  plan.mode = BudgetPlan::mixed;
  plan.slice_bytes = slice_bytes();
  for (const auto& item : items_) plan.bits[item.seq] = draft_->adaptive().least_bits(item);
  run(plan);
  items_ = draft_->items();
}

BudgetPlan Planner::least(const Kind& kind) const {
  BudgetPlan plan;
  plan.mode = BudgetPlan::mixed;
  plan.slice_bytes = kind.slice_bytes;
  plan.moved = kind.moved;
  plan.margin = margin_;
  for (const auto& item : items_) plan.bits[item.seq] = draft_->adaptive().least_bits(item);
  plan.waiting_bits = waiting_bits(items_, plan);
  draft_->limit(items_, plan);
  return plan;
}

std::optional<Planned> Planner::find_mixed(const Kind& kind) {
  Planned found;
  found.plan = least(kind);
  found.memory = run(found.plan);
  if (!fits(found.memory)) return {};
  search_bytes(*draft_, items_, found.plan, [&](int64_t bytes) {
    BudgetPlan plan = found.plan;
    if (!draft_->allocate(items_, bytes, plan)) return false;
    plan.waiting_bits = waiting_bits(items_, plan);
    const StepMemory memory = run(plan);
    if (!fits(memory)) return false;
    found.plan = std::move(plan);
    found.memory = memory;
    return true;
  });
  settle(found);
  found.variance = BudgetPolicy::variance(items_, found.plan);
  found.average_bits = average_bits(items_, found.plan);
  found.items = items_;
  for (auto& item : found.items) item.bits = found.plan.bits.at(item.seq);
  return found;
}

void Planner::settle(Planned& found) {
  std::set<uint64_t> settled;
  for (int round = 0; round < kRounds; ++round) {
    Items free;
    for (const auto& item : items_) {
      if (settled.contains(item.seq)) continue;
      const int bits = found.plan.bits.at(item.seq);
      const bool moves = item.seq < found.plan.moved;
      bool highest = bits == kRaw || (moves && bits >= kMovedBits);
      if (!highest) {
        BudgetPlan more = found.plan;
        more.bits[item.seq] = bits == 16 ? kRaw : bits + 1;
        draft_->limit({item}, more);
        highest = !fits(run(more));
      }
      if (highest)
        settled.insert(item.seq);
      else
        free.push_back(item);
    }
    if (free.empty()) return;
    bool better = false;
    search_bytes(*draft_, free, found.plan, [&](int64_t bytes) {
      BudgetPlan plan = found.plan;
      if (!draft_->allocate(free, bytes, plan)) return false;
      const StepMemory memory = run(plan);
      if (!fits(memory)) return false;
      better = better || plan.bits != found.plan.bits;
      found.plan = std::move(plan);
      found.memory = memory;
      return true;
    });
    if (!better) return;
  }
}

double Planner::good_variance() const { return variance_at(kGoodBits); }

double Planner::variance_at(int bits) const {
  BudgetPlan plan;
  plan.mode = BudgetPlan::mixed;
  for (const auto& item : items_)
    plan.bits[item.seq] = std::max(bits, draft_->adaptive().least_bits(item));
  return BudgetPolicy::variance(items_, plan);
}

// Moves the fewest tensors to the file with which widths as good as kGoodBits fit, or all tensors.
std::optional<Planned> Planner::find_moved(const Planned* unmoved) {
  const double enough = good_variance();
  if (items_.empty() || (unmoved != nullptr && unmoved->variance <= enough)) return {};
  for (const int64_t slice : slices()) {
    auto with = [&](size_t count) { return find_mixed({slice, items_[count - 1].seq + 1}); };
    size_t few = 0, many = items_.size();
    std::optional<Planned> best = with(many);
    if (!best) continue;
    while (best->variance <= enough && many - few > 1) {
      const size_t middle = few + (many - few) / 2;
      std::optional<Planned> found = with(middle);
      if (found && found->variance <= enough) {
        best = std::move(found);
        many = middle;
      } else {
        few = middle;
      }
    }
    if (unmoved == nullptr || best->variance <= kWorthwhile * unmoved->variance) return best;
  }
  return {};
}

// When the bytes of codes are known, coding may save fewer bytes than decoding takes. Then the plan
// has no codes.
std::optional<Planned> Planner::find() {
  std::optional<Planned> best = find_plan();
  const bool known = !draft_->sizes().empty();
  if (!options_.choice.entropy || (best && (best->plan.mode != BudgetPlan::mixed || !known)))
    return best;
  draft_->plan_codes(false);
  std::optional<Planned> plain = find_plan();
  draft_->plan_codes(true);
  if (plain && (!best || plain->variance < best->variance)) best = std::move(plain);
  return best;
}

std::optional<Planned> Planner::find_plan() {
  for (const BudgetPlan::Mode mode : {BudgetPlan::plain, BudgetPlan::exact}) {
    Planned found;
    found.plan.mode = mode;
    found.plan.slice_bytes = slice_bytes();
    found.plan.margin = margin_;
    found.memory = run(found.plan);
    if (!fits(found.memory)) continue;
    if (mode != BudgetPlan::plain) keep_recipes(found);
    return found;
  }
  learn_items();
  std::optional<Planned> best;
  for (const int64_t slice : slices()) {
    std::optional<Planned> found = find_mixed({slice, 0});
    if (found && (!best || found->variance <= kWorthwhile * best->variance))
      best = std::move(found);
    // Slices matter only after the forward pass. A budget of activations ends there.
    if (best && (budget_.activations || best->variance <= variance_at(kEnoughBits))) break;
  }
  if (draft_->can_move())
    if (std::optional<Planned> moved = find_moved(best ? &*best : nullptr)) best = std::move(moved);
  if (best) keep_recipes(*best);
  return best;
}

// Keeps results of recipes raw where they fit: lossy ones first, then those that save most time for
// their bytes.
void Planner::keep_recipes(Planned& found) {
  run(found.plan);
  std::vector<BudgetPolicy::Recipe> recipes = draft_->recipes();
  const auto worth = [](const BudgetPolicy::Recipe& recipe) {
    return static_cast<double>(recipe.rebuilt) / static_cast<double>(recipe.raw_bytes);
  };
  std::stable_sort(recipes.begin(), recipes.end(), [&](const auto& a, const auto& b) {
    return a.lossy != b.lossy ? a.lossy : worth(a) > worth(b);
  });
  for (const BudgetPolicy::Recipe& recipe : recipes) {
    BudgetPlan more = found.plan;
    more.kept.insert(recipe.seq);
    const StepMemory memory = run(more);
    if (!fits(memory)) continue;
    found.plan = std::move(more);
    found.memory = memory;
  }
}

StepMemory Planner::smallest(int64_t batch) {
  std::vector<BudgetPlan> plans(1);
  plans[0].slice_bytes = 0;
  BudgetPlan exact;
  exact.mode = BudgetPlan::exact;
  plans.push_back(exact);
  for (const int64_t slice : slices()) {
    plans.push_back(least({slice, 0}));
    if (draft_->can_move() && !items_.empty())
      plans.push_back(least({slice, items_.back().seq + 1}));
  }
  StepMemory best;
  for (const BudgetPlan& plan : plans) {
    const StepMemory memory = run(plan, batch);
    if (&plan == plans.data() || measure(memory) < measure(best)) best = memory;
  }
  return best;
}

void Planner::plan_again(BudgetPolicy& policy) {
  replace_plan(policy);
  const auto& coded = policy.plan()->coded;
  if (std::any_of(coded.begin(), coded.end(), [](const auto& each) { return each.second > 0; }))
    policy.sizes().next_period();
}

void Planner::replace_plan(BudgetPolicy& policy) {
  if (policy.plan()) margin_ = std::max(margin_, policy.plan()->margin);
  learn_items();
  std::set<uint64_t> known;
  for (const auto& item : items_) known.insert(item.seq);
  const AdaptivePolicy::State measured = policy.adaptive().state();
  for (const auto& item : measured.items)
    if (item.sensitivity && known.contains(item.seq))
      draft_->adaptive().measured(item.seq, *item.sensitivity, item.measured);
  items_ = draft_->items();
  draft_->sizes() = policy.sizes();
  std::optional<Planned> found = find();
  if (found)
    planned_ = std::move(*found);
  else if (feasible_)
    log().warn(
        "memory budget: steps take {} more than planned, and then the smallest plan misses the "
        "budget by {}; the last one stays. Raise the budget by that, or take smaller batches",
        readable_bytes(margin_), readable_bytes(measure(smallest(batch_)) + margin_ - limit_));
  feasible_ = found.has_value();
  adopt(policy);
}

Planner::State Planner::state() const {
  return {planned_.memory, planned_.variance, planned_.average_bits,
          planned_.items,  margin_,           feasible_};
}

void Planner::resume(const State& state, const BudgetPolicy& policy) {
  FRUGAL_CHECK(policy.plan().has_value(), "[budget] expected a plan in the checkpoint, got none");
  FRUGAL_CHECK(state.margin >= 0 && state.variance >= 0 && state.average_bits >= 0,
               "[budget] expected a margin, a variance and bits of at least 0, got {}, {} and {}",
               state.margin, state.variance, state.average_bits);
  const BudgetPlan& plan = *policy.plan();
  for (const auto& item : state.items)
    FRUGAL_CHECK(plan.bits.contains(item.seq),
                 "[budget] expected a plan with a width for tensor {}, got none", item.seq);
  planned_ = {plan, state.memory, state.variance, state.items, state.average_bits};
  margin_ = state.margin;
  feasible_ = state.feasible;
}

bool Planner::observe(const StepMemory& taken, BudgetPolicy& policy) {
  const bool drifted = policy.drifted();
  const int64_t all = budget_.activations ? taken.saved() : taken.peak;
  const int64_t more = all - measure(planned_.memory);
  const bool exceeded = all > limit_ && more > 0;
  const bool searched = !feasible_ && more <= margin_;
  if (exceeded) margin_ = std::max(margin_, more);
  if ((!exceeded || searched) && !drifted) return false;
  replace_plan(policy);
  return true;
}

PlanReport Planner::report() const {
  static constexpr const char* kModes[] = {"plain", "exact", "mixed"};
  const BudgetPlan& plan = planned_.plan;
  PlanReport report;
  report.kind = kModes[plan.mode];
  report.limit_bytes = limit_;
  report.of_activations = budget_.activations;
  report.peak_bytes = planned_.memory.peak;
  report.reserve_bytes = reserve_;
  report.activation_bytes = planned_.memory.saved();
  report.predicted_variance = planned_.variance;
  report.average_bits = planned_.average_bits;
  report.tensors = static_cast<int64_t>(plan.bits.size());
  for (const auto& [seq, bits] : plan.bits) report.raw_tensors += bits == kRaw;
  report.kept_recipes = static_cast<int64_t>(plan.kept.size());
  for (const auto& item : planned_.items)
    if (const auto found = plan.coded.find(item.seq);
        found != plan.coded.end() && found->second > 0)
      report.entropy_saved_bytes += draft_->adaptive().bytes(item, item.bits) - found->second;
  report.moved_before = plan.moved;
  report.slice_bytes = plan.slice_bytes;
  report.waiting_bits = plan.waiting_bits;
  report.checkpointed_blocks = blocks_;
  report.margin_bytes = plan.margin;
  report.feasible = feasible_;
  return report;
}

}  // namespace frugal::train
