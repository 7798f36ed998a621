#include "distributed/gradient_buckets.h"

#include <algorithm>
#include <set>

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
    : communicator_(std::move(communicator)),
      parameters_(std::move(parameters)),
      options_(options) {
  FRUGAL_CHECK(options.first_bytes > 0 && options.bytes > 0,
               "[gradient_buckets] expected sizes above 0 bytes, got {} and {}",
               options.first_bytes, options.bytes);
  for (const auto& [name, parameter] : parameters_)
    parameter_of_.add("gradient_buckets", name, parameter);
  check_same_parameters(*communicator_, parameters_);
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
    places_[i] = {buckets_.size() - 1, last->elements};
    last->members.push_back(i);
    last->elements += round_up(value.numel() + 1, kAlign);
  }
}

Tensor GradientBuckets::view_of(size_t parameter) const {
  const Place& place = places_[parameter];
  const Tensor& value = parameters_[parameter].second.value();
  return buckets_[place.bucket]
      .flat.slice(0, place.offset, place.offset + value.numel())
      .view(value.shape());
}

Tensor GradientBuckets::flag_of(size_t parameter) const {
  const Place& place = places_[parameter];
  const int64_t at = place.offset + parameters_[parameter].second.value().numel();
  return buckets_[place.bucket].flat.slice(0, at, at + 1);
}

void GradientBuckets::take(size_t parameter, GradAccumulator* leaf) {
  Bucket& bucket = buckets_[places_[parameter].bucket];
  if (!bucket.flat.defined()) {
    const CategoryScope scope(Category::gradient);
    bucket.flat = Tensor::zeros({bucket.elements}, bucket.dtype, bucket.device);
  }
  if (leaf != nullptr) {
    ops::copy_into(view_of(parameter), leaf->whole());
    ops::fill(flag_of(parameter), 1);
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
    bucket.pending = communicator_->begin_all_reduce(
        bucket.flat, Reduction::sum,
        fmt::format("gradients, bucket {} of {}", begun_ + 1, buckets_.size()));
  }
}

LeafFn GradientBuckets::leaf_done() {
  if (communicator_->size() == 1) return {};
  return [this](GradAccumulator& leaf) {
    const auto parameter = parameter_of_.find(leaf);
    if (!parameter || taken_[*parameter]) return;
    take(*parameter, &leaf);
    if (!arranged_) order_.push_back(*parameter);
    begin_full();
  };
}

void GradientBuckets::finish() {
  last_ = {};
  if (communicator_->size() == 1) return;
  last_.buckets = static_cast<int64_t>(buckets_.size());
  last_.begun_in_backward = static_cast<int64_t>(begun_);
  for (const Bucket& bucket : buckets_)
    for (const size_t i : bucket.members) {
      if (taken_[i]) continue;
      GradAccumulator* const leaf = parameters_[i].second.accumulator().get();
      take(i, leaf != nullptr && leaf->defined() ? leaf : nullptr);
    }
  begin_full();
  {
    const Stopwatch watch(last_.waiting);
    for (Bucket& bucket : buckets_) bucket.pending.wait();
  }
  for (Bucket& bucket : buckets_) {
    last_.bytes += bucket.flat.nbytes();
    last_.communication += bucket.pending.seconds();
    for (const size_t i : bucket.members) {
      GradAccumulator* const leaf = parameters_[i].second.accumulator().get();
      const bool somewhere = bucket.device == kMeta || flag_of(i).item() > 0;
      if (leaf != nullptr) leaf->set(somewhere ? view_of(i) : Tensor());
      taken_[i] = false;
    }
    bucket.flat = {};
    bucket.pending = {};
    bucket.present = 0;
  }
  begun_ = 0;
  if (arranged_) return;
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

double GradientBuckets::Step::hidden() const {
  return communication > 0 ? std::clamp(1 - waiting / communication, 0.0, 1.0) : 0;
}

}  // namespace frugal::distributed
