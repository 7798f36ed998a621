#include "compress/policies/budget_policy.h"

#include <algorithm>
#include <cmath>

#include "compress/policies/allocate.h"
#include "compress/policies/policy_kind.h"
#include "compress/policies/policy_roles.h"

namespace frugal::compress {
namespace {

constexpr const char* kBudget = name_of(PolicyKind::budget).data();  // Learned::policy

using Item = AdaptivePolicy::Item;
constexpr int kRawWidth = AdaptivePolicy::kRaw;
constexpr int kAverage = 4;  // bits of tensors that no plan knows yet
// A tensor that is moved to a file costs no memory. It gets this width, above which more bits
// hardly lower the variance.
constexpr int kMovedBits = 8;
// Packing costs time. In the sum to minimize, each packed element costs as much as the variance of
// an average element at this width, so that a tensor is raw where there is room.
constexpr int kTimeBits = 16;
// Codes may take more bytes than in the last step, by the tensor's bytes divided by this number.
constexpr int64_t kHeadroom = 64;
// The lists in the written form of BudgetState. Each may be empty.
constexpr const char* kLists[] = {"tensors",     "plan_bits",   "bits",  "coded",
                                  "coded_bytes", "kept",        "sizes", "sizes_bits",
                                  "sizes_now",   "sizes_before"};

FixedPolicyOptions at(const FixedPolicyOptions& keep, int bits) {
  FixedPolicyOptions options = keep;
  options.bits = bits;
  options.recipes = true;
  options.corrected = false;  // a plan may need fewer bits than the correction of a rebuild
  return options;
}

AdaptiveOptions adaptive_of(const BudgetPolicyOptions& options) {
  FRUGAL_CHECK(!options.keep.pack_recomputed,
               "[budget] expected recomputed blocks that keep their inputs whole, got packed ones");
  AdaptiveOptions adaptive;
  adaptive.keep = at(options.keep, kAverage);
  return adaptive;
}

constexpr double kFinest = 16;

// variance is sum c_l S(b_l) with S(b) = 1 / (2^b - 1)^2, and sensitivity is sum c_l. Returns the
// one b for all tensors that gives the same variance.
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

void check_moves(const BudgetPlan& plan, bool can_move) {
  FRUGAL_CHECK(plan.moved == 0 || can_move,
               "[budget] expected an OffloadPolicy around a policy whose plan moves tensors to a "
               "file, got none");
}

}  // namespace

BudgetPolicy::BudgetPolicy(const BudgetPolicyOptions& options)
    : adaptive_(adaptive_of(options)),
      exact_(at(options.keep, 0)),
      nearest_(options.keep.rounding == Rounding::nearest) {}

Decision BudgetPolicy::decide(const SaveInfo& info, const Tensor& value) {
  FRUGAL_CHECK(plan_.has_value(), "[budget] expected a plan before the first step, got none");
  if (info.seq == 0 && !adaptive_.is_probed()) recipes_.clear();
  if (plan_->mode == BudgetPlan::plain) return {Decision::raw};
  const bool mixed = plan_->mode == BudgetPlan::mixed;
  Decision decision = mixed ? adaptive_.decide(info, value) : exact_.decide(info, value);
  if (decision.what == Decision::rebuild && !adaptive_.is_probed())
    recipes_.push_back({info.seq, value.numel() + info.recipe_elements, value.nbytes(),
                        info.rebuilt != Rebuilt::exact});
  if (decision.what == Decision::rebuild && plan_->kept.contains(info.seq)) return {Decision::raw};
  return decision;
}

PackPlan::Keeping BudgetPolicy::keeping(uint64_t seq) const {
  Keeping keeping;
  keeping.moved = seq < plan_->moved;
  const auto most = plan_->coded.find(seq);
  if (most == plan_->coded.end()) return keeping;
  keeping.coded = most->second > 0;
  // A probe packs a part of the batch. The plan has no bytes for that.
  if (!adaptive_.is_probed()) keeping.most_bytes = most->second;
  return keeping;
}

std::optional<int> BudgetPolicy::width(uint64_t seq) const {
  const auto width = bits_.find(seq);
  if (adaptive_.is_probed() || width == bits_.end()) return {};
  return width->second;
}

void BudgetPolicy::took(uint64_t seq, int bits, int64_t bytes) {
  sizes_.saw(seq, {bits, bytes});
  const auto most = plan_->coded.find(seq);
  if (most != plan_->coded.end() && bytes > most->second && bits > 1) drifted_ = true;
}

int64_t BudgetPolicy::bytes(const Item& item, int bits) const {
  const int64_t plain = adaptive_.bytes(item, bits);
  if (!can_code() || !plans_codes_ || bits == kRawWidth) return plain;
  const auto seen = sizes_.most(item.seq, bits);
  if (!seen) return plain;
  int64_t saved = adaptive_.bytes(item, seen->bits) - seen->bytes;
  if (seen->bits < bits) saved /= 2;
  const int64_t least = adaptive_.bytes(item, std::min(adaptive_.least_bits(item), bits));
  return std::clamp(plain - saved + plain / kHeadroom, least, plain);
}

void BudgetPolicy::limit(const std::vector<Item>& items, BudgetPlan& plan) const {
  if (!can_code()) return;
  for (const Item& item : items) {
    const int bits = plan.bits.at(item.seq);
    if (bits == kRawWidth)
      plan.coded.erase(item.seq);
    else
      plan.coded[item.seq] = plans_codes_ ? bytes(item, bits) : 0;
  }
}

void BudgetPolicy::adopt(const BudgetPlan& plan) {
  check_moves(plan, can_move());
  adaptive_.set_waiting_bits(plan.waiting_bits);
  const std::vector<Item> known = items();  // before widths change
  plan_ = plan;
  use(wanted_ > 0 ? coarser(known, wanted_) : plan.bits);
}

void BudgetPolicy::use(std::map<uint64_t, int> bits) {
  for (const auto& [seq, width] : bits) adaptive_.set_bits(seq, width);
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
  for (const auto& [seq, bits] : bits_) variance += bits == kRawWidth ? 0 : step_variance(bits);
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
    // A tensor that is moved takes no memory. A raw tensor stays raw, because unpacking it would
    // take memory that the plan does not have.
    if (item.seq < plan_->moved || found->second == kRawWidth) continue;
    free.push_back(item);
    auto& each = options.emplace_back();
    auto& width = widths.emplace_back();
    for (int b = std::min(adaptive_.least_bits(item), found->second); b <= found->second; ++b) {
      each.push_back(
          {*item.sensitivity * AdaptivePolicy::variance(item, b), adaptive_.bytes(item, b)});
      width.push_back(b);
    }
    most += each.back().bytes;
  }
  // Searches the fewest bytes whose variance is low enough.
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
  std::vector<Item> all = adaptive_.items();
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
    const int least = adaptive_.least_bits(item);
    for (int bits = least; bits <= (moves ? std::max(kMovedBits, least) : kMaxBits); ++bits) {
      const double cost = *item.sensitivity * AdaptivePolicy::variance(item, bits) +
                          time * static_cast<double>(item.elements);
      each.push_back({cost, moves ? 0 : this->bytes(item, bits)});
      width.push_back(bits);
    }
    if (moves) continue;
    each.push_back({0, this->bytes(item, kRawWidth)});
    width.push_back(kRawWidth);
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

Learned BudgetState::write() const {
  Learned learned{kBudget, kVersion, {}};
  for (const char* name : kLists) learned.lists[name] = {};
  learned.set("mode", plan.mode);
  learned.set("slice_bytes", static_cast<double>(plan.slice_bytes));
  learned.set("waiting_bits", plan.waiting_bits);
  learned.set("moved", static_cast<double>(plan.moved));
  learned.set("margin", static_cast<double>(plan.margin));
  learned.set("fineness", fineness);
  for (const auto& [seq, width] : plan.bits) {
    learned.add("tensors", static_cast<double>(seq));
    learned.add("plan_bits", width);
    learned.add("bits", bits.at(seq));
  }
  for (const auto& [seq, bytes] : plan.coded) {
    learned.add("coded", static_cast<double>(seq));
    learned.add("coded_bytes", static_cast<double>(bytes));
  }
  for (const uint64_t seq : plan.kept) learned.add("kept", static_cast<double>(seq));
  for (const CodedSizes::Entry& entry : sizes) {
    learned.add("sizes", static_cast<double>(entry.seq));
    learned.add("sizes_bits", entry.bits);
    learned.add("sizes_now", static_cast<double>(entry.now));
    learned.add("sizes_before", static_cast<double>(entry.before));
  }
  learned.inside = {widths.write()};
  return learned;
}

BudgetState BudgetState::read(const Learned& learned) {
  constexpr double kWhole = LearnedReader::kLargest;
  LearnedReader reader(learned, kBudget, kVersion);
  BudgetState state;
  BudgetPlan& plan = state.plan;
  plan.mode = static_cast<BudgetPlan::Mode>(reader.whole("mode", 0, BudgetPlan::mixed));
  plan.slice_bytes = reader.whole("slice_bytes", 0, kWhole);
  plan.waiting_bits = static_cast<int>(reader.whole("waiting_bits", 1, kMaxBits));
  plan.moved = static_cast<uint64_t>(reader.whole("moved", 0, kWhole));
  plan.margin = reader.whole("margin", 0, kWhole);
  state.fineness = reader.number("fineness", 0, kFinest);
  FRUGAL_CHECK(state.fineness == 0 || state.fineness >= 1,
               "[budget] expected 0, or 1 to 16 bits, as the fineness of what was learned, got {}",
               state.fineness);
  const std::vector<uint64_t> tensors = reader.tensors("tensors");
  const auto planned = reader.wholes("plan_bits", 1, kRawWidth, tensors.size());
  const auto used = reader.wholes("bits", 1, kRawWidth, tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    FRUGAL_CHECK((planned[i] <= kMaxBits || planned[i] == kRawWidth) &&
                     (used[i] <= kMaxBits || used[i] == kRawWidth) && used[i] <= planned[i],
                 "[budget] expected 1 to 16 bits, or {} for raw, of which no more are used than "
                 "planned, for tensor {}, got {} of {}",
                 kRawWidth, tensors[i], used[i], planned[i]);
    plan.bits[tensors[i]] = static_cast<int>(planned[i]);
    state.bits[tensors[i]] = static_cast<int>(used[i]);
  }
  const std::vector<uint64_t> coded = reader.tensors("coded");
  const auto bytes = reader.wholes("coded_bytes", 0, kWhole, coded.size());
  for (size_t i = 0; i < coded.size(); ++i) plan.coded[coded[i]] = bytes[i];
  for (const uint64_t seq : reader.tensors("kept")) plan.kept.insert(seq);
  const auto seqs = reader.wholes("sizes", 0, kWhole);
  const auto widths = reader.wholes("sizes_bits", 1, kMaxBits, seqs.size());
  const auto now = reader.wholes("sizes_now", 0, kWhole, seqs.size());
  const auto before = reader.wholes("sizes_before", 0, kWhole, seqs.size());
  for (size_t i = 0; i < seqs.size(); ++i)
    state.sizes.push_back(
        {static_cast<uint64_t>(seqs[i]), static_cast<int>(widths[i]), now[i], before[i]});
  state.widths = AdaptivePolicy::State::read(reader.inside());
  reader.end();
  return state;
}

std::optional<BudgetState> BudgetPolicy::state() const {
  if (!plan_) return {};
  return BudgetState{*plan_, wanted_, bits_, sizes_.entries(), adaptive_.state()};
}

void BudgetPolicy::restore(const BudgetState& state) {
  check_moves(state.plan, can_move());
  sizes_.restore(state.sizes);
  adaptive_.restore(state.widths);
  wanted_ = state.fineness;
  adopt(state.plan);
  if (wanted_ > 0) use(state.bits);
}

void BudgetPolicy::add_roles(PolicyRoles& roles) {
  PolicyRoles::note(roles.budget, this);
  PolicyRoles::note(roles.learner, this);
  PolicyRoles::note(roles.adjustable, this);
  PolicyRoles::note(roles.plan, this);
  PolicyRoles::note(roles.adaptive, &adaptive_);
}

}  // namespace frugal::compress
