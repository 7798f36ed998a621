#include "compress/policies/budget_policy.h"

#include <algorithm>
#include <cmath>

#include "compress/policies/allocate.h"

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
// Of a tensor's bytes, what codes may take beyond what was seen.
constexpr int64_t kHeadroom = 64;
constexpr double kWithMore = 8;  // in learned(): more than a plan's numbers

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

constexpr double kFinest = 16;
constexpr double kLargest = 0x1p53;             // of whole numbers
constexpr int kCoarse = BudgetPlan::mixed + 3;  // in learned(): mixed, with the widths in use

// From sum c S(b_l), S(b) = 1 / (2^b - 1)^2, and sum c to the b of all that gives the same.
double fineness_of(double variance, double sensitivity) {
  if (!(variance > 0)) return kFinest;
  return std::min(std::log2(1 + std::sqrt(sensitivity / variance)), kFinest);
}
double fineness_of(const std::vector<Item>& items, const std::map<uint64_t, int>& bits) {
  double variance = 0, sensitivity = 0;
  for (const Item& item : items) {
    const auto found = bits.find(item.seq);
    if (found == bits.end()) continue;
    variance += *item.sensitivity * AdaptivePolicy::variance(item, found->second);
    sensitivity += *item.sensitivity;
  }
  return fineness_of(variance, sensitivity);
}

}  // namespace

BudgetPolicy::BudgetPolicy(const BudgetPolicyOptions& options)
    : BudgetPolicy(adaptive_of(options), options) {}

BudgetPolicy::BudgetPolicy(std::shared_ptr<AdaptivePolicy> adaptive,
                           const BudgetPolicyOptions& options)
    : WrappingPolicy(adaptive),
      adaptive_(std::move(adaptive)),
      exact_(at(options.keep, "L0")),
      nearest_(options.keep.rounding == Rounding::nearest),
      entropy_(options.entropy) {
  if (!options.file.directory.empty()) store_ = std::make_shared<PayloadStore>(options.file);
}

Decision BudgetPolicy::decide(const SaveInfo& info, const Tensor& value) {
  FRUGAL_CHECK(plan_.has_value(), "[budget] expected a plan before the first step, got none");
  if (info.seq == 0 && !adaptive_->is_probed()) recipes_.clear();
  if (plan_->mode == BudgetPlan::plain) return {Decision::raw};
  const bool mixed = plan_->mode == BudgetPlan::mixed;
  Decision decision = mixed ? adaptive_->decide(info, value) : exact_.decide(info, value);
  if (decision.what == Decision::replay && !adaptive_->is_probed())
    recipes_.push_back({info.seq, value.numel() + info.replay_elements, value.nbytes(),
                        info.replay != Replay::exact});
  if (decision.what == Decision::replay && plan_->kept.contains(info.seq)) return {Decision::raw};
  if (decision.what != Decision::pack) return decision;
  if (const auto most = plan_->coded.find(info.seq);
      entropy_ && (most == plan_->coded.end() || most->second > 0)) {
    plain_ = decision.codec;
    decision.codec = this;
  }
  if (info.seq < plan_->moved) {
    const Codec& codec = *decision.codec;
    decision.codec = &moving_.try_emplace(&codec, codec, store_).first->second;
  }
  return decision;
}

std::unique_ptr<Packed> BudgetPolicy::pack(const Tensor& tensor, const SaveInfo& info) const {
  std::unique_ptr<Packed> packed = plain_->pack(tensor, info);
  const auto most = plan_->coded.find(info.seq);
  const bool limited = most != plan_->coded.end() && !adaptive_->is_probed();
  if (tensor.device() == kMeta) {
    const int64_t bytes = limited ? most->second : coded_bytes(*packed);
    return coded_as(std::move(packed), bytes, *entropy_);
  }
  packed = entropy_code(std::move(packed), *entropy_);
  const auto width = bits_.find(info.seq);
  if (adaptive_->is_probed() || width == bits_.end()) return packed;
  int bits = width->second;
  sizes_.saw(info.seq, {bits, coded_bytes(*packed)});
  // A limit holds for the fewest bits at least, coded or not.
  while (limited && coded_bytes(*packed) > most->second && bits > 1) {
    drifted_ = true;
    packed = nullptr;
    packed = entropy_code(adaptive_->pack_again(tensor, info, --bits), *entropy_);
    sizes_.saw(info.seq, {bits, coded_bytes(*packed)});
  }
  return packed;
}

int64_t BudgetPolicy::bytes(const Item& item, int bits) const {
  const int64_t plain = adaptive_->bytes(item, bits);
  if (!entropy_ || !plans_codes_ || bits == kRaw) return plain;
  const auto seen = sizes_.most(item.seq, bits);
  if (!seen) return plain;
  int64_t saved = adaptive_->bytes(item, seen->bits) - seen->bytes;
  if (seen->bits < bits) saved /= 2;
  const int64_t least = adaptive_->bytes(item, std::min(adaptive_->least_bits(item), bits));
  return std::clamp(plain - saved + plain / kHeadroom, least, plain);
}

void BudgetPolicy::limit(const std::vector<Item>& items, BudgetPlan& plan) const {
  if (!entropy_) return;
  for (const Item& item : items) {
    const int bits = plan.bits.at(item.seq);
    if (bits == kRaw)
      plan.coded.erase(item.seq);
    else
      plan.coded[item.seq] = plans_codes_ ? bytes(item, bits) : 0;
  }
}

void BudgetPolicy::adopt(const BudgetPlan& plan) {
  FRUGAL_CHECK(plan.moved == 0 || can_move(),
               "[budget] expected a folder for a plan that moves tensors to a file");
  adaptive_->set_waiting_bits(plan.waiting_bits);
  const std::vector<Item> known = items();  // before widths change
  plan_ = plan;
  use(wanted_ > 0 ? coarser(known, wanted_) : plan.bits);
}

void BudgetPolicy::use(std::map<uint64_t, int> bits) {
  for (const auto& [seq, width] : bits) adaptive_->set_bits(seq, width);
  bits_ = std::move(bits);
}

double BudgetPolicy::fineness() const {
  if (!plan_ || nearest_) return 0;
  if (plan_->mode != BudgetPlan::mixed) return kFinest;
  const std::vector<Item> known = items();
  if (wanted_ > 0)
    return known.empty() ? wanted_ : std::min(wanted_, fineness_of(known, plan_->bits));
  if (!known.empty()) return fineness_of(known, bits_);
  double variance = 0;  // before the first step tensors count alike
  for (const auto& [seq, bits] : bits_) variance += bits == kRaw ? 0 : step_variance(bits);
  return fineness_of(variance, static_cast<double>(bits_.size()));
}

double BudgetPolicy::set_fineness(double bits) {
  FRUGAL_CHECK(plan_ && !nearest_ && bits >= 1 && bits <= kFinest,
               "[budget] expected a plan, unbiased rounding and 1 to 16 bits, got {}", bits);
  if (plan_->mode != BudgetPlan::mixed) return kFinest;
  const std::vector<Item> known = items();
  if (known.empty()) return wanted_ = bits;  // widths come with the next plan, or what was learned
  const double most = fineness_of(known, plan_->bits);
  wanted_ = bits < most ? bits : 0;
  use(wanted_ > 0 ? coarser(known, wanted_) : plan_->bits);
  return std::min(bits, most);
}

std::map<uint64_t, int> BudgetPolicy::coarser(const std::vector<Item>& items,
                                              double fineness) const {
  std::map<uint64_t, int> bits = plan_->bits;
  int64_t most = 0;
  std::vector<Item> free;
  std::vector<std::vector<Option>> options;
  std::vector<std::vector<int>> widths;
  for (const Item& item : items) {
    const auto found = bits.find(item.seq);
    if (found == bits.end()) continue;
    // What is moved takes no memory; unpacking what was raw would take more than the plan has.
    if (item.seq < plan_->moved || found->second == kRaw) continue;
    free.push_back(item);
    auto& each = options.emplace_back();
    auto& width = widths.emplace_back();
    for (int b = std::min(adaptive_->least_bits(item), found->second); b <= found->second; ++b) {
      each.push_back(
          {*item.sensitivity * AdaptivePolicy::variance(item, b), adaptive_->bytes(item, b)});
      width.push_back(b);
    }
    most += each.back().bytes;
  }
  // Fewer bytes as long as the variance is low enough.
  constexpr int64_t kParts = 256;
  int64_t low = 0, high = most;
  while (high - low > std::max<int64_t>(most / kParts, 1)) {
    const int64_t bytes = low + (high - low) / 2;
    const Allocation found = compress::allocate(options, bytes);
    std::map<uint64_t, int> tried = bits;
    if (found.feasible)
      for (size_t i = 0; i < free.size(); ++i)
        tried[free[i].seq] = widths[i][static_cast<size_t>(found.choice[i])];
    if (found.feasible && fineness_of(items, tried) >= fineness) {
      high = bytes;
      bits = std::move(tried);
    } else {
      low = bytes;
    }
  }
  return bits;
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
      each.push_back({cost, moves ? 0 : this->bytes(item, bits)});
      width.push_back(bits);
    }
    if (moves) continue;
    each.push_back({0, this->bytes(item, kRaw)});
    width.push_back(kRaw);
  }
  const Allocation best = compress::allocate(options, bytes);
  if (!best.feasible) return false;
  for (size_t i = 0; i < items.size(); ++i)
    plan.bits[items[i].seq] = widths[i][static_cast<size_t>(best.choice[i])];
  limit(items, plan);
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
  std::vector<double> numbers;
  const std::vector<double> sizes = sizes_.numbers();
  const auto more = [&](size_t number) { numbers.push_back(static_cast<double>(number)); };
  if (!sizes.empty() || !plan_->coded.empty() || !plan_->kept.empty()) {
    numbers.push_back(kWithMore);
    for (const size_t count : {sizes.size(), 2 * plan_->coded.size(), plan_->kept.size()})
      more(count);
    for (const double size : sizes) numbers.push_back(size);  // GCC 14 warns of an insert()
    for (const auto& [seq, bytes] : plan_->coded) more(seq), more(static_cast<size_t>(bytes));
    for (const uint64_t seq : plan_->kept) more(seq);
  }
  const bool coarse = wanted_ > 0;
  for (const double number :
       {static_cast<double>(coarse ? kCoarse : plan_->mode),
        static_cast<double>(plan_->slice_bytes), static_cast<double>(plan_->waiting_bits),
        static_cast<double>(plan_->moved), static_cast<double>(plan_->margin)})
    numbers.push_back(number);
  if (coarse) numbers.push_back(wanted_);
  for (const auto& [seq, bits] : plan_->bits) {
    more(seq);
    numbers.push_back(bits);
    if (coarse) numbers.push_back(bits_.at(seq));
  }
  return numbers;
}

void BudgetPolicy::restore_learned(const std::vector<double>& numbers) {
  if (numbers.empty()) return;
  std::span<const double> rest(numbers);
  BudgetPlan plan;
  sizes_ = {};
  if (rest[0] == kWithMore) {
    std::span<const double> parts[3];
    bool whole = rest.size() >= 4;
    double all = 4;
    for (size_t i = 0; whole && i < 3; ++i) {
      const double count = rest[i + 1];
      whole = count >= 0 && count <= static_cast<double>(rest.size()) - all;
      if (whole) parts[i] = rest.subspan(static_cast<size_t>(all), static_cast<size_t>(count));
      all += count;
    }
    for (size_t i = 1; i < 3; ++i)
      for (const double number : parts[i]) whole = whole && number >= 0 && number <= kLargest;
    FRUGAL_CHECK(whole && parts[1].size() % 2 == 0,
                 "[budget] expected a plan as learned() gives it, got {} numbers", numbers.size());
    sizes_.restore(parts[0]);
    for (size_t i = 0; i < parts[1].size(); i += 2)
      plan.coded[static_cast<uint64_t>(parts[1][i])] = static_cast<int64_t>(parts[1][i + 1]);
    for (const double seq : parts[2]) plan.kept.insert(static_cast<uint64_t>(seq));
    rest = rest.subspan(static_cast<size_t>(all));
  }
  restore_plan(rest, std::move(plan));
}

void BudgetPolicy::restore_plan(std::span<const double> numbers, BudgetPlan plan) {
  constexpr size_t kHead = 5;
  const bool coarse = !numbers.empty() && numbers[0] == kCoarse;
  const size_t head = kHead + coarse, each = coarse ? 3 : 2;  // numbers of a tensor
  bool whole = numbers.size() >= head && (numbers.size() - head) % each == 0;
  for (size_t i = 0; i < numbers.size(); ++i)
    whole = whole && numbers[i] >= 0 && numbers[i] <= kLargest &&
            (numbers[i] == std::trunc(numbers[i]) || (coarse && i == kHead));
  FRUGAL_CHECK(whole && (numbers[0] <= 2 || coarse) && numbers[2] <= kMaxBits &&
                   (!coarse || (numbers[kHead] >= 1 && numbers[kHead] <= kFinest)),
               "[budget] expected a plan as learned() gives it, got {} numbers", numbers.size());
  plan.mode = coarse ? BudgetPlan::mixed : static_cast<BudgetPlan::Mode>(numbers[0]);
  plan.slice_bytes = static_cast<int64_t>(numbers[1]);
  plan.waiting_bits = static_cast<int>(numbers[2]);
  plan.moved = static_cast<uint64_t>(numbers[3]);
  plan.margin = static_cast<int64_t>(numbers[4]);
  const auto width = [&](size_t i) {
    return static_cast<int>(std::min<double>(numbers[i], kLargest / (1 << 30)));
  };
  std::map<uint64_t, int> used;
  for (size_t i = head; i < numbers.size(); i += each) {
    plan.bits[static_cast<uint64_t>(numbers[i])] = width(i + 1);
    used[static_cast<uint64_t>(numbers[i])] = width(i + each - 1);
  }
  wanted_ = coarse ? numbers[kHead] : 0;
  adopt(plan);
  if (coarse) use(std::move(used));
}

}  // namespace frugal::compress
