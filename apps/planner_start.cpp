// What a planner does once: reads the budget, finds the first plan, or says what would be feasible.
#include <cmath>
#include <filesystem>
#include <limits>
#include <regex>

#include "apps/cli/progress.h"
#include "apps/config/config_table.h"
#include "apps/config/make_model.h"
#include "apps/config/make_policy.h"
#include "apps/config/resolve.h"
#include "apps/planner.h"
#include "apps/planner_search.h"
#include "compress/offload/file_store.h"
#include "core/quoted.h"
#include "ops/precision.h"

namespace frugal::apps {
namespace {

constexpr const char* kPath = "compression.memory_budget";
// What kernels take for themselves: partial sums of a weight's gradient, and less. It depends on
// the machine and its threads; the plan must not.
constexpr int64_t kWeights = 2, kLittle = int64_t{128} << 10;
constexpr int64_t kLeastSamples = 2;  // that measure sensitivities
// CUDA's libraries may take this share of a peak for themselves.
constexpr int64_t kLibraries = 16;
constexpr size_t kLongestBudget = 64;  // characters

}  // namespace

Budget parse_budget(const std::string& text, const std::string& path) {
  static const std::regex whole("(.*?)( activations)?"), ratio("([0-9.]+) */ *([0-9.]+)"),
      times("([0-9]+([.][0-9]+)?) *x"), number("[0-9]+([.][0-9]+)?");
  const auto wrong = [&] {
    return ConfigError(path, fmt::format("expected bytes such as \"2 GiB\", or a share of what "
                                         "takes no compression such as \"1/6\" or \"6x\", with "
                                         "\" activations\" not of the peak; got {}",
                                         in_quotes(text)));
  };
  // std::regex recurses for each character, so a long text would overflow the stack.
  if (text.size() > kLongestBudget) throw wrong();
  const auto number_of = [&](const std::string& digits) {
    try {
      return std::stod(digits);
    } catch (const std::out_of_range&) {
      throw wrong();
    }
  };
  Budget budget;
  std::smatch parts, pieces;
  std::regex_match(text, parts, whole);
  budget.activations = parts[2].matched;
  const std::string amount = parts[1];
  if (std::regex_match(amount, pieces, times)) {
    budget.share = 1 / number_of(pieces[1]);
  } else if (std::regex_match(amount, pieces, ratio)) {
    const std::string over = pieces[1], under = pieces[2];
    if (!std::regex_match(over, number) || !std::regex_match(under, number)) throw wrong();
    budget.share = number_of(over) / number_of(under);
  } else if (std::regex_match(amount, std::regex(kBytesPattern))) {
    budget.bytes = parse_bytes(amount, path);
    if (budget.bytes <= 0) throw wrong();
    return budget;
  } else {
    throw wrong();
  }
  if (!(budget.share > 0 && budget.share <= 1)) throw wrong();
  return budget;
}

Planner::Planner(const Config& config, Unplanned)
    : config_(config),
      budget_(parse_budget(config.compression.memory_budget, kPath)),
      meta_(config),
      policy_(make_draft_policy(config.compression, static_cast<uint64_t>(config.run.seed))),
      draft_(find_in<compress::BudgetPolicy>(*policy_)),
      blocks_(checkpointed_blocks(config.train)),
      batch_(config.data.batch_size),
      test_batch_(config.data.test_batch_size) {
  FRUGAL_ASSERT(draft_ != nullptr);
  reserve_ = kWeights * meta_.largest_parameter() + kLittle;
  if (draft_->can_move()) reserve_ += compress::FileStore::kBufferBytes;
  limit_ = budget_.bytes;
  if (budget_.share > 0) {
    const StepMemory whole = meta_.step(nullptr, batch_, blocks_);
    limit_ = static_cast<int64_t>(static_cast<double>(measure(whole)) * budget_.share);
  }
  workspace_limit_ = config.run.workspace_limit;
  if (Device::parse(config.run.device).type == DeviceType::cuda && !budget_.activations) {
    workspace_limit_ = std::min(workspace_limit_, limit_ / kLibraries);
    reserve_ += ops::library_workspace(workspace_limit_, meta_.convolves());
  }
  learn_items();
}

Planner::Planner(const Config& config) : Planner(config, Unplanned{}) {
  if (!has_room()) throw ConfigError(kPath, advice());
  if (may_recompute()) recompute_fewest();
  if (std::optional<Planned> found = find()) planned_ = std::move(*found);
  if (!budget_.activations) reduce_test_batch();
}

bool Planner::may_recompute() {
  return config_.compression.budget_recompute && !config_.train.checkpointing && meta_.blocks() > 0;
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

// The fewest blocks that leave room for good widths. Where not even all do: all if that is needed
// or lowers the variance by much, else none.
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

bool Planner::is_feasible(const Config& config) { return Planner(config, Unplanned{}).has_room(); }

std::string Planner::advice() {
  const StepMemory least = smallest(batch_);
  std::string text = fmt::format(
      "expected at least {} bytes ({}), the smallest {} found for batches of {}; {} bytes ({}) are "
      "{} too few",
      measure(least), readable_bytes(measure(least)), budget_.activations ? "activations" : "peak",
      batch_, limit_, readable_bytes(limit_), readable_bytes(measure(least) - limit_));
  Config fixed = config_;  // a share is of what this configuration takes
  fixed.compression.memory_budget =
      fmt::format("{} B{}", limit_, budget_.activations ? " activations" : "");
  std::vector<std::string> ways;
  auto offer = [&](const std::string& way, const std::function<void(Config&)>& change) {
    Config other = fixed;
    change(other);
    if (is_feasible(other)) ways.push_back(way);
  };
  const int64_t batch = largest(batch_ - 1, [&](int64_t samples) {
    Config other = fixed;
    other.data.batch_size = samples;
    return samples > 0 && is_feasible(other);
  });
  if (batch > 0) ways.push_back(fmt::format("data.batch_size = {}", batch));
  if (blocks_ == 0 && !config_.optim.in_backward)
    offer("compression.budget.recompute = true",
          [](Config& other) { other.compression.budget_recompute = true; });
  if (!draft_->can_move())
    offer("a folder for compression.offload with a window of 0", [](Config& other) {
      other.compression.offload = std::filesystem::temp_directory_path().string();
      other.compression.offload_window = 0;
    });
  if (!config_.optim.in_backward && config_.optim.clip_norm == 0 &&
      config_.train.gradient_accumulation == 1 && blocks_ == 0 &&
      !config_.compression.budget_recompute)
    offer("optim.in_backward = true", [](Config& other) { other.optim.in_backward = true; });
  if (ways.empty()) return text;
  text += ". What fits: ";
  for (size_t i = 0; i < ways.size(); ++i) text += (i == 0 ? "" : ", or ") + ways[i];
  return text;
}

void Planner::reduce_test_batch() {
  while (test_batch_ > 1 && meta_.evaluation(test_batch_) + reserve_ > limit_) test_batch_ /= 2;
}

int64_t Planner::most_samples() {
  if (budget_.activations || planned_.plan.mode != compress::BudgetPlan::mixed) return batch_;
  run(planned_.plan);  // whose decisions measuring repeats
  const int64_t most = largest(batch_, [&](int64_t samples) {
    return meta_.measuring(*policy_, draft_->adaptive(), samples, batch_, blocks_) + reserve_ +
               margin_ <=
           limit_;
  });
  return most < std::min(kLeastSamples, batch_) ? 0 : most;
}

}  // namespace frugal::apps
