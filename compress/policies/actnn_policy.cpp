#include "compress/policies/actnn_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "compress/policies/allocate.h"
#include "compress/policies/policy_kind.h"
#include "compress/policies/policy_roles.h"
#include "compress/policies/product_use.h"
#include "compress/quantize/quantize_split.h"
#include "core/computed.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/reduce.h"
#include "ops/optimizer/sgd.h"

namespace frugal::compress {

std::vector<by_name::Option<ActnnOptions>> ActnnOptions::list() {
  namespace range = by_name::range;
  using S = ActnnOptions;
  using by_name::Value;
  return {{{"adaptive", range::flag(),
            "Each tensor and each sample gets a width of its own also where bits, their "
            "average, is a whole number."},
           &S::mixed},
          {{"products_only", range::flag(),
            "Pack only what convolutions and matrix products read, and rebuild nothing."},
           &S::products_only},
          {{"interval", range::integer(1, int64_t{1} << 40),
            "Steps from one look at the gradients to the next."},
           &S::interval},
          {{"by_sample", range::flag(),
            "The samples of a tensor share its bits by their ranges; else each has the same."},
           &S::by_sample},
          {{"by_tensor", range::flag(),
            "Tensors share the average by their sensitivities; else each has the average."},
           &S::by_tensor},
          {{"use_gradient", range::flag(),
            "Samples share the bits of a tensor also by the gradients that each had in the steps "
            "that looked at it; interval=1 looks at all. It takes 4 bytes for each sample of the "
            "data set and each tensor. As the published program's option of this name."},
           &S::use_gradient},
          {{"norms", range::choice("inside, outside"),
            "Tensors that only normalizations read take the bits of the product before them. "
            "inside: the average counts them. outside, as published: it does not, and those "
            "before the first product take 8 bits."},
           &S::norms_outside},
          {{"gradients", range::choice("averaged, last"),
            "Norms of gradients that sensitivities are made of: averaged over the steps that "
            "look, by 0.5; or, as published, those of the last one."},
           [](S& s, const Value& value) { s.momentum = value.text() == "last" ? 0 : S().momentum; },
           [](const S& s) { return Value(s.momentum == 0 ? "last" : "averaged"); }}};
}
namespace {

constexpr const char* kActnn = name_of(PolicyKind::actnn).data();  // Learned::policy

constexpr double kFirstNorm = 8;  // bits before the first product, outside of the average
constexpr int kGrid = 8;          // averages per bit that a tensor can have

// The lists in the written form of ActnnState. In all lists but the last two, each tensor has one
// number. In "extents" and "ranges" it has as many as "dims" and "samples" say.
constexpr const char* kTensorLists[] = {"tensors",  "bits",    "sensitivities", "in_last_step",
                                        "has_sign", "slopes",  "first_norm",    "dims",
                                        "samples",  "extents", "ranges"};
constexpr double kUnmeasured = -1;                // stands for a sensitivity that was not measured
constexpr const char* kGradients = "gradients.";  // an array of each tensor, by its seq
// The share of the old average that stays when a sample comes again.
constexpr float kKeptOfGradient = 0.5f;

double average_of(const ActnnOptions& options) {
  const double average = options.average;
  FRUGAL_CHECK(
      options.mixed || (average == std::floor(average) && average >= 0 && average <= kMaxBits),
      "[actnn] expected 0 or 1 to 16 whole bits where widths are not mixed, got {}", average);
  FRUGAL_CHECK(!options.mixed || (1 <= options.min_bits && options.min_bits <= average &&
                                  average <= options.max_bits && options.max_bits <= kMaxBits),
               "[actnn] expected an average and widths of 1 to 16 bits around it, got {} and {} to "
               "{}",
               average, options.min_bits, options.max_bits);
  return average;
}

FixedPolicyOptions actnn_keep(const ActnnOptions& options) {
  FixedPolicyOptions keep = options.keep;
  keep.bits = static_cast<int>(average_of(options));
  if (options.products_only) keep.recipes = false;
  return keep;
}

MixedOptions mixed_of(const FixedPolicyOptions& keep) {
  return {keep.group, keep.rounding_here(), keep.seed};
}

// The squared norm of x, if ops compute with its dtype. The order of additions does not
// depend on threads.
std::optional<double> known_squared_norm(const Tensor& x) {
  if (!is_computed(x.dtype())) return {};
  return x.device() == kMeta ? 0 : ops::sum_of_squares(ops::contiguous(x));
}

// A normalization of rows counts as `other`, because its factor differs from row to row.
bool is_other(const Use& use) {
  return use.kind == Use::Kind::other || use.kind == Use::Kind::normalized_rows;
}

bool is_activation(const SavedTensor& slot) {
  return slot.defined() && slot.role() == Role::activation;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

ActnnPolicy::ActnnPolicy(const ActnnOptions& options)
    : options_(options),
      average_(average_of(options)),
      keep_(actnn_keep(options)),
      quantizer_(mixed_of(options.keep)) {
  FRUGAL_CHECK(options.keep.axis == GroupAxis::column,
               "[actnn] expected groups in a channel, which samples share, got groups along rows");
  FRUGAL_CHECK(!options.keep.pack_recomputed,
               "[actnn] expected recomputed blocks that keep their inputs whole, got packed ones");
  FRUGAL_CHECK(options.interval >= 1, "[actnn] expected an interval of at least 1 step, got {}",
               options.interval);
  FRUGAL_CHECK(options.momentum >= 0 && options.momentum < 1,
               "[actnn] expected a momentum of 0 to below 1, got {}", options.momentum);
  FRUGAL_CHECK(!options.use_gradient || (options.mixed && options.by_sample),
               "[actnn] expected widths by sample with use_gradient, got {}",
               options.mixed ? "widths by tensor" : "one width");
}

double ActnnPolicy::share_of_step() const {
  // Dither and rounding to nearest leave errors of half a step at most.
  return options_.keep.rounding_here() == Rounding::stochastic ? 1.0 / 6 : 1.0 / 12;
}

Adjustable::Range ActnnPolicy::fineness_range() const {
  if (!options_.mixed) return {};
  return {static_cast<double>(options_.min_bits), static_cast<double>(options_.max_bits), 0.25};
}

void ActnnPolicy::set_average(double average) {
  const Range range = fineness_range();
  FRUGAL_CHECK(
      average_ > 0 && range.least <= average && average <= range.most &&
          (options_.mixed || average == std::floor(average)),
      "[actnn] expected {} to {} bits on average, whole ones if not mixed, got {} after {}",
      range.least, range.most, average, average_);
  settle();
  average_ = average;
  keep_.set_bits(static_cast<int>(average));
  // Until the next measurement, each tensor has the width of a new tensor.
  for (auto& [seq, item] : items_) item.bits = usual_bits(item);
  allocate();
}

// Ranges change fast in the first steps, so the policy looks at steps 1, 2, 4, 8, ... of the first
// interval.
bool ActnnPolicy::due(uint64_t step) const {
  return step % static_cast<uint64_t>(options_.interval) == 0 ||
         (step < static_cast<uint64_t>(options_.interval) && std::has_single_bit(step));
}

Decision ActnnPolicy::decide(const SaveInfo& info, const Tensor& value) {
  if (info.seq == 0) {
    settle();
    decisions_.clear();
    first_norms_.clear();
    chain_.clear();
    ++pass_;
    after_product_ = false;
    observing_ = learns_in(info.step);
    finite_ = true;
  }
  SaveInfo seen = info;
  // The samples of a source that no rebuild was expected to read may have few bits.
  if (options_.mixed) seen.rebuilt = info.rebuilt_with(options_.min_bits);
  Decision decision = keep_.decide(seen, value);
  if (options_.products_only && info.use.kind != Use::Kind::product) decision = {Decision::raw};
  if (decision.codec != nullptr) decision.codec = this;
  decisions_[info.seq] = decision.what;
  if (options_.norms_outside) {
    first_norms_[info.seq] = !after_product_ && info.use.kind == Use::Kind::normalized;
    after_product_ = after_product_ || info.use.kind == Use::Kind::product;
  }
  return decision;
}

double ActnnPolicy::usual_bits(const Item& item) const {
  return item.first_norm ? std::min<double>(kFirstNorm, options_.max_bits) : average_;
}

int ActnnPolicy::least_bits(const Item& item) const {
  return item.has_sign ? std::max(options_.min_bits, 2) : options_.min_bits;
}

StepVariance ActnnPolicy::variance_of(const Item& item) const {
  if (!item.has_sign) return step_variance;
  return [slope = item.slope](int bits) { return split_variance(slope, bits); };
}

int64_t ActnnPolicy::extra_bits(const Item& item, int64_t count) const {
  const int least = least_bits(item);
  const auto extra = std::llround((item.bits - least) * static_cast<double>(count));
  return std::clamp<int64_t>(extra, 0, count * std::max(options_.max_bits - least, 0));
}

std::vector<double> ActnnPolicy::weights_of(const Item& item, int64_t count) const {
  if (options_.by_sample && static_cast<int64_t>(item.ranges.samples.size()) == count)
    return item.ranges.samples;
  const double mean = item.ranges.samples.empty() ? 1 : mean_of(item.ranges.samples);
  return std::vector<double>(static_cast<size_t>(count), mean);
}

std::unique_ptr<Packed> ActnnPolicy::pack(const Tensor& tensor, const SaveInfo& info) const {
  const auto decided = decisions_.find(info.seq);
  // A rebuild also gives tensors between its source and its result. They wait, packed in the
  // average width.
  const bool waits = decided == decisions_.end() || decided->second != Decision::pack;
  const int least = waits ? 0 : keep_.least_bits(info);
  if (!options_.mixed || waits || least > 0) {
    const int bits = std::max(static_cast<int>(std::ceil(average_)), least);
    return quantizer_.uniform(bits).pack(tensor, info);
  }
  SaveInfo seen = info;
  if (seen.sign != nullptr && !quantizer_.can_carry_sign(tensor.shape())) seen.sign = nullptr;
  const auto [place, fresh] = items_.try_emplace(info.seq);
  Item& item = place->second;
  item.seq = info.seq;
  item.shape = tensor.shape();
  item.use = info.use;
  item.op = info.op;
  item.slot = info.slot;
  item.has_sign = seen.sign != nullptr;
  item.slope = item.has_sign ? seen.sign->slope : 0;
  item.pass = pass_;
  item.direct = item.through = 0;
  item.direct_of.clear();
  item.through_of.clear();
  item.factor = 1;
  item.is_read = false;
  const auto first_norm = first_norms_.find(info.seq);
  item.first_norm = first_norm != first_norms_.end() && first_norm->second;
  if (fresh) item.bits = usual_bits(item);
  const Samples samples = samples_of(tensor.shape(), item.has_sign);
  const int64_t extra = extra_bits(item, samples.count);
  const bool all_one =
      extra == 0 || extra == samples.count * (options_.max_bits - least_bits(item));
  if (observing_ || (options_.by_sample && !all_one)) {
    item.ranges = group_ranges(tensor, samples, options_.keep.group);
    const std::vector<double> weights = gradient_weights(item, samples);
    for (size_t n = 0; n < weights.size(); ++n) item.ranges.samples[n] *= weights[n];
  }
  if (observing_ && is_other(item.use))
    item.mean_square = known_squared_norm(tensor).value_or(0) / static_cast<double>(tensor.numel());
  return quantizer_.pack(
      tensor, seen,
      spread_bits(weights_of(item, samples.count), extra, least_bits(item),
                  std::max(options_.max_bits, least_bits(item)), variance_of(item)));
}

ActnnPolicy::Item* ActnnPolicy::find(uint64_t seq) {
  const auto found = items_.find(seq);
  return found != items_.end() && found->second.pass == pass_ ? &found->second : nullptr;
}

void ActnnPolicy::set_samples(const Tensor& samples) {
  if (!options_.use_gradient) return;
  settle();  // what was seen belongs to the samples before
  samples_.clear();
  if (!samples.defined()) return;
  for (const int64_t index : samples.to_vector<int64_t>()) {
    FRUGAL_CHECK(index >= 0, "[actnn] expected indices of samples of at least 0, got {}", index);
    samples_.push_back(index);
  }
}

std::vector<double> ActnnPolicy::norms_of_samples(const Tensor& dy) const {
  const auto count = static_cast<int64_t>(samples_.size());
  if (count == 0 || dy.device() == kMeta || dy.dim() == 0 || dy.size(0) % count != 0) return {};
  const CategoryScope scope(Category::workspace);
  const Tensor x = ops::contiguous(dy);
  if (x.device() != kCpu)  // one sum for all of them: the host waits once
    return ops::sum(ops::mul(x, x).view({count, -1}), {1}).to_vector();
  std::vector<double> norms;
  const int64_t each = x.size(0) / count;
  for (int64_t n = 0; n < count; ++n)
    norms.push_back(ops::sum_of_squares(x.slice(0, n * each, (n + 1) * each)));
  return norms;
}

std::vector<double> ActnnPolicy::gradient_weights(const Item& item, const Samples& samples) const {
  const auto known = gradients_.find(item.seq);
  const auto count = static_cast<int64_t>(samples_.size());
  if (known == gradients_.end() || count == 0 || item.shape.dim() == 0 ||
      item.shape[0] % count != 0)
    return {};
  std::vector<double> gradients;
  double sum = 0, seen = 0;
  for (const int64_t index : samples_) {
    const auto place = static_cast<size_t>(index);
    gradients.push_back(place < known->second.size() ? known->second[place] : 0);
    sum += gradients.back();
    seen += gradients.back() > 0 ? 1 : 0;
  }
  if (seen == 0) return {};
  for (double& each : gradients) each = each > 0 ? each * seen / sum : 1;
  // A sample of the tensor may be a part of a sample of the batch, or several.
  const int64_t parts = item.shape[0] / count;
  std::vector<double> weights;
  for (int64_t n = 0; n < samples.count; ++n) {
    const int64_t begin = n * samples.each,
                  end = n + 1 == samples.count ? item.shape[0] : begin + samples.each;
    double all = 0;
    for (int64_t entry = begin; entry < end; ++entry)
      all += gradients[static_cast<size_t>(entry / parts)];
    weights.push_back(all / static_cast<double>(end - begin));
  }
  return weights;
}

void ActnnPolicy::remember(const Item& item) const {
  std::vector<double> norms = item.direct_of;
  norms.resize(std::max(norms.size(), item.through_of.size()));
  for (size_t n = 0; n < item.through_of.size(); ++n) norms[n] += item.through_of[n] * item.factor;
  if (norms.empty()) return;
  std::vector<float>& all = gradients_[item.seq];
  const auto most = static_cast<size_t>(*std::max_element(samples_.begin(), samples_.end()));
  if (all.size() <= most) all.resize(most + 1);
  for (size_t n = 0; n < norms.size(); ++n) {
    float& kept = all[static_cast<size_t>(samples_[n])];
    const auto now = static_cast<float>(norms[n]);
    if (std::isfinite(now)) kept = kKeptOfGradient * kept + (1 - kKeptOfGradient) * now;
  }
}

void ActnnPolicy::read(const SavedTensor& slot, double fan, double norm,
                       const std::vector<double>& norms) {
  std::vector<uint64_t> sources = slot.rests_on();
  bool through = slot.is_recipe();
  if (through) {
    if (sources.size() > 1) chain_ = sources;
  } else if (sources.size() == 1) {
    // An earlier rebuild passed through this tensor. The tensor rests on the sources of that
    // rebuild that were saved before it.
    const uint64_t own = sources.front();
    const auto decided = decisions_.find(own);
    if (decided != decisions_.end() && decided->second == Decision::rebuild) {
      through = true;
      sources = chain_;
      std::erase_if(sources, [own](uint64_t seq) { return seq >= own; });
    }
  }
  for (const uint64_t seq : sources) {
    Item* const item = find(seq);
    if (item == nullptr) continue;
    (through ? item->through : item->direct) += fan * norm;
    std::vector<double>& each = through ? item->through_of : item->direct_of;
    each.resize(std::max(each.size(), norms.size()));
    for (size_t n = 0; n < norms.size(); ++n) each[n] += fan * norms[n];
    item->is_read = true;
  }
}

// Multiplies the sensitivity of x by the factor by which a normalization enlarges squared errors,
// as a mean over channels.
void ActnnPolicy::scale_errors(const SavedTensor& slot, const Slots& slots) {
  const std::vector<uint64_t> own = slot.rests_on();
  Item* const item = slot.is_recipe() || own.size() != 1 ? nullptr : find(own.front());
  if (item == nullptr || slot.use().invstd < 0) return;
  if (slots[slot.use().invstd].unpack().device() == kMeta) return;  // no values: errors stay
  const std::vector<double> invstd = slots[slot.use().invstd].unpack().to_vector();
  std::vector<double> weight(invstd.size(), 1);
  if (slot.use().weight >= 0 && slots[slot.use().weight].defined())
    weight = slots[slot.use().weight].unpack().to_vector();
  const std::vector<double>& channels = item->ranges.channels;
  if (channels.size() != invstd.size() || weight.size() != invstd.size()) return;
  double sum = 0, all = 0;
  for (size_t c = 0; c < channels.size(); ++c) {
    const double gain = weight[c] * invstd[c];
    sum += channels[c] * gain * gain;
    all += channels[c];
  }
  if (all > 0) item->factor = sum / all;
}

void ActnnPolicy::before(const BackwardStep& step, const Tensor& dy) {
  observed_ = true;
  struct Norms {
    std::optional<double> all;
    std::vector<double> of_samples;
  };
  const auto norms_of = [this](const Tensor& x) {
    Norms norms{known_squared_norm(x), {}};
    if (norms.all && options_.use_gradient) norms.of_samples = norms_of_samples(x);
    return norms;
  };
  std::optional<Norms> of_dy;
  for (int i = 0; i < step.slots.size(); ++i) {
    const SavedTensor& slot = step.slots[i];
    if (!is_activation(slot)) continue;
    if (slot.use().kind == Use::Kind::normalized) scale_errors(slot, step.slots);
    if (slot.use().kind != Use::Kind::product) continue;
    Norms norms;
    if (slot.use().weight >= 0) {
      const CategoryScope scope(Category::workspace);
      norms = norms_of(factor_of(slot.use(), step.slots, dy));
    } else {
      if (!of_dy) of_dy = norms_of(dy);
      norms = *of_dy;
    }
    if (!norms.all) return;
    finite_ = finite_ && std::isfinite(*norms.all);
    read(slot, slot.use().fan, *norms.all, norms.of_samples);
  }
}

void ActnnPolicy::after(const BackwardStep& step, const Grads& gradients) {
  for (int i = 0; i < step.slots.size(); ++i) {
    const SavedTensor& slot = step.slots[i];
    if (!is_activation(slot) || !is_other(slot.use()) || slot.is_recipe()) continue;
    const std::vector<uint64_t> own = slot.rests_on();
    Item* const item = own.size() == 1 ? find(own.front()) : nullptr;
    // Another op saved the slots that only a recipe needs.
    if (item == nullptr || item->op != step.op || item->slot != i || item->mean_square <= 0)
      continue;
    double sum = 0;
    for (const Gradient& gradient : gradients)
      if (gradient.defined() && gradient.shape().dim() > 0)
        sum += known_squared_norm(gradient.rows(0, gradient.shape()[0])).value_or(0);
    finite_ = finite_ && std::isfinite(sum);
    item->direct += sum / item->mean_square;
    item->is_read = true;
  }
}

void ActnnPolicy::settle() const {
  if (!observed_) return;
  observed_ = false;
  if (!finite_) return;
  for (auto& [seq, item] : items_) {
    if (item.pass != pass_ || !item.is_read) continue;
    const double now = item.direct + item.through * item.factor;
    if (!std::isfinite(now)) continue;
    item.sensitivity = item.sensitivity
                           ? options_.momentum * *item.sensitivity + (1 - options_.momentum) * now
                           : now;
    if (options_.use_gradient) remember(item);
  }
  if (options_.by_tensor) allocate();
}

void ActnnPolicy::allocate() const {
  // A tensor that has a sensitivity, and the tensors after it that have none.
  struct Group {
    std::vector<Item*> items;
    std::vector<double> averages;
  };
  std::vector<Group> groups;
  double all = 0;
  for (auto& [seq, item] : items_) {
    if (item.pass != pass_) continue;
    if (item.sensitivity) {
      groups.push_back({{&item}, {}});
      all += *item.sensitivity;
    } else if (groups.empty() || item.first_norm) {
      item.bits = usual_bits(item);
    } else {
      groups.back().items.push_back(&item);
    }
  }
  if (!(all > 0)) return;
  std::vector<std::vector<Option>> options;
  double budget = 0;
  auto bits_at = [&](const Group& group, double average) {
    double bits = 0;
    // The first item has the sensitivity. Normalizations read the others.
    for (const Item* item :
         std::span(group.items).first(options_.norms_outside ? 1 : group.items.size()))
      bits +=
          std::max<double>(average, least_bits(*item)) * static_cast<double>(item->shape.numel());
    return bits;
  };
  for (Group& group : groups) {
    const Item& first = *group.items.front();
    const int least = least_bits(first), most = std::max(options_.max_bits, least);
    const int64_t count = samples_of(first.shape, first.has_sign).count;
    const int grid = options_.by_sample ? kGrid : 1;
    std::vector<int64_t> extras;
    for (int64_t k = 0; k <= int64_t{grid} * (most - least); ++k) {
      const int64_t extra = k * count / grid;
      if (extras.empty() || extras.back() != extra) extras.push_back(extra);
    }
    const std::vector<double> costs =
        spread_costs(weights_of(first, count), extras, least, most, variance_of(first));
    std::vector<Option>& each = options.emplace_back();
    for (size_t k = 0; k < extras.size(); ++k) {
      group.averages.push_back(least + static_cast<double>(extras[k]) / static_cast<double>(count));
      each.push_back({*first.sensitivity * share_of_step() * costs[k],
                      static_cast<int64_t>(bits_at(group, group.averages.back()))});
    }
    budget += bits_at(group, average_);
  }
  const Allocation best = compress::allocate(options, static_cast<int64_t>(budget));
  for (size_t i = 0; i < groups.size(); ++i)
    for (Item* item : groups[i].items)
      item->bits = std::max<double>(groups[i].averages[static_cast<size_t>(best.choice[i])],
                                    least_bits(*item));
}

std::vector<ActnnPolicy::Item> ActnnPolicy::items() const {
  settle();
  std::vector<Item> all;
  for (const auto& [seq, item] : items_)
    if (item.pass == pass_) all.push_back(item);
  return all;
}

double ActnnPolicy::predicted_variance() const {
  double sum = 0;
  for (const Item& item : items()) {
    const int64_t count = samples_of(item.shape, item.has_sign).count;
    const int64_t extra[] = {extra_bits(item, count)};
    const int least = least_bits(item);
    sum += item.sensitivity.value_or(0) * share_of_step() *
           spread_costs(weights_of(item, count), extra, least, std::max(options_.max_bits, least),
                        variance_of(item))
               .front();
  }
  return sum;
}

double ActnnPolicy::average_bits() const {
  double bits = 0, elements = 0;
  for (const Item& item : items()) {
    bits += std::max<double>(item.bits, least_bits(item)) * static_cast<double>(item.shape.numel());
    elements += static_cast<double>(item.shape.numel());
  }
  return elements > 0 ? bits / elements : 0;
}

Learned ActnnState::write() const {
  Learned learned{kActnn, kVersion, {}};
  for (const char* name : kTensorLists) learned.lists[name] = {};
  learned.set("average", average);
  for (const Tensor& tensor : tensors) {
    const double row[] = {static_cast<double>(tensor.seq),
                          tensor.bits,
                          tensor.sensitivity.value_or(kUnmeasured),
                          tensor.in_last_step ? 1.0 : 0.0,
                          tensor.has_sign ? 1.0 : 0.0,
                          tensor.slope,
                          tensor.first_norm ? 1.0 : 0.0,
                          static_cast<double>(tensor.shape.dim()),
                          static_cast<double>(tensor.ranges.size())};
    for (size_t i = 0; i < std::size(row); ++i) learned.add(kTensorLists[i], row[i]);
    for (const int64_t extent : tensor.shape) learned.add("extents", static_cast<double>(extent));
    for (const double range : tensor.ranges) learned.add("ranges", range);
  }
  for (const auto& [seq, each] : gradients)
    learned.arrays[fmt::format("{}{}", kGradients, seq)] = each;
  return learned;
}

ActnnState ActnnState::read(const Learned& learned) {
  constexpr double kWhole = LearnedReader::kLargest, kInfinity = HUGE_VAL;
  constexpr double kMost = std::numeric_limits<double>::max();  // the largest finite number
  LearnedReader reader(learned, kActnn, kVersion);
  ActnnState state;
  state.average = reader.number("average", 0, kMaxBits);
  const std::vector<uint64_t> seqs = reader.tensors("tensors");
  const size_t count = seqs.size();
  const std::vector<double>& bits = reader.list("bits", 1, kMaxBits, count);
  const std::vector<double>& sensitivities =
      reader.list("sensitivities", kUnmeasured, kMost, count);
  const auto in_last_step = reader.wholes("in_last_step", 0, 1, count);
  const auto has_sign = reader.wholes("has_sign", 0, 1, count);
  const std::vector<double>& slopes = reader.list("slopes", 0, kMost, count);
  const auto first_norm = reader.wholes("first_norm", 0, 1, count);
  const auto dims = reader.wholes("dims", 0, Shape::kMaxDim, count);
  const auto samples = reader.wholes("samples", 0, kMaxSamples, count);
  ListParts extents(kActnn, "extents", reader.list("extents", 0, kWhole));
  ListParts ranges(kActnn, "ranges", reader.list("ranges", 0, kInfinity));
  reader.wholes("extents", 0, kWhole);
  for (size_t i = 0; i < count; ++i) {
    Tensor& tensor = state.tensors.emplace_back();
    tensor.seq = seqs[i];
    tensor.bits = bits[i];
    FRUGAL_CHECK(sensitivities[i] >= 0 || sensitivities[i] == kUnmeasured,
                 "[actnn] expected a sensitivity of at least 0 for tensor {}, got {}", seqs[i],
                 sensitivities[i]);
    if (sensitivities[i] >= 0) tensor.sensitivity = sensitivities[i];
    tensor.in_last_step = in_last_step[i] == 1;
    tensor.has_sign = has_sign[i] == 1;
    tensor.slope = slopes[i];
    tensor.first_norm = first_norm[i] == 1;
    double elements = 1;
    for (const double extent : extents.next(dims[i])) {
      tensor.shape.push_back(static_cast<int64_t>(extent));
      elements *= extent;
    }
    FRUGAL_CHECK(elements <= kWhole, "[actnn] expected a shape of at most 2^53 elements, got {}",
                 tensor.shape);
    const auto each = ranges.next(samples[i]);
    tensor.ranges.assign(each.begin(), each.end());
  }
  extents.end();
  ranges.end();
  for (const uint64_t seq : seqs) {
    const std::string name = fmt::format("{}{}", kGradients, seq);
    if (learned.arrays.contains(name))
      state.gradients[seq] = reader.array(name, 0, std::numeric_limits<float>::max());
  }
  reader.end();
  return state;
}

ActnnState ActnnPolicy::state() const {
  settle();
  ActnnState state{average_, {}, gradients_};
  for (const auto& [seq, item] : items_)
    state.tensors.push_back({seq, item.bits, item.sensitivity, item.pass == pass_, item.has_sign,
                             item.slope, item.first_norm, item.shape, item.ranges.samples});
  return state;
}

void ActnnPolicy::restore(const ActnnState& state) {
  const bool raw = average_of(options_) == 0;  // tensors are kept raw
  FRUGAL_CHECK(raw ? state.average == 0 : state.average >= 1 && state.average <= kMaxBits,
               "[actnn] expected an average of {} in what was learned, got {}",
               raw ? "0" : "1 to 16", state.average);
  FRUGAL_CHECK(options_.use_gradient || state.gradients.empty(),
               "[actnn] expected no gradients of samples without use_gradient, got those of {} "
               "tensors",
               state.gradients.size());
  std::map<uint64_t, Item> items;
  for (const ActnnState::Tensor& tensor : state.tensors) {
    // The next pass writes the members that belong to one pass. The state does not have them.
    const auto known = items_.find(tensor.seq);
    Item item = known != items_.end() ? known->second : Item();
    item.seq = tensor.seq;
    item.bits = tensor.bits;
    item.sensitivity = tensor.sensitivity;
    item.pass = tensor.in_last_step ? pass_ : pass_ - 1;
    item.has_sign = tensor.has_sign;
    item.slope = tensor.slope;
    item.first_norm = tensor.first_norm;
    item.shape = tensor.shape;
    item.ranges.samples = tensor.ranges;
    items.emplace(tensor.seq, std::move(item));
  }
  if (state.average != average_) keep_.set_bits(static_cast<int>(state.average));
  average_ = state.average;
  items_ = std::move(items);
  gradients_ = state.gradients;
  samples_.clear();
  observed_ = false;
}

Learned ActnnPolicy::joined(const std::vector<Learned>& of_ranks) const {
  FRUGAL_CHECK(!options_.use_gradient,
               "[actnn] expected no use_gradient where {} processes train together: each knows the "
               "gradients of its own samples only",
               of_ranks.size());
  struct Sum {
    double bits = 0, count = 0, sensitivity = 0, measured = 0;
  };
  std::map<uint64_t, Sum> sums;
  for (const Learned& learned : of_ranks) {
    if (learned.empty()) continue;
    for (const ActnnState::Tensor& tensor : ActnnState::read(learned).tensors) {
      Sum& sum = sums[tensor.seq];
      sum.bits += tensor.bits;
      ++sum.count;
      if (!tensor.sensitivity) continue;
      sum.sensitivity += *tensor.sensitivity;
      ++sum.measured;
    }
  }
  ActnnState mine = state();
  for (ActnnState::Tensor& tensor : mine.tensors) {
    const auto found = sums.find(tensor.seq);
    if (found == sums.end()) continue;
    const Sum& sum = found->second;
    tensor.bits = sum.bits / sum.count;
    if (sum.measured > 0) tensor.sensitivity = sum.sensitivity / sum.measured;
  }
  return mine.write();
}

void ActnnPolicy::restore_learned(const Learned& learned) {
  restore(learned.empty() ? ActnnState{average_of(options_), {}, {}} : ActnnState::read(learned));
}

void ActnnPolicy::add_roles(PolicyRoles& roles) {
  PolicyRoles::note(roles.learner, this);
  PolicyRoles::note(roles.adjustable, this);
  PolicyRoles::note(roles.per_sample, this);
}

}  // namespace frugal::compress
