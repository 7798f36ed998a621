#include "compress/budget_policy.h"

#include <algorithm>
#include <cmath>

#include "compress/allocate.h"

namespace frugal::compress {
namespace {

using Item = AdaptivePolicy::Item;
constexpr int kRaw = AdaptivePolicy::kRaw;
constexpr int kMaxBits = 16;
// What is moved costs no memory, and from here on more bits hardly lower the variance.
constexpr int kMovedBits = 8;
// Packing costs time, which counts after variance: as much as so many bits add to an average
// element.
constexpr int kTimeBits = 16;

FixedPolicyOptions at(const FixedPolicyOptions& keep, const char* level) {
  FixedPolicyOptions options = keep;
  options.level = level;
  options.bits = 0;
  options.recipes = true;
  return options;
}

std::shared_ptr<AdaptivePolicy> adaptive_of(const BudgetPolicyOptions& options) {
  AdaptiveOptions adaptive;
  adaptive.keep = at(options.keep, "L2");
  return std::make_shared<AdaptivePolicy>(adaptive);
}

}  // namespace

BudgetPolicy::BudgetPolicy(const BudgetPolicyOptions& options)
    : BudgetPolicy(adaptive_of(options), options) {}

BudgetPolicy::BudgetPolicy(std::shared_ptr<AdaptivePolicy> adaptive,
                           const BudgetPolicyOptions& options)
    : WrappingPolicy(adaptive), adaptive_(std::move(adaptive)), exact_(at(options.keep, "L0")) {
  if (!options.file.directory.empty()) store_ = std::make_shared<PayloadStore>(options.file);
}

Decision BudgetPolicy::decide(const SaveInfo& info, const Tensor& value) {
  FRUGAL_CHECK(plan_.has_value(), "[budget] expected a plan before the first step, got none");
  if (plan_->mode == BudgetPlan::plain) return {Decision::raw};
  if (plan_->mode == BudgetPlan::exact) return exact_.decide(info, value);
  Decision decision = adaptive_->decide(info, value);
  if (decision.what == Decision::pack && info.seq < plan_->moved) {
    const Codec& codec = *decision.codec;
    decision.codec = &moving_.try_emplace(&codec, codec, store_).first->second;
  }
  return decision;
}

void BudgetPolicy::adopt(const BudgetPlan& plan) {
  FRUGAL_CHECK(plan.moved == 0 || can_move(),
               "[budget] expected a folder for a plan that moves tensors to a file");
  adaptive_->set_waiting_bits(plan.waiting_bits);
  for (const auto& [seq, bits] : plan.bits) adaptive_->set_bits(seq, bits);
  plan_ = plan;
}

std::vector<Item> BudgetPolicy::items() const {
  std::vector<Item> all = adaptive_->items();
  double known = 0, elements = 0;
  for (const Item& item : all) {
    if (!item.sensitivity) continue;
    known += *item.sensitivity;
    elements += static_cast<double>(item.elements);
  }
  const double each = known > 0 ? known / elements : 1;
  for (Item& item : all)
    if (!item.sensitivity) item.sensitivity = each * static_cast<double>(item.elements);
  return all;
}

bool BudgetPolicy::allocate(const std::vector<Item>& items, int64_t bytes, BudgetPlan& plan) const {
  double sum = 0, elements = 0;
  for (const Item& item : items) {
    sum += *item.sensitivity;
    elements += static_cast<double>(item.elements);
  }
  const double time = elements > 0 ? sum / elements * step_variance(kTimeBits) : 0;
  std::vector<std::vector<Option>> options;
  std::vector<std::vector<int>> widths;
  for (const Item& item : items) {
    const bool moves = item.seq < plan.moved;
    auto& each = options.emplace_back();
    auto& width = widths.emplace_back();
    const int least = adaptive_->least_bits(item);
    for (int bits = least; bits <= (moves ? std::max(kMovedBits, least) : kMaxBits); ++bits) {
      const double cost = *item.sensitivity * AdaptivePolicy::variance(item, bits) +
                          time * static_cast<double>(item.elements);
      each.push_back({cost, moves ? 0 : adaptive_->bytes(item, bits)});
      width.push_back(bits);
    }
    if (moves) continue;
    each.push_back({0, adaptive_->bytes(item, kRaw)});
    width.push_back(kRaw);
  }
  const Allocation best = compress::allocate(options, bytes);
  if (!best.feasible) return false;
  for (size_t i = 0; i < items.size(); ++i)
    plan.bits[items[i].seq] = widths[i][static_cast<size_t>(best.choice[i])];
  return true;
}

double BudgetPolicy::variance(const std::vector<Item>& items, const BudgetPlan& plan) {
  if (plan.mode != BudgetPlan::mixed) return 0;
  double sum = 0;
  for (const Item& item : items)
    sum += *item.sensitivity * AdaptivePolicy::variance(item, plan.bits.at(item.seq));
  return sum;
}

std::vector<double> BudgetPolicy::learned() const {
  if (!plan_) return {};
  std::vector<double> numbers = {
      static_cast<double>(plan_->mode), static_cast<double>(plan_->slice_bytes),
      static_cast<double>(plan_->waiting_bits), static_cast<double>(plan_->moved),
      static_cast<double>(plan_->margin)};
  for (const auto& [seq, bits] : plan_->bits) {
    numbers.push_back(static_cast<double>(seq));
    numbers.push_back(bits);
  }
  return numbers;
}

void BudgetPolicy::restore_learned(const std::vector<double>& numbers) {
  if (numbers.empty()) return;
  constexpr double kLargest = 0x1p53;
  constexpr size_t kHead = 5;
  const bool whole = std::all_of(numbers.begin(), numbers.end(), [](double number) {
    return number >= 0 && number <= kLargest && number == std::trunc(number);
  });
  FRUGAL_CHECK(whole && numbers.size() >= kHead && numbers.size() % 2 == kHead % 2 &&
                   numbers[0] <= 2 && numbers[2] <= kMaxBits,
               "[budget] expected a plan as learned() gives it, got {} numbers", numbers.size());
  BudgetPlan plan;
  plan.mode = static_cast<BudgetPlan::Mode>(numbers[0]);
  plan.slice_bytes = static_cast<int64_t>(numbers[1]);
  plan.waiting_bits = static_cast<int>(numbers[2]);
  plan.moved = static_cast<uint64_t>(numbers[3]);
  plan.margin = static_cast<int64_t>(numbers[4]);
  for (size_t i = kHead; i < numbers.size(); i += 2)
    plan.bits[static_cast<uint64_t>(numbers[i])] =
        static_cast<int>(std::min<double>(numbers[i + 1], kLargest / (1 << 30)));
  adopt(plan);
}

}  // namespace frugal::compress
