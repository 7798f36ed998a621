#include "compress/policies/acgc_collect.h"

#include <algorithm>
#include <cmath>

#include "compress/policies/product_use.h"
#include "core/computed.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/sgd.h"

namespace frugal::compress::acgc {

namespace {

constexpr double kMost = 1e30;         // the largest squared bound: checkpoints take finite numbers
constexpr double kFunctionSlope2 = 4;  // see the header

bool is_taken(const Tensor& x) { return x.defined() && is_computed(x.dtype()); }
bool is_known(const Tensor& x) { return is_taken(x) && x.device() != kMeta; }

// A raw tensor has none. The op's backward pass may have written over it, too. A slot that only the
// recipe reads counts where the rebuilt tensor is read.
bool may_have_errors(const SavedTensor& slot) {
  return slot.defined() && slot.role() == Role::activation && !slot.is_raw() &&
         slot.serves_backward();
}

double squared_norm(const Tensor& x) { return ops::sum_of_squares(ops::contiguous(x)); }

Tensor whole(const Gradient& gradient) {
  return gradient.defined() && gradient.is_whole() && gradient.shape().dim() > 0
             ? gradient.rows(0, gradient.shape()[0])
             : Tensor();
}

Tensor gradient_of(const Grads& gradients, int input) {
  const auto i = static_cast<size_t>(input);
  return input >= 0 && i < gradients.size() ? whole(gradients[i]) : Tensor();
}

// Calls f(channel of a, channel of b): channel by channel if a and b have equally many, or one of
// them has one. Otherwise each channel of a is combined with channel `worst_b` of b.
template <class F>
void combine(size_t a, size_t b, size_t worst_b, F f) {
  const bool by_channel = a == b || a == 1 || b == 1;
  for (size_t i = 0; i < (by_channel ? std::max(a, b) : a); ++i)
    f(a == 1 ? 0 : i, !by_channel ? worst_b : b == 1 ? 0 : i);
}

}  // namespace

void Collector::Reader::cap_by(const Bounds& other) {
  if (other.squares.empty()) return;
  if (cap.squares.empty()) {
    cap = other;
    return;
  }
  const auto worst = std::min_element(other.squares.begin(), other.squares.end());
  Bounds both;
  combine(cap.squares.size(), other.squares.size(),
          static_cast<size_t>(worst - other.squares.begin()), [&](size_t a, size_t b) {
            const bool first = !(other.squares[b] < cap.squares[a]);
            both.squares.push_back(first ? cap.squares[a] : other.squares[b]);
            both.weights.push_back(first ? cap.weights[a] : other.weights[b]);
          });
  cap = std::move(both);
}

double Collector::share() const { return allowed_share(options_.e, options_.count); }

void Collector::clear() {
  sources_.clear();
  chain_.clear();
  dy_ = {};
}

void Collector::before(const BackwardStep& step, const Tensor& dy) {
  dy_ = {};
  if (!is_taken(dy)) return;
  bool reads = false, by_channel = false;
  int mask = -1;
  for (int i = 0; i < step.slots.size(); ++i) {
    if (!may_have_errors(step.slots[i])) continue;
    const Use& use = step.slots[i].use();
    reads = true;
    by_channel = by_channel || use.kind != Use::Kind::product;
    if (use.mask >= 0 && step.slots[use.mask].defined()) mask = use.mask;
  }
  if (!reads) return;
  // Backward may write over dy, so everything that is needed of dy is computed now.
  const CategoryScope scope(Category::workspace);
  if (mask >= 0)
    dy_ = ops::select_by_mask(ops::contiguous(dy), step.slots.unpack(mask), 0);
  else
    dy_ = by_channel ? ops::clone(dy) : dy;
  dy2_ = is_known(dy) ? squared_norm(dy_) : 0;
  for (int i = 0; i < step.slots.size(); ++i) {
    const Use& use = step.slots[i].use();
    if (use.kind != Use::Kind::product || use.weight < 0 || !may_have_errors(step.slots[i]))
      continue;
    const Tensor factor = factor_of(use, step.slots, dy_);
    factor2_ = is_known(factor) ? squared_norm(factor) : 0;
  }
}

void Collector::after(const BackwardStep& step, const Grads& gradients) {
  if (!dy_.defined()) return;
  for (int i = 0; i < step.slots.size(); ++i) {
    const SavedTensor& slot = step.slots[i];
    if (!may_have_errors(slot)) continue;
    if (!is_known(dy_)) {
      take_memory(slot, gradients);
      continue;
    }
    switch (slot.use().kind) {
      case Use::Kind::product:
        product(slot, gradients);
        break;
      case Use::Kind::normalized:
        normalized(step.slots, slot, gradients);
        break;
      case Use::Kind::normalized_rows:
        normalized_rows(step.slots, slot, gradients);
        break;
      case Use::Kind::other:
        other(slot, gradients);
        break;
    }
  }
  dy_ = {};
}

// What the functions below do on `meta`: they allocate the same tensors and compute nothing.
void Collector::take_memory(const SavedTensor& slot, const Grads& gradients) const {
  const Use& use = slot.use();
  const Tensor of_input = gradient_of(gradients, use.kind == Use::Kind::product ? use.input : 0);
  const bool is_norm = use.kind == Use::Kind::normalized || use.kind == Use::Kind::normalized_rows;
  const Tensor of_weight = is_norm ? gradient_of(gradients, use.input) : Tensor();
  Tensor x;
  if (use.kind == Use::Kind::other || use.kind == Use::Kind::normalized_rows ||
      (use.kind == Use::Kind::normalized && options_.rule == Rule::published))
    x = slot.unpack();
}

void Collector::product(const SavedTensor& slot, const Grads& gradients) {
  const Use& use = slot.use();
  const Tensor dw = gradient_of(gradients, use.input);
  if (!is_known(dw)) return;
  const double dy2 = use.weight < 0 ? dy2_ : factor2_;
  const auto numel = static_cast<double>(slot.shape().numel());
  const double rows = static_cast<double>(dy_.numel()) / static_cast<double>(dy_.shape().back());
  Reader reader;
  reader.allowed = share() * squared_norm(dw);
  reader.price = options_.rule == Rule::published
                     ? published_price(numel, use.gain, dy2)
                     : product_price(rows, use.fan, dy2, options_.count);
  add(slot, reader);
}

void Collector::normalized(const Slots& slots, const SavedTensor& slot, const Grads& gradients) {
  const Tensor dx = gradient_of(gradients, 0);
  Tensor dw = gradient_of(gradients, slot.use().input);
  const auto channels = static_cast<size_t>(slot.shape().back());
  const auto on_host = [](const Tensor& x) { return to_device(ops::contiguous(x), kCpu); };
  const Tensor invstd = on_host(slots.unpack(slot.use().invstd));
  const Tensor weight =
      slots[slot.use().weight].defined() ? on_host(slots.unpack(slot.use().weight)) : Tensor();
  if (!is_known(dx) || invstd.numel() != static_cast<int64_t>(channels))
    return other(slot, gradients);
  const bool published = options_.rule == Rule::published;
  const ChannelSums dys = channel_sums(dy_);
  const ChannelSums xs = published ? channel_sums(slot.unpack()) : ChannelSums{};
  const double rows = static_cast<double>(dy_.numel()) / static_cast<double>(channels);
  const double count = static_cast<double>(channels), e2 = share();
  const double allowed_dx = e2 * squared_norm(dx);
  const double allowed_dw = is_known(dw) ? e2 * squared_norm(dw) : kInf;
  if (is_known(dw)) dw = on_host(dw);
  Reader reader;
  std::vector<double> slope;
  for (size_t k = 0; k < channels; ++k) {
    const auto i = static_cast<int64_t>(k);
    Channel c;
    c.weight = weight.defined() ? weight.item(i) : 1;
    c.invstd = invstd.item(i);
    c.dy2 = dys.squares[k];
    c.dw = is_known(dw) ? dw.item(i) : std::sqrt(rows * c.dy2);  // what it can be at most
    c.nonzeros = dys.nonzeros[k];
    if (published) {
      c.max_x = xs.max[k];
      c.max_dy2 = dys.max[k] * dys.max[k];
      reader.cap.squares.push_back(published_normalized_bound2(c, rows, count, allowed_dx));
      reader.cap.weights.push_back(published_normalized_price(c, rows, count));
    } else {
      reader.cap.squares.push_back(
          normalized_bound2(c, rows, count, allowed_dx, allowed_dw, options_.count));
      reader.cap.weights.push_back(1);
    }
    slope.push_back(c.weight * c.weight * c.invstd * c.invstd);
  }
  add(slot, reader);
  scales(slot, std::move(slope));
}

void Collector::normalized_rows(const Slots& slots, const SavedTensor& slot,
                                const Grads& gradients) {
  const Use& use = slot.use();
  const Tensor dx = gradient_of(gradients, 0), dw = gradient_of(gradients, use.input);
  if (!is_known(dx) && !is_known(dw)) return;
  const auto at = [&](int i) { return i >= 0 && slots[i].defined() ? slots.unpack(i) : Tensor(); };
  RowSums sums =
      row_sums(slot.unpack(), dy_,
               {at(use.mean), at(use.invstd), at(use.weight), use.groups, use.gain == 0});
  const double e2 = share();
  Reader reader;
  reader.cap = {
      {normalized_rows_bound2(sums, is_known(dx) ? e2 * squared_norm(dx) : kInf,
                              is_known(dw) ? e2 * squared_norm(dw) : kInf, options_.count)},
      {1}};
  add(slot, reader);
  // Sums that are rebuilt from this tensor, beside the normalization, have its errors with a factor
  // of 1.
  for (double& each : sums.slope) each = std::max(each, 1.0);
  scales(slot, std::move(sums.slope));
}

void Collector::scales(const SavedTensor& slot, std::vector<double> slope) {
  const std::vector<uint64_t> own = slot.rests_on();
  if (!slot.is_recipe() && own.size() == 1) sources_[own.front()].slope = std::move(slope);
}

void Collector::other(const SavedTensor& slot, const Grads& gradients) {
  const double e2 = share();
  double bound2 = kInf;
  Tensor x;
  for (const Gradient& gradient : gradients) {
    const Tensor dx = whole(gradient);
    if (!is_known(dx)) continue;
    if (!x.defined()) x = slot.unpack();
    if (!is_known(x)) return;
    const double dx2 = squared_norm(dx);
    const std::optional<double> slope = elementwise_slope(x, dy_, dx);
    const auto numel = static_cast<double>(x.numel());
    bound2 = std::min(bound2, slope ? elementwise_bound2(*slope, e2 * dx2, dy2_, options_.count)
                                    : linear_bound2(numel, squared_norm(x) / numel, e2, dx2, dy2_,
                                                    options_.count));
  }
  if (!x.defined()) return;
  Reader reader;
  reader.cap = {{bound2}, {1}};
  add(slot, reader);
}

void Collector::add(const SavedTensor& slot, const Reader& reader) {
  std::vector<uint64_t> sources = slot.rests_on();
  bool through = slot.is_recipe();
  if (through) {
    if (sources.size() > 1) chain_ = sources;
  } else if (sources.size() == 1 && waits_(sources.front())) {
    // An earlier rebuild passed through this tensor. The tensor rests on the sources of that
    // rebuild that were saved before it.
    const uint64_t own = sources.front();
    through = true;
    sources = chain_;
    std::erase_if(sources, [own](uint64_t seq) { return seq >= own; });
  }
  const auto n = static_cast<double>(sources.size());
  const double share = options_.count == Count::worst ? n * n : n;
  for (const uint64_t seq : sources) {
    Source& source = sources_[seq];
    Reader& to = through ? source.through : source.direct;
    to.allowed += reader.allowed;
    to.price += reader.price * (through ? share : 1);
    Bounds cap = reader.cap;
    if (through)
      for (double& each : cap.squares) each /= share;
    to.cap_by(cap);
  }
}

std::map<uint64_t, Bounds> Collector::bounds2() const {
  std::map<uint64_t, Bounds> all;
  for (const auto& [seq, source] : sources_) {
    const std::vector<double> slope =
        source.slope.empty() ? std::vector<double>{kFunctionSlope2} : source.slope;
    const auto steepest = std::max_element(slope.begin(), slope.end());
    Reader sum;
    const double allowed = source.direct.allowed + source.through.allowed;
    std::vector<double> prices{source.direct.price};
    if (source.through.price > 0) {
      prices = slope;
      for (double& each : prices) each = source.direct.price + each * source.through.price;
    }
    Bounds products;
    for (const double each : prices) {
      products.squares.push_back(each > 0 ? allowed / each : kInf);
      products.weights.push_back(options_.rule == Rule::published ? each : 1);
    }
    sum.cap_by(products);
    sum.cap_by(source.direct.cap);
    const Bounds& through = source.through.cap;
    Bounds passed;
    combine(through.squares.size(), slope.size(), static_cast<size_t>(steepest - slope.begin()),
            [&](size_t a, size_t b) {
              if (through.squares.empty()) return;
              passed.squares.push_back(slope[b] > 0 ? through.squares[a] / slope[b] : kInf);
              passed.weights.push_back(through.weights[a]);
            });
    sum.cap_by(passed);
    std::vector<double>& bounds = sum.cap.squares;
    if (std::none_of(bounds.begin(), bounds.end(), [](double b) { return std::isnan(b); }) &&
        std::any_of(bounds.begin(), bounds.end(), [](double b) { return std::isfinite(b); })) {
      for (size_t i = 0; i < bounds.size(); ++i) {
        bounds[i] = std::min(bounds[i], kMost);
        double& weight = sum.cap.weights[i];  // 0 where dy is 0, and the bound is kMost
        weight = std::isfinite(weight) ? std::clamp(weight, 1 / kMost, kMost) : 1 / kMost;
      }
      all[seq] = std::move(sum.cap);
    }
  }
  return all;
}

}  // namespace frugal::compress::acgc
