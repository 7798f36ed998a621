#include "compress/policies/acgc_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "compress/bounded/bounded_fixed.h"
#include "compress/policies/policy_kind.h"
#include "compress/policies/policy_roles.h"

namespace frugal::compress {

std::vector<by_name::Option<AcgcOptions>> AcgcOptions::list() {
  namespace range = by_name::range;
  using S = AcgcOptions;
  static const std::string codecs = fmt::format("{}", fmt::join(error_bounded_names(), ", "));
  return {{{"growth", range::number(1e-6, 1e6),
            "The paper's e: errors of e^2 of the squared gradient are allowed."},
           &S::e},
          {{"rule", range::choice("derived, published"),
            "derived: bounds that hold; published: those of the paper, its widths and rounding, "
            "and no recipes."},
           &S::rule},
          {{"count", range::choice("worst, expected"),
            "What is bounded: errors in the worst case, or, of stochastic rounding, what is "
            "expected of them, which takes far fewer bits."},
           &S::count},
          {{"codec", range::choice(codecs.c_str()),
            "fixed: a width for each channel; fixed_z: the same, zeros as masks where that is "
            "less; entropy: steps coded by their entropy; predicted: dithered steps, coded by what "
            "neighbours predict, which takes the fewest bits; zfp where built with it."},
           &S::codec},
          {{"interval", range::integer(1, int64_t{1} << 40),
            "Steps from one look at the gradients to the next."},
           &S::interval}};
}

namespace {

constexpr const char* kAcgc = name_of(PolicyKind::acgc).data();  // Learned::policy

constexpr double kStepsAtOne = 15;  // e = 1 counts as the 15 steps of a width of 4 bits

FixedPolicyOptions acgc_keep(const AcgcOptions& options) {
  FRUGAL_CHECK(options.start_bits >= 0 && options.start_bits <= 16,
               "[acgc] expected start_bits in 1..16, or 0 for the default, got {}",
               options.start_bits);
  FixedPolicyOptions keep = options.keep;
  keep.bits = start_bits(options);
  keep.corrected = false;  // error-bounded codecs do not tell their variance
  keep.signs = Signs::masks;
  keep.rounding = options.rounding;
  FRUGAL_CHECK(keep.axis == GroupAxis::column,
               "[acgc] expected groups in a channel, as bounds are, got groups along rows");
  FRUGAL_CHECK(!keep.pack_recomputed,
               "[acgc] expected recomputed blocks that keep their inputs whole, got packed ones");
  return keep;
}

QuantizeOptions start_of(const AcgcOptions& options) {
  QuantizeOptions start;
  start.bits = start_bits(options);
  start.group = options.keep.group;
  start.rounding = options.rounding;
  start.seed = options.keep.seed;
  return start;
}

std::unique_ptr<ErrorBounded> codec_of(const AcgcOptions& options) {
  FRUGAL_CHECK(
      1 <= options.min_bits && options.min_bits <= options.max_bits && options.max_bits <= 16,
      "[acgc] expected widths of 1 to 16 bits, got {} to {}", options.min_bits, options.max_bits);
  const bool published = options.rule == acgc::Rule::published;
  const bool expected = options.count == acgc::Count::expected;
  FRUGAL_CHECK(!published || options.codec == "fixed" || options.codec == "fixed_z",
               "[acgc] expected codec fixed or fixed_z with the published rule, got {}",
               options.codec);
  FRUGAL_CHECK(options.rounding != Rounding::dithered,
               "[acgc] expected stochastic or nearest rounding, got dithered");
  FRUGAL_CHECK(!published || !expected,
               "[acgc] expected the published rule to count the worst case, got expected errors");
  FRUGAL_CHECK(!expected || (options.rounding == Rounding::stochastic && options.codec != "zfp"),
               "[acgc] expected stochastic rounding, and no zfp, to bound expected errors, got {}",
               options.codec == "zfp" ? "zfp" : "nearest");
  ErrorBoundedOptions of;
  of.rounding = options.rounding;
  of.seed = options.keep.seed;
  of.min_bits = options.min_bits;
  of.max_bits = options.max_bits;
  of.clip = true;
  of.meta_bits = assumed_bits(options);
  of.expected = expected;
  if (!published) return make_error_bounded(options.codec, of);
  return std::make_unique<BoundedFixed>(
      BoundedFixedOptions{of, WidthRule::published, options.codec == "fixed_z"});
}

}  // namespace

int start_bits(const AcgcOptions& options) {
  if (options.start_bits > 0) return options.start_bits;
  // Tensors take few bits later, so 8 would make the first step the peak of a run.
  return options.count == acgc::Count::expected ? 4 : 8;
}

double assumed_bits(const AcgcOptions& options) {
  const bool zeros = options.codec == "fixed_z";
  if (options.rule == acgc::Rule::published)
    return std::clamp((zeros ? 6.7 : 7.3) + 1 - std::log2(options.e), 2.0, 16.0);
  struct Row {
    std::string_view codec;
    double worst, expected;      // bits without recipes
    double rebuilt, by_recipes;  // Count::worst and Count::expected with recipes
  };
  constexpr Row kMeasured[] = {{"fixed", 10.8, 2.4, 11.4, 2.8},
                               {"fixed_z", 8.9, 2.3, 11.4, 2.8},
                               {"entropy", 8.0, 1.4, 10.3, 1.9},
                               {"predicted", 7.1, 0.7, 7.6, 0.7},
                               {"zfp", 11.5, 11.5, 12.3, 12.3}};
  const bool expected = options.count == acgc::Count::expected;
  double bits = 8;
  for (const Row& row : kMeasured)
    if (row.codec == options.codec)
      bits = options.keep.recipes ? (expected ? row.by_recipes : row.rebuilt)
                                  : (expected ? row.expected : row.worst);
  const bool predicted = options.codec == "predicted";
  // Steps of twice the bound instead of the bound itself; the others round in one way only.
  if (options.rounding == Rounding::nearest && !predicted && options.codec != "zfp") bits -= 1;
  return std::clamp(bits - std::log2(options.e), predicted ? 0.25 : 1.0, 16.0);
}

AcgcPolicy::AcgcPolicy(const AcgcOptions& options)
    : options_(options),
      keep_(acgc_keep(options)),
      start_(start_of(options)),
      codec_(codec_of(options)),
      collector_({options.e, options.rule, options.count}, [this](uint64_t seq) {
        const auto found = decisions_.find(seq);
        return found != decisions_.end() && found->second == Decision::rebuild;
      }) {
  FRUGAL_CHECK(options.e > 0 && std::isfinite(options.e),
               "[acgc] expected a positive and finite e, got {}", options.e);
  FRUGAL_CHECK(options.interval >= 1, "[acgc] expected an interval of at least 1 step, got {}",
               options.interval);
  FRUGAL_CHECK(options.window >= 1, "[acgc] expected a window of at least 1, got {}",
               options.window);
  if (options.rounding == Rounding::stochastic) fineness_ = std::log2(1 + kStepsAtOne / options.e);
  first_ = {-1, options.e, fineness_, {}};
}

// A step that it learned from may have further batches.
bool AcgcPolicy::learns_at(uint64_t number) const {
  const auto step = static_cast<int64_t>(number);
  return last_ < 0 || step <= last_ || step - last_ >= options_.interval;
}

Decision AcgcPolicy::decide(const SaveInfo& info, const Tensor& value) {
  if (info.seq == 0) {
    settle();
    decisions_.clear();
    observing_ = learns_in(info.step);
    if (observing_) {
      observed_ = true;
      last_ = static_cast<int64_t>(step_of(info.step));
    }
  }
  SaveInfo seen = info;
  if (info.rebuilt == Rebuilt::unbiased && options_.min_bits < info.least_bits)
    seen.rebuilt = Rebuilt::biased;  // bounds choose widths, whatever reads a tensor
  Decision decision = keep_.decide(seen, value);
  if (decision.codec != nullptr) decision.codec = this;
  decisions_[info.seq] = decision.what;
  return decision;
}

void AcgcPolicy::settle() const {
  if (!observed_) return;
  observed_ = false;
  for (auto& [seq, bounds] : collector_.bounds2()) {
    auto& history = seen_[seq];
    if (!history.empty() && history.back().squares.size() != bounds.squares.size()) history.clear();
    history.push_back(bounds);
    while (static_cast<int64_t>(history.size()) > options_.window) history.pop_front();
  }
  collector_.clear();
}

std::vector<double> AcgcPolicy::bounds2(uint64_t seq) const {
  const auto found = seen_.find(seq);
  if (found == seen_.end()) return {};
  const auto& history = found->second;
  const size_t size = history.front().squares.size();
  std::vector<double> mean(size, 0.0), weights(size, 0.0);
  for (const acgc::Bounds& each : history)
    for (size_t i = 0; i < size; ++i) weights[i] += each.weights[i];
  for (const acgc::Bounds& each : history)
    for (size_t i = 0; i < size; ++i) mean[i] += each.squares[i] * each.weights[i] / weights[i];
  return mean;
}

std::unique_ptr<Packed> AcgcPolicy::pack(const Tensor& tensor, const SaveInfo& info) const {
  SaveInfo plain = info;
  plain.sign = nullptr;  // masks are kept
  const auto decided = decisions_.find(info.seq);
  // A rebuild also gives tensors between its source and its result. They wait, packed in the first
  // width.
  if (decided == decisions_.end() || decided->second != Decision::pack)
    return start_.pack(tensor, plain);
  std::vector<double> bounds = bounds2(info.seq);
  for (double& each : bounds) each = std::sqrt(each);
  const int64_t channels = tensor.dim() == 0 ? 1 : tensor.shape().back();
  if (tensor.device() == kMeta && !first_on_meta()) bounds.assign(1, 0);
  const bool bounded = static_cast<int64_t>(bounds.size()) == channels || bounds.size() == 1;
  std::unique_ptr<Packed> packed;
  int64_t bytes = 0;
  if (bounded) {
    auto payload = codec_->pack(tensor, ErrorBound(std::move(bounds)), plain);
    bytes = payload->payload().numel();
    packed = std::move(payload);
  } else {
    packed = start_.pack(tensor, plain);
    bytes = start_.packed_bytes(tensor.shape());
  }
  items_[info.seq] = {info.seq, info.op, tensor.numel(), bytes, bounded};
  return packed;
}

std::vector<AcgcPolicy::Item> AcgcPolicy::items() const {
  std::vector<Item> all;
  for (const auto& [seq, item] : items_) {
    const auto decided = decisions_.find(seq);
    if (decided != decisions_.end() && decided->second == Decision::pack) all.push_back(item);
  }
  return all;
}

double AcgcPolicy::average_bits() const {
  double bytes = 0, elements = 0;
  for (const Item& item : items()) {
    bytes += static_cast<double>(item.bytes);
    elements += static_cast<double>(item.elements);
  }
  return elements > 0 ? 8 * bytes / elements : 0;
}

// The error is a sum of a linear and a quadratic function of the bound. If e is multiplied by r,
// the bound may be multiplied by at least r if r < 1, and by at least sqrt(r) if r > 1.
void AcgcPolicy::set_e(double e) {
  FRUGAL_CHECK(e > 0 && std::isfinite(e), "[acgc] expected a positive and finite e, got {}", e);
  settle();
  const double ratio = e / options_.e;
  const double shares =
      acgc::allowed_share(e, options_.count) / acgc::allowed_share(options_.e, options_.count);
  const double square = ratio < 1 ? ratio * ratio : std::min(ratio, shares);
  for (auto& [seq, history] : seen_) {
    std::vector<double> mean = bounds2(seq);
    for (double& each : mean) each *= square;
    std::vector<double> ones(mean.size(), 1);
    history.assign(1, {std::move(mean), std::move(ones)});
  }
  options_.e = e;
  collector_.set_e(e);
  last_ = -1;
}

double AcgcPolicy::set_fineness(double bits) {
  FRUGAL_CHECK(fineness_ > 0 && bits >= 1 && bits <= 16,
               "[acgc] expected 1 to 16 bits and stochastic rounding, got {} after {}", bits,
               fineness_);
  if (bits != fineness_) set_e(kStepsAtOne / (std::exp2(bits) - 1));
  return fineness_ = bits;
}

Learned AcgcState::write() const {
  Learned learned{
      kAcgc,
      kVersion,
      {{"tensors", {}}, {"counts", {}}, {"channels", {}}, {"bounds2", {}}, {"weights", {}}}};
  learned.set("last_step", static_cast<double>(last_step));
  learned.set("e", e);
  learned.set("fineness", fineness);
  std::vector<double>&squares = learned.lists["bounds2"], &weights = learned.lists["weights"];
  for (const auto& [seq, history] : bounds2) {
    learned.add("tensors", static_cast<double>(seq));
    learned.add("counts", static_cast<double>(history.size()));
    learned.add("channels", static_cast<double>(history.front().squares.size()));
    for (const acgc::Bounds& each : history) {
      squares.insert(squares.end(), each.squares.begin(), each.squares.end());
      weights.insert(weights.end(), each.weights.begin(), each.weights.end());
    }
  }
  return learned;
}

AcgcState AcgcState::read(const Learned& learned) {
  constexpr double kWhole = LearnedReader::kLargest, kMost = std::numeric_limits<double>::max();
  constexpr double kAboveZero = std::numeric_limits<double>::min();
  LearnedReader reader(learned, kAcgc, kVersion);
  AcgcState state;
  state.last_step = reader.whole("last_step", -1, kWhole);
  state.e = reader.number("e", kAboveZero, kMost);
  state.fineness = reader.number("fineness", 0, kMost);
  const std::vector<uint64_t> tensors = reader.tensors("tensors");
  const auto counts = reader.wholes("counts", 1, kWhole, tensors.size());
  const auto channels = reader.wholes("channels", 1, 0x1p31, tensors.size());
  ListParts bounds(kAcgc, "bounds2", reader.list("bounds2", 0, HUGE_VAL));
  ListParts weights(kAcgc, "weights", reader.list("weights", kAboveZero, kMost));
  for (size_t i = 0; i < tensors.size(); ++i)
    for (int64_t k = 0; k < counts[i]; ++k) {
      const auto squares = bounds.next(channels[i]), each = weights.next(channels[i]);
      state.bounds2[tensors[i]].push_back(
          {{squares.begin(), squares.end()}, {each.begin(), each.end()}});
    }
  bounds.end();
  weights.end();
  reader.end();
  return state;
}

Learned AcgcPolicy::joined(const std::vector<Learned>& of_ranks) const {
  std::vector<AcgcState> all;
  for (const Learned& learned : of_ranks)
    if (!learned.empty()) all.push_back(AcgcState::read(learned));
  AcgcState mine = state();
  for (auto& [seq, history] : mine.bounds2) {
    acgc::Bounds& newest = history.back();
    std::vector<double> squares(newest.squares.size(), 0), weights(newest.weights.size(), 0);
    double count = 0;
    for (const AcgcState& state : all) {
      const auto found = state.bounds2.find(seq);
      if (found == state.bounds2.end()) continue;
      const acgc::Bounds& other = found->second.back();
      if (other.squares.size() != squares.size() || other.weights.size() != weights.size())
        continue;
      for (size_t i = 0; i < squares.size(); ++i) {
        squares[i] += other.weights[i] * other.squares[i];
        weights[i] += other.weights[i];
      }
      ++count;
    }
    for (size_t i = 0; i < squares.size() && count > 0; ++i) {
      newest.squares[i] = squares[i] / weights[i];
      newest.weights[i] = weights[i] / count;
    }
  }
  return mine.write();
}

AcgcState AcgcPolicy::state() const {
  settle();
  return {last_, options_.e, fineness_, seen_};
}

void AcgcPolicy::restore(AcgcState state) {
  FRUGAL_CHECK((state.fineness > 0) == (fineness_ > 0),
               "[acgc] expected a fineness that is {} 0 in what was learned, got {}",
               fineness_ > 0 ? "above" : "equal to", state.fineness);
  for (const auto& [seq, history] : state.bounds2)
    FRUGAL_CHECK(static_cast<int64_t>(history.size()) <= options_.window,
                 "[acgc] expected at most {} bounds of tensor {}, got {}", options_.window, seq,
                 history.size());
  seen_ = std::move(state.bounds2);
  last_ = state.last_step;
  options_.e = state.e;
  fineness_ = state.fineness;
  collector_.set_e(options_.e);
  observed_ = false;
  collector_.clear();
}

void AcgcPolicy::add_roles(PolicyRoles& roles) {
  PolicyRoles::note(roles.learner, this);
  PolicyRoles::note(roles.adjustable, this);
}

}  // namespace frugal::compress
