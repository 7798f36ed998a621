#include "compress/policies/adaptive_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/policies/allocate.h"
#include "compress/policies/policy_roles.h"
#include "compress/quantize/group_layout.h"
#include "compress/quantize/quantize_split.h"
#include "core/random/random_streams.h"

namespace frugal::compress {
namespace {

constexpr double kNotMeasured = -1;  // stands for a sensitivity that was not measured

FixedPolicyOptions at_average(const AdaptiveOptions& options) {
  FRUGAL_CHECK(options.average >= 1 && options.average <= kMaxBits,
               "[compression] expected 1 to 16 bits on average, got {}", options.average);
  FRUGAL_CHECK(1 <= options.min_bits && options.min_bits <= options.average &&
                   options.average <= options.max_bits && options.max_bits <= kMaxBits,
               "[compression] expected widths of 1 to 16 bits around the average {}, got {} to {}",
               options.average, options.min_bits, options.max_bits);
  FixedPolicyOptions keep = options.keep;
  keep.bits = static_cast<int>(options.average);
  keep.corrected = keep.corrected && !options.greedy;
  return keep;
}

// One quantizer for each width. `apart`: each of them has its own seed.
std::deque<Quantizer> quantizers(const FixedPolicyOptions& options, uint64_t seed,
                                 bool apart = false) {
  std::deque<Quantizer> all;  // codecs do not move
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    QuantizeOptions each;
    each.bits = bits;
    each.group = options.group;
    each.axis = options.axis;
    each.rounding = options.rounding_here();
    each.seed = apart ? seed + static_cast<uint64_t>(bits) : seed;
    all.emplace_back(each);
  }
  return all;
}

}  // namespace

AdaptivePolicy::AdaptivePolicy(const AdaptiveOptions& options)
    : options_(options),
      keep_(at_average(options)),
      quantizers_(quantizers(options.keep, options.keep.seed)),
      others_(quantizers(options.keep, streams::other_rounding(options.keep.seed))),
      retries_(quantizers(options.keep, streams::repeated_rounding(options.keep.seed), true)) {}

Decision AdaptivePolicy::decide(const SaveInfo& info, const Tensor& value) {
  const auto known = items_.find(info.seq);
  if (probing_) {
    const auto found = decisions_.find(info.seq);
    if (found != decisions_.end()) {
      Decision& decision = found->second;
      // The width may have changed since that step, from raw or to raw.
      if (known != items_.end() && known->second.bits == kRaw && decision.what == Decision::pack)
        decision = {Decision::raw};
      if (known != items_.end() && known->second.bits != kRaw && decision.what == Decision::raw &&
          !info.lossless)
        decision = {Decision::pack, this};
      return decision;
    }
  }
  SaveInfo seen = info;
  seen.rebuilt = info.rebuilt_with(options_.min_bits);
  Decision decision = keep_.decide(seen, value);
  if (decision.codec != nullptr) decision.codec = this;
  const bool raw =
      decision.what == Decision::pack && known != items_.end() && known->second.bits == kRaw;
  if (raw) decision = {Decision::raw};
  if (probing_) return decision;
  if (raw) describe(known->second, info, value);
  if (info.seq == 0) decisions_.clear();
  decisions_[info.seq] = decision;
  return decision;
}

void AdaptivePolicy::describe(Item& item, const SaveInfo& info, const Tensor& tensor) {
  item.seq = info.seq;
  item.curved = info.curved;
  item.source_bits = info.source_bits;
  item.elements = tensor.numel();
  item.shape = tensor.shape();
  item.raw_bytes = tensor.nbytes();
}

std::unique_ptr<Packed> AdaptivePolicy::pack(const Tensor& tensor, const SaveInfo& info) const {
  return chosen(tensor, info).pack(tensor, info);
}

std::unique_ptr<Packed> AdaptivePolicy::pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                                     PackedPass& pass) const {
  return chosen(tensor, info).pack_and_run(tensor, info, pass);
}

std::unique_ptr<SlicePacker> AdaptivePolicy::pack_slices(const Tensor& like,
                                                         const SaveInfo& info) const {
  return chosen(like, info).pack_slices(like, info);
}

const Quantizer& AdaptivePolicy::chosen(const Tensor& tensor, const SaveInfo& info) const {
  const auto decided = decisions_.find(info.seq);
  if (decided == decisions_.end()) {  // a probe before the first step, or the first since a stop
    const auto known = items_.find(info.seq);
    if (known != items_.end() && known->second.bits != kRaw)
      return quantizer(known->second.bits, probing_ && other_ == info.seq);
  }
  if (decided == decisions_.end() || decided->second.what != Decision::pack)
    return quantizer(waiting_bits_ > 0 ? waiting_bits_ : keep_.bits(), false);
  const auto [place, fresh] = items_.try_emplace(info.seq);
  Item& item = place->second;
  if (!probing_) {
    describe(item, info, tensor);
    item.has_sign = info.sign != nullptr && quantizer(2, false).can_carry_sign(tensor.shape());
    item.slope = item.has_sign ? info.sign->slope : 0;
  }
  if (fresh) item.bits = first_width(item);
  // States of runs before SaveInfo::curved may have fewer bits than the correction needs.
  return quantizer(std::max(item.bits, keep_.least_bits(info)), probing_ && other_ == info.seq);
}

std::vector<AdaptivePolicy::Item> AdaptivePolicy::items() const {
  std::vector<Item> all;
  for (const auto& [seq, item] : items_) {
    const auto decided = decisions_.find(seq);
    if (decided == decisions_.end()) continue;
    const auto now = item.bits == kRaw ? Decision::raw : Decision::pack;
    if (decided->second.what == now) all.push_back(item);
  }
  return all;
}

int AdaptivePolicy::first_width(const Item& item) const {
  const int floor_bits = keep_.bits(), least = least_bits(item);
  const double above = options_.average - floor_bits;
  if (above == 0 || least > floor_bits) return std::max(floor_bits, least);
  double wide = 0, all = static_cast<double>(item.elements);
  for (const auto& [seq, other] : items_) {
    if (seq >= item.seq) break;
    if (other.bits == kRaw || least_bits(other) > floor_bits) continue;
    all += static_cast<double>(other.elements);
    if (other.bits > floor_bits) wide += static_cast<double>(other.elements);
  }
  return wide + static_cast<double>(item.elements) / 2 < above * all ? floor_bits + 1 : floor_bits;
}

int AdaptivePolicy::least_bits(const Item& item) const {
  const int least = item.has_sign ? std::max(options_.min_bits, 2) : options_.min_bits;
  return std::max(least,
                  keep_.least_bits({.curved = item.curved, .source_bits = item.source_bits}));
}

double AdaptivePolicy::variance(const Item& item, int bits) {
  if (bits == kRaw) return 0;
  return item.has_sign ? split_variance(item.slope, bits) : step_variance(bits);
}

int64_t AdaptivePolicy::bytes(const Item& item, int bits) const {
  if (bits == kRaw) return item.raw_bytes + (item.has_sign ? item.elements / 8 : 0);
  return quantizer(bits, false).packed_bytes(item.shape, item.has_sign);
}

void AdaptivePolicy::set_bits(uint64_t seq, int bits) {
  FRUGAL_CHECK((bits >= 1 && bits <= kMaxBits) || bits == kRaw,
               "[compression] expected 1 to 16 bits for tensor {}, or {} for raw, got {}", seq,
               kRaw, bits);
  items_[seq].seq = seq;
  items_[seq].bits = bits;
}

void AdaptivePolicy::set_waiting_bits(int bits) {
  FRUGAL_CHECK(bits >= 1 && bits <= kMaxBits, "[compression] expected 1 to 16 bits, got {}", bits);
  waiting_bits_ = bits;
}

double AdaptivePolicy::predicted_variance() const {
  double sum = 0;
  for (const Item& item : items()) sum += item.sensitivity.value_or(0) * variance(item, item.bits);
  return sum;
}

double AdaptivePolicy::average_bits() const {
  double bits = 0, elements = 0;
  for (const Item& item : items()) {
    bits += static_cast<double>(item.bits) * static_cast<double>(item.elements);
    elements += static_cast<double>(item.elements);
  }
  return elements > 0 ? bits / elements : 0;
}

bool AdaptivePolicy::is_grouped_alike(const Item& item, int64_t part, int64_t of) const {
  if (item.shape.dim() == 0) return true;
  constexpr int64_t kManyRows = 64;
  const int64_t many = std::min(kManyRows, options_.keep.group);
  const auto has_many = [&](const Shape& shape) {
    return !groups_by_column(shape, options_.keep.axis) || rows_of(shape) >= many;
  };
  Shape shape = item.shape;
  shape[0] = shape[0] * part / of;
  return has_many(shape) == has_many(item.shape);
}

AdaptivePolicy::Probe::Probe(AdaptivePolicy& policy, std::optional<uint64_t> other)
    : policy_(policy) {
  FRUGAL_CHECK(!policy.probing_, "[compression] expected one probe at a time");
  policy.probing_ = true;
  policy.other_ = other;
}
AdaptivePolicy::Probe::~Probe() {
  policy_.probing_ = false;
  policy_.other_.reset();
}

void AdaptivePolicy::measured(uint64_t seq, double sensitivity, int64_t step) {
  const auto found = items_.find(seq);
  FRUGAL_CHECK(found != items_.end(), "[compression] expected a tensor that was packed, got {}",
               seq);
  FRUGAL_CHECK(sensitivity >= 0 && std::isfinite(sensitivity),
               "[compression] expected a finite sensitivity of at least 0, got {}", sensitivity);
  found->second.sensitivity = sensitivity;
  found->second.measured = step;
}

void AdaptivePolicy::allocate() {
  const std::vector<Item> all = items();
  double known = 0, elements = 0;
  for (const Item& item : all) {
    if (!item.sensitivity) continue;
    known += *item.sensitivity;
    elements += static_cast<double>(item.elements);
  }
  if (elements == 0) return;
  if (options_.greedy) return allocate_greedy(all, known / elements);
  std::vector<std::vector<Option>> options;
  double budget = 0;
  const int floor_bits = static_cast<int>(options_.average);
  const double above = options_.average - floor_bits;
  for (const Item& item : all) {
    const double c =
        item.sensitivity.value_or(known / elements * static_cast<double>(item.elements));
    const int least = least_bits(item), base = std::max(floor_bits, least);
    auto& each = options.emplace_back();
    for (int bits = least; bits <= options_.max_bits; ++bits)
      each.push_back({c * variance(item, bits), bytes(item, bits)});
    budget += static_cast<double>(bytes(item, base));
    if (above > 0 && base == floor_bits)
      budget += above * static_cast<double>(bytes(item, base + 1) - bytes(item, base));
  }
  const Allocation best = compress::allocate(options, static_cast<int64_t>(budget));
  for (size_t i = 0; i < all.size(); ++i)
    items_.at(all[i].seq).bits = least_bits(all[i]) + best.choice[i];
}

void AdaptivePolicy::allocate_greedy(const std::vector<Item>& all, double usual) {
  std::vector<std::vector<Option>> options;
  std::vector<std::vector<int>> widths;
  double budget = 0;
  for (const Item& item : all) {
    const auto elements = static_cast<double>(item.elements);
    auto& each = options.emplace_back();
    auto& own = widths.emplace_back();
    for (const int bits : {1, 2, 4, 8, kRaw}) {
      if (bits < least_bits(item)) continue;
      own.push_back(bits);
      each.push_back({item.sensitivity.value_or(usual * elements) * variance(item, bits),
                      item.elements * bits});
    }
    budget += options_.average * elements;
  }
  const Allocation found = compress::allocate_greedy(options, static_cast<int64_t>(budget));
  for (size_t i = 0; i < all.size(); ++i)
    items_.at(all[i].seq).bits = widths[i][static_cast<size_t>(found.choice[i])];
}

void AdaptivePolicy::set_average(double average) {
  FRUGAL_CHECK(options_.min_bits <= average && average <= options_.max_bits,
               "[compression] expected {} to {} bits on average, got {}", options_.min_bits,
               options_.max_bits, average);
  options_.average = average;
  keep_.set_bits(static_cast<int>(average));
  // Until the next measurement, each tensor has the width of a new tensor.
  for (auto& [seq, item] : items_)
    if (!item.sensitivity) item.bits = first_width(item);
  allocate();
}

AdaptivePolicy::State AdaptivePolicy::state() const {
  State state{options_.average};
  for (const auto& [seq, item] : items_) state.items.push_back(item);
  for (const auto& [seq, decision] : decisions_)
    state.decisions.push_back({seq, decision.what, decision.codec != nullptr, decision.carry_sign});
  return state;
}

// In the lists of items each tensor has one number, and in "extents" as many as "dims" says.
Learned AdaptivePolicy::State::write() const {
  Learned learned{kPolicy, kVersion, {}};
  learned.set("average", average);
  for (const char* name :
       {"tensors", "bits", "sensitivities", "measured", "elements", "dims", "extents", "has_sign",
        "slopes", "raw_bytes", "curved", "decided", "what", "packs", "carry_sign"})
    learned.lists[name] = {};
  for (const Item& item : items) {
    learned.add("tensors", static_cast<double>(item.seq));
    learned.add("bits", item.bits);
    learned.add("sensitivities", item.sensitivity.value_or(kNotMeasured));
    learned.add("measured", static_cast<double>(item.measured));
    learned.add("elements", static_cast<double>(item.elements));
    learned.add("dims", item.shape.dim());
    for (const int64_t extent : item.shape) learned.add("extents", static_cast<double>(extent));
    learned.add("has_sign", item.has_sign ? 1 : 0);
    learned.add("slopes", item.slope);
    learned.add("raw_bytes", static_cast<double>(item.raw_bytes));
    learned.add("curved", item.curved ? 1 : 0);
  }
  // Only where there are such tensors: earlier runs know of none.
  if (std::any_of(items.begin(), items.end(), [](const Item& i) { return i.source_bits > 0; }))
    for (const Item& item : items) learned.add("source_bits", item.source_bits);
  for (const Decided& each : decisions) {
    learned.add("decided", static_cast<double>(each.seq));
    learned.add("what", each.what);
    learned.add("packs", each.packs ? 1 : 0);
    learned.add("carry_sign", each.carry_sign ? 1 : 0);
  }
  return learned;
}

// restore() checks what the items say together.
AdaptivePolicy::State AdaptivePolicy::State::read(const Learned& learned) {
  constexpr double kWhole = LearnedReader::kLargest, kMost = std::numeric_limits<double>::max();
  LearnedReader reader(learned, kPolicy, kVersion);
  State state{reader.number("average", 0, kMost)};
  const auto tensors = reader.wholes("tensors", 0, kWhole);
  const size_t count = tensors.size();
  const auto bits = reader.wholes("bits", 0, kRaw, count);
  const auto& sensitivities = reader.list("sensitivities", kNotMeasured, kMost, count);
  const auto measured = reader.wholes("measured", -1, kWhole, count);
  const auto elements = reader.wholes("elements", 0, kWhole, count);
  const auto dims = reader.wholes("dims", 0, kWhole, count);
  ListParts extents(kPolicy, "extents", reader.list("extents", 0, kWhole));
  const auto has_sign = reader.wholes("has_sign", 0, 1, count);
  const auto& slopes = reader.list("slopes", 0, kMost, count);
  const auto raw_bytes = reader.wholes("raw_bytes", 0, kWhole, count);
  const auto curved = reader.wholes("curved", 0, 1, count);
  std::vector<int64_t> source_bits(count, 0);
  if (reader.has("source_bits")) source_bits = reader.wholes("source_bits", 0, kMaxBits, count);
  for (size_t i = 0; i < count; ++i) {
    Item& item = state.items.emplace_back();
    item.seq = static_cast<uint64_t>(tensors[i]);
    item.bits = static_cast<int>(bits[i]);
    if (sensitivities[i] != kNotMeasured) item.sensitivity = sensitivities[i];
    item.measured = measured[i];
    item.elements = elements[i];
    for (const double extent : extents.next(dims[i]))
      item.shape.push_back(static_cast<int64_t>(extent));
    item.has_sign = has_sign[i] == 1;
    item.slope = slopes[i];
    item.raw_bytes = raw_bytes[i];
    item.curved = curved[i] == 1;
    item.source_bits = static_cast<int>(source_bits[i]);
  }
  extents.end();
  const auto decided = reader.wholes("decided", 0, kWhole);
  const auto what = reader.wholes("what", 0, Decision::pack, decided.size());
  const auto packs = reader.wholes("packs", 0, 1, decided.size());
  const auto carry_sign = reader.wholes("carry_sign", 0, 1, decided.size());
  for (size_t i = 0; i < decided.size(); ++i)
    state.decisions.push_back({static_cast<uint64_t>(decided[i]),
                               static_cast<Decision::What>(what[i]), packs[i] == 1,
                               carry_sign[i] == 1});
  reader.end();
  return state;
}

void AdaptivePolicy::restore(const State& state) {
  constexpr double kLargest = 0x1p53;
  FRUGAL_CHECK(options_.min_bits <= state.average && state.average <= options_.max_bits,
               "[compression] expected {} to {} bits on average, got {}", options_.min_bits,
               options_.max_bits, state.average);
  std::map<uint64_t, Item> items;
  for (const Item& item : state.items) {
    FRUGAL_CHECK((item.bits >= 1 && item.bits <= kMaxBits) || item.bits == kRaw,
                 "[compression] expected 1 to 16 bits for tensor {}, got {}", item.seq, item.bits);
    FRUGAL_CHECK(!item.sensitivity || (*item.sensitivity >= 0 && std::isfinite(*item.sensitivity)),
                 "[compression] expected a finite sensitivity of at least 0 for tensor {}, got {}",
                 item.seq, *item.sensitivity);
    FRUGAL_CHECK(item.source_bits >= 0 && item.source_bits <= kMaxBits,
                 "[compression] expected 0 to {} bits that rebuilds of tensor {} need, got {}",
                 kMaxBits, item.seq, item.source_bits);
    // A tensor whose width comes from a plan, and that no step has packed yet, has no shape and no
    // elements.
    double elements = item.shape.dim() == 0 && item.elements == 0 ? 0 : 1;
    bool possible =
        item.raw_bytes >= 0 && item.measured >= -1 && item.slope >= 0 && std::isfinite(item.slope);
    for (const int64_t extent : item.shape) {
      possible = possible && extent >= 0;
      elements *= static_cast<double>(extent);
    }
    FRUGAL_CHECK(possible && elements <= kLargest && elements == static_cast<double>(item.elements),
                 "[compression] expected the shape, elements and bytes of tensor {}, got {}, {} "
                 "and {}",
                 item.seq, item.shape, item.elements, item.raw_bytes);
    FRUGAL_CHECK(items.emplace(item.seq, item).second,
                 "[compression] expected each tensor once, got {} twice", item.seq);
  }
  std::map<uint64_t, Decision> decisions;
  for (const Decided& each : state.decisions) {
    FRUGAL_CHECK(each.what <= Decision::pack && (each.packs || each.what != Decision::pack),
                 "[compression] expected a decision on tensor {}, got {}", each.seq,
                 static_cast<int>(each.what));
    const Decision decision{each.what, each.packs ? this : nullptr, each.carry_sign};
    FRUGAL_CHECK(decisions.emplace(each.seq, decision).second,
                 "[compression] expected one decision on each tensor, got two on {}", each.seq);
  }
  options_.average = state.average;
  keep_.set_bits(static_cast<int>(state.average));
  items_ = std::move(items);
  decisions_ = std::move(decisions);
}

void AdaptivePolicy::add_roles(PolicyRoles& roles) {
  PolicyRoles::note(roles.adaptive, this);
  PolicyRoles::note(roles.learner, this);
  PolicyRoles::note(roles.adjustable, this);
}

}  // namespace frugal::compress
