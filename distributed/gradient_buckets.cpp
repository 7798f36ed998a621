#include "distributed/gradient_buckets.h"

#include <algorithm>
#include <set>
#include <utility>

#include "autograd/gradient.h"
#include "core/integers.h"
#include "core/stopwatch.h"
#include "ops/dense/copy.h"

namespace frugal::distributed {
namespace {

constexpr int64_t kAlign = 16;  // elements

}  // namespace

GradientBuckets::GradientBuckets(CommunicatorPtr communicator, NamedVariables parameters,
                                 const BucketOptions& options)
    : GradientBuckets(std::move(communicator), std::move(parameters), options, {}) {}

GradientBuckets::GradientBuckets(CommunicatorPtr communicator, NamedVariables parameters,
                                 const BucketOptions& options, std::vector<Bounds> owners)
    : communicator_(std::move(communicator)),
      parameters_(std::move(parameters)),
      options_(options),
      owners_(std::move(owners)) {
  FRUGAL_CHECK(options.first_bytes > 0 && options.bytes > 0 && options.window > 0,
               "[gradient_buckets] expected sizes above 0 bytes, got {}, {} and {}",
               options.first_bytes, options.bytes, options.window);
  for (const auto& [name, parameter] : parameters_)
    parameter_of_.add("gradient_buckets", name, parameter);
  check_same_parameters(*communicator_, parameters_);
  FRUGAL_CHECK(owners_.empty() || owners_.size() == parameters_.size(),
               "[gradient_buckets] expected owners of {} parameters, got those of {}",
               parameters_.size(), owners_.size());
  for (size_t i = 0; i < owners_.size(); ++i)
    check_bounds("gradient_buckets", owners_[i], parameters_[i].second.value().numel(),
                 communicator_->size());
  here_.assign(parameters_.size(), false);
  anywhere_ = here_;
  parts_.resize(parameters_.size());
  std::vector<size_t> order(parameters_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  arrange(order);
}

void GradientBuckets::arrange(const std::vector<size_t>& order) {
  buckets_.clear();
  places_.assign(parameters_.size(), {});
  taken_.assign(parameters_.size(), false);
  for (const size_t i : order) {
    const Tensor& value = parameters_[i].second.value();
    const int64_t most = buckets_.size() <= 1 ? options_.first_bytes : options_.bytes;
    Bucket* last = buckets_.empty() ? nullptr : &buckets_.back();
    if (last == nullptr || last->dtype != value.dtype() || last->device != value.device() ||
        last->elements * static_cast<int64_t>(size_of(value.dtype())) >= most) {
      last = &buckets_.emplace_back();
      last->dtype = value.dtype();
      last->device = value.device();
    }
    last->members.push_back(i);
    last->elements += round_up(value.numel() + 1, kAlign);
  }
  for (size_t b = 0; b < buckets_.size(); ++b) place_members(b);
}

void GradientBuckets::place_members(size_t b) {
  Bucket& bucket = buckets_[b];
  int64_t at = 0;
  if (!has_owners()) {
    for (const size_t i : bucket.members) {
      const int64_t elements = parameters_[i].second.value().numel();
      places_[i] = {b, {{{0, elements}, at, 0}}, at + elements};
      at += round_up(elements + 1, kAlign);
    }
  } else {
    for (const size_t i : bucket.members) places_[i].bucket = b;
    for (size_t r = 0; r < static_cast<size_t>(communicator_->size()); ++r) {
      bucket.bounds.push_back(at);
      for (const size_t i : bucket.members) {
        const Range range{owners_[i][r], owners_[i][r + 1]};
        if (range.size() == 0) continue;
        places_[i].pieces.push_back({range, at, r});
        at += round_up(range.size(), kAlign);
      }
    }
    bucket.bounds.push_back(at);
  }
  bucket.elements = at;
}

Tensor GradientBuckets::view_of(size_t parameter) const {
  const Place& place = places_[parameter];
  const Tensor& value = parameters_[parameter].second.value();
  const int64_t begin = place.pieces.front().offset;
  return buckets_[place.bucket].flat.slice(0, begin, begin + value.numel()).view(value.shape());
}

Tensor GradientBuckets::flag_of(size_t parameter) const {
  const Place& place = places_[parameter];
  return buckets_[place.bucket].flat.slice(0, place.flag, place.flag + 1);
}

void GradientBuckets::take(size_t parameter, GradAccumulator* leaf) {
  const Place& place = places_[parameter];
  Bucket& bucket = buckets_[place.bucket];
  if (!bucket.flat.defined()) {
    const CategoryScope scope(Category::gradient);
    bucket.flat = Tensor::zeros({bucket.elements}, bucket.dtype, bucket.device);
  }
  if (leaf != nullptr) {
    const Tensor whole = ops::contiguous(leaf->whole());
    const Tensor row = whole.view({whole.numel()});
    for (const Piece& piece : place.pieces)
      ops::copy_into(bucket.flat.slice(0, piece.offset, piece.offset + piece.range.size()),
                     row.slice(0, piece.range.begin, piece.range.end));
    if (!has_owners()) ops::fill(flag_of(parameter), 1);
    here_[parameter] = true;
    leaf->set({});
  }
  taken_[parameter] = true;
  ++bucket.present;
}

// All ranks begin the same sums in the same order, so a bucket waits for those before it.
void GradientBuckets::begin_full() {
  for (; begun_ < buckets_.size(); ++begun_) {
    Bucket& bucket = buckets_[begun_];
    if (bucket.present < bucket.members.size()) return;
    std::string what = fmt::format("gradients, bucket {} of {}", begun_ + 1, buckets_.size());
    bucket.pending = has_owners() ? communicator_->begin_reduce_scatter(
                                        bucket.flat, bucket.bounds, Reduction::sum, std::move(what))
                                  : communicator_->begin_all_reduce(bucket.flat, Reduction::sum,
                                                                    std::move(what));
    under_way_ += bucket.flat.nbytes();
    const auto rank = static_cast<size_t>(communicator_->rank());
    const auto size = static_cast<int64_t>(size_of(bucket.dtype));
    now_.bytes += bucket.flat.nbytes();
    now_.sent_bytes +=
        size * (has_owners() ? bucket.elements - bucket.bounds[rank + 1] + bucket.bounds[rank]
                             : sent_elements(bucket.elements, *communicator_));
  }
}

void GradientBuckets::wait_for(Bucket& bucket) {
  if (!bucket.pending.done()) {
    const Stopwatch watch(now_.waiting);
    bucket.pending.wait();
  }
  bucket.pending.wait();  // copies the result to a device
  now_.communication += bucket.pending.seconds();
  bucket.pending = {};
}

// With owners, frees the buckets whose sums are there. `all`: waits for those of the others.
void GradientBuckets::drain(bool all) {
  if (!has_owners()) return;
  for (; drained_ < begun_; ++drained_) {
    Bucket& bucket = buckets_[drained_];
    if (!all && !bucket.pending.done() && under_way_ <= options_.window) return;
    wait_for(bucket);
    keep_part(bucket);
    under_way_ -= bucket.flat.nbytes();
    bucket.flat = {};
  }
}

void GradientBuckets::keep_part(Bucket& bucket) {
  const auto rank = static_cast<size_t>(communicator_->rank());
  const int64_t begin = bucket.bounds[rank], end = bucket.bounds[rank + 1];
  if (begin == end) return;
  const CategoryScope scope(Category::gradient);
  const Tensor mine = ops::clone(bucket.flat.slice(0, begin, end));
  for (const size_t i : bucket.members)
    for (const Piece& piece : places_[i].pieces)
      if (piece.owner == rank)
        parts_[i] = mine.slice(0, piece.offset - begin, piece.offset - begin + piece.range.size());
}

LeafFn GradientBuckets::leaf_done() {
  if (communicator_->size() == 1) return {};
  return [this](GradAccumulator& leaf) {
    const auto parameter = parameter_of_.find(leaf);
    if (!parameter || taken_[*parameter]) return;
    take(*parameter, &leaf);
    if (!arranged_) order_.push_back(*parameter);
    begin_full();
    drain(false);
  };
}

void GradientBuckets::finish() {
  last_ = {};
  if (communicator_->size() == 1) {
    for (size_t i = 0; i < parameters_.size(); ++i) anywhere_[i] = parameters_[i].second.has_grad();
    return;
  }
  now_.buckets = static_cast<int64_t>(buckets_.size());
  now_.begun_in_backward = static_cast<int64_t>(begun_);
  for (const Bucket& bucket : buckets_) {
    for (const size_t i : bucket.members) {
      if (taken_[i]) continue;
      GradAccumulator* const leaf = parameters_[i].second.accumulator().get();
      take(i, leaf != nullptr && leaf->defined() ? leaf : nullptr);
    }
    begin_full();
    drain(false);
  }
  give_sums();
  for (Bucket& bucket : buckets_) {
    bucket.flat = {};
    bucket.present = 0;
  }
  begun_ = drained_ = 0;
  under_way_ = 0;
  taken_.assign(taken_.size(), false);
  here_.assign(here_.size(), false);
  last_ = std::exchange(now_, {});
  if (!arranged_) agree_on_order();
}

void GradientBuckets::give_sums() {
  // An owner alone learns from the sums whether there is a gradient, and all must know that.
  Tensor flags;
  Pending pending;
  if (has_owners()) {
    const CategoryScope scope(Category::workspace);
    flags = Tensor::zeros({static_cast<int64_t>(parameters_.size())});
    for (size_t i = 0; i < here_.size(); ++i) flags.mut<float>()[i] = here_[i] ? 1 : 0;
    pending = communicator_->begin_all_reduce(flags, Reduction::max, "which gradients there are");
    now_.sent_bytes += sent_elements(flags.numel(), *communicator_) * 4;
  }
  drain(true);
  {
    const Stopwatch watch(now_.waiting);
    pending.wait();
  }
  for (Bucket& bucket : buckets_) {
    if (!has_owners()) wait_for(bucket);
    for (const size_t i : bucket.members) {
      anywhere_[i] = has_owners() ? flags.data<float>()[i] > 0
                                  : bucket.device == kMeta || flag_of(i).item() > 0;
      GradAccumulator* const leaf = parameters_[i].second.accumulator().get();
      if (leaf != nullptr) leaf->set(anywhere_[i] && !has_owners() ? view_of(i) : Tensor());
      if (!anywhere_[i]) parts_[i] = {};
    }
  }
}

void GradientBuckets::agree_on_order() {
  arranged_ = true;
  // Rank 0 says the order; parameters that were not told of come last.
  std::set<size_t> known(order_.begin(), order_.end());
  for (const Bucket& bucket : buckets_)
    for (const size_t i : bucket.members)
      if (known.insert(i).second) order_.push_back(i);
  const CategoryScope scope(Category::workspace);
  const std::vector<int64_t> mine(order_.begin(), order_.end());
  const Tensor all = Tensor::from(mine, {static_cast<int64_t>(mine.size())});
  communicator_->broadcast(all, 0, "the order of the gradients");
  for (size_t i = 0; i < order_.size(); ++i)
    order_[i] = static_cast<size_t>(all.data<int64_t>()[i]);
  arrange(order_);
}

bool GradientBuckets::has_gradient(size_t parameter) const { return anywhere_[parameter]; }

Tensor GradientBuckets::take_part(size_t parameter) { return std::exchange(parts_[parameter], {}); }

double GradientBuckets::Step::hidden() const {
  return communication > 0 ? std::clamp(1 - waiting / communication, 0.0, 1.0) : 0;
}

}  // namespace frugal::distributed
