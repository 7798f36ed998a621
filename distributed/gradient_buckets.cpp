#include "distributed/gradient_buckets.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "autograd/gradient.h"
#include "core/integers.h"
#include "core/stopwatch.h"
#include "distributed/compressed_sum.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"

namespace frugal::distributed {
namespace {

constexpr int64_t kBucketAlign = 16;  // elements
// Shares of a bucket that goes in codes begin at a multiple of so many elements, which is a group
// of a codec.
constexpr int64_t kShare = 256;
// The second exchange of a bucket in codes begins when so many later buckets have begun.
constexpr size_t kLag = 1;

const char* const kStepsEntry = "buckets/steps";
const char* const kOrderEntry = "buckets/order";
const std::string kResidual = "residual/";

Shape with_ranks(int64_t ranks, const Shape& shape) {
  std::vector<int64_t> extents{ranks};
  extents.insert(extents.end(), shape.begin(), shape.end());
  return Shape(std::span<const int64_t>(extents));
}

}  // namespace

GradientBuckets::GradientBuckets(CommunicatorPtr communicator, NamedVariables parameters,
                                 const BucketOptions& options)
    : GradientBuckets(std::move(communicator), std::move(parameters), options, {}, nullptr) {}

GradientBuckets::GradientBuckets(CommunicatorPtr communicator, NamedVariables parameters,
                                 const BucketOptions& options, std::vector<Bounds> owners,
                                 std::shared_ptr<const WireCodec> codec)
    : communicator_(std::move(communicator)),
      parameters_(std::move(parameters)),
      options_(options),
      owners_(std::move(owners)),
      codec_(std::move(codec)) {
  FRUGAL_CHECK(options.first_bytes > 0 && options.bytes > 0 && options.window > 0,
               "[gradient_buckets] expected sizes above 0 bytes, got {}, {} and {}",
               options.first_bytes, options.bytes, options.window);
  for (const auto& [name, parameter] : parameters_) {
    parameter_of_.add("gradient_buckets", name, parameter);
    on_cuda_ = on_cuda_ || parameter.device().type == DeviceType::cuda;
  }
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
  arrange_in_reverse();
}

GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::arrange_in_reverse() {
  arranged_ = false;
  order_.clear();
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
    last->elements += round_up(value.numel() + 1, kBucketAlign);
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
      at += round_up(elements + 1, kBucketAlign);
    }
    bucket.bounds = even_bounds(at, communicator_->size());
    for (int64_t& bound : bucket.bounds) bound = std::min(round_up(bound, kShare), at);
  } else {
    for (const size_t i : bucket.members) places_[i].bucket = b;
    for (size_t r = 0; r < static_cast<size_t>(communicator_->size()); ++r) {
      bucket.bounds.push_back(at);
      for (const size_t i : bucket.members) {
        const Range range{owners_[i][r], owners_[i][r + 1]};
        if (range.size() == 0) continue;
        places_[i].pieces.push_back({range, at, r});
        at += round_up(range.size(), kBucketAlign);
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
    if (!has_flags()) ops::fill(flag_of(parameter), 1);
    here_[parameter] = true;
    leaf->set({});
  }
  if (is_compressed(bucket)) {
    make_residual(bucket);
    // Not what lies between the pieces: it must stay 0, because it is part of no state.
    for (const Piece& piece : place.pieces) {
      const int64_t end = piece.offset + piece.range.size();
      ops::accumulate(bucket.flat.slice(0, piece.offset, end),
                      bucket.residual.slice(0, piece.offset, end));
    }
  }
  taken_[parameter] = true;
  ++bucket.present;
}

bool GradientBuckets::is_compressed(const Bucket& bucket) const {
  return codec_ != nullptr && bucket.dtype == DType::f32;
}

// All ranks begin the same sums in the same order, so a bucket waits for those before it.
void GradientBuckets::begin_full() {
  for (; begun_ < buckets_.size(); ++begun_) {
    Bucket& bucket = buckets_[begun_];
    if (bucket.present < bucket.members.size()) return;
    std::string what = fmt::format("gradients, bucket {} of {}", begun_ + 1, buckets_.size());
    now_.bytes += bucket.flat.nbytes();
    under_way_ += bucket.flat.nbytes();
    if (is_compressed(bucket)) {
      CompressedSum::Job job{.terms = bucket.flat,
                             .residual = bucket.residual,
                             .bounds = bucket.bounds,
                             .gather = !has_owners(),
                             .step = static_cast<uint64_t>(steps_),
                             .number = begun_,
                             .what = std::move(what)};
      bucket.sum = std::make_unique<CompressedSum>(*communicator_, *codec_, times_, std::move(job));
      begin_gathers(begun_ + 1 - std::min(begun_ + 1, kLag));
      continue;
    }
    bucket.pending = has_owners() ? communicator_->begin_reduce_scatter(
                                        bucket.flat, bucket.bounds, Reduction::sum, std::move(what))
                                  : communicator_->begin_all_reduce(bucket.flat, Reduction::sum,
                                                                    std::move(what));
    const auto rank = static_cast<size_t>(communicator_->rank());
    const auto size = static_cast<int64_t>(size_of(bucket.dtype));
    now_.sent_bytes +=
        size * (has_owners() ? bucket.elements - bucket.bounds[rank + 1] + bucket.bounds[rank]
                             : sent_elements(bucket.elements, *communicator_));
  }
}

// Begins the second exchange of the compressed buckets before `end`, and waits for the first. When
// that happens depends on which buckets have begun, and not on which are done: operations have the
// same order on all ranks.
void GradientBuckets::begin_gathers(size_t end) {
  if (has_owners()) return;
  for (; gathered_ < end; ++gathered_)
    if (buckets_[gathered_].sum != nullptr) buckets_[gathered_].sum->add();
}

void GradientBuckets::wait_for(Bucket& bucket) {
  if (bucket.sum != nullptr) {
    has_owners() ? bucket.sum->add() : bucket.sum->finish();
    now_.sent_bytes += bucket.sum->sent_bytes();
    bucket.sum.reset();
    return;
  }
  times_.wait(std::exchange(bucket.pending, {}));
}

// Ends the sums that are there. `all`: waits for the others. With owners, it frees their buckets.
void GradientBuckets::drain(bool all) {
  const size_t end = has_owners() || codec_ == nullptr ? begun_ : gathered_;
  for (; drained_ < end; ++drained_) {
    Bucket& bucket = buckets_[drained_];
    const bool done = bucket.sum != nullptr ? bucket.sum->done() : bucket.pending.done();
    if (!all && !done && !(has_owners() && under_way_ > options_.window)) return;
    wait_for(bucket);
    under_way_ -= bucket.flat.nbytes();
    if (!has_owners()) continue;
    keep_part(bucket);
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
  begun_ = gathered_ = drained_ = 0;
  under_way_ = 0;
  taken_.assign(taken_.size(), false);
  here_.assign(here_.size(), false);
  ++steps_;
  const OperationTimes::Seconds seconds = times_.take();
  now_.communication += seconds.communication;
  now_.waiting += seconds.waiting;
  last_ = std::exchange(now_, {});
  if (!arranged_) agree_on_order();
}

void GradientBuckets::give_sums() {
  // An owner alone learns from its sums whether there is a gradient, codes do not tell it, and all
  // must know it. The host would wait for each flag that it reads from a GPU.
  Tensor flags;
  Pending pending;
  if (has_flags()) {
    const CategoryScope scope(Category::workspace);
    flags = Tensor::zeros({static_cast<int64_t>(parameters_.size())});
    for (size_t i = 0; i < here_.size(); ++i) flags.mut<float>()[i] = here_[i] ? 1 : 0;
    pending = communicator_->begin_all_reduce(flags, Reduction::max, "which gradients there are");
    now_.sent_bytes += sent_elements(flags.numel(), *communicator_) * 4;
  }
  begin_gathers(begun_);
  drain(true);
  {
    const Stopwatch watch(now_.waiting);
    pending.wait();
  }
  for (Bucket& bucket : buckets_) {
    for (const size_t i : bucket.members) {
      anywhere_[i] = has_flags() ? flags.data<float>()[i] > 0
                                 : bucket.device == kMeta || flag_of(i).item() > 0;
      if (!anywhere_[i] && is_compressed(bucket)) put_back(i);
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
  std::vector<Tensor> residuals;
  for (size_t i = 0; i < parameters_.size(); ++i) residuals.push_back(residual_of(i));
  arrange(order_);
  for (size_t i = 0; i < residuals.size(); ++i) set_residual(i, residuals[i]);
}

void GradientBuckets::make_residual(Bucket& bucket) {
  if (bucket.residual.defined()) return;
  const CategoryScope scope(Category::optimizer);
  bucket.residual = Tensor::zeros({bucket.elements}, bucket.dtype, bucket.device);
}

// [elements]; undefined if there is none.
Tensor GradientBuckets::residual_of(size_t parameter) const {
  const Place& place = places_[parameter];
  const Bucket& bucket = buckets_[place.bucket];
  if (!bucket.residual.defined()) return {};
  const CategoryScope scope(Category::optimizer);
  const Tensor all =
      Tensor::empty({parameters_[parameter].second.value().numel()}, DType::f32, bucket.device);
  for (const Piece& piece : place.pieces)
    ops::copy_into(all.slice(0, piece.range.begin, piece.range.end),
                   bucket.residual.slice(0, piece.offset, piece.offset + piece.range.size()));
  return all;
}

void GradientBuckets::set_residual(size_t parameter, const Tensor& residual) {
  if (!residual.defined()) return;
  const Place& place = places_[parameter];
  Bucket& bucket = buckets_[place.bucket];
  make_residual(bucket);
  for (const Piece& piece : place.pieces)
    ops::copy_into(bucket.residual.slice(0, piece.offset, piece.offset + piece.range.size()),
                   residual.slice(0, piece.range.begin, piece.range.end));
}

// The sum of a parameter that no rank has a gradient of is one of residuals alone, and is not used.
// One rank keeps it for a later step.
void GradientBuckets::put_back(size_t parameter) {
  const Place& place = places_[parameter];
  const auto rank = static_cast<size_t>(communicator_->rank());
  const Bucket& bucket = buckets_[place.bucket];
  for (const Piece& piece : place.pieces) {
    if (piece.owner != rank) continue;  // without owners it is rank 0
    const int64_t end = piece.offset + piece.range.size();
    const Tensor residual = bucket.residual.slice(0, piece.offset, end);
    ops::accumulate(residual,
                    has_owners() ? parts_[parameter] : bucket.flat.slice(0, piece.offset, end));
    clear_nonfinite(residual);
  }
}

NamedTensors GradientBuckets::state() const {
  if (communicator_->size() == 1 || steps_ == 0) return {};
  const CategoryScope scope(Category::optimizer);
  const std::vector<int64_t> order(order_.begin(), order_.end());
  NamedTensors all{{kStepsEntry, Tensor::from<int64_t>({steps_}, {})},
                   {kOrderEntry, Tensor::from(order, {static_cast<int64_t>(order.size())})}};
  const int64_t ranks = communicator_->size(), rank = communicator_->rank();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor mine = residual_of(i);
    if (!mine.defined()) continue;
    const auto& [name, parameter] = parameters_[i];
    const int64_t elements = mine.numel();
    const Tensor residuals = Tensor::empty({ranks * elements}, DType::f32, mine.device());
    ops::copy_into(residuals.slice(0, rank * elements, (rank + 1) * elements), mine);
    Bounds bounds;
    for (int64_t r = 0; r <= ranks; ++r) bounds.push_back(r * elements);
    communicator_->all_gather(residuals, bounds, "residuals of " + name);
    all.emplace_back(kResidual + name, residuals.view(with_ranks(ranks, parameter.shape())));
  }
  return all;
}

void GradientBuckets::load_state(const NamedTensors& state) {
  if (communicator_->size() == 1) return;
  // A rank whose state is right must not go on with it while another one's is wrong.
  std::string problem;
  try {
    check_state(state);
  } catch (const Error& error) {
    problem = error.what();
  }
  for (const std::string& other : communicator_->all_gather(problem, "what was wrong"))
    if (!other.empty()) throw Error(other);
  arrange_in_reverse();
  steps_ = 0;
  if (state.empty()) return;
  steps_ = find_tensor(state, kStepsEntry).item<int64_t>();
  for (const int64_t i : find_tensor(state, kOrderEntry).to_vector<int64_t>())
    order_.push_back(static_cast<size_t>(i));
  arranged_ = true;
  arrange(order_);
  if (codec_ == nullptr) return;
  const CategoryScope scope(Category::optimizer);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    const Tensor saved = find_tensor(state, kResidual + name);
    if (!saved.defined()) continue;
    const Tensor mine = Tensor::zeros({parameter.value().numel()}, DType::f32, parameter.device());
    for (int64_t r = communicator_->rank(); r < saved.size(0); r += communicator_->size()) {
      const Tensor row = to_device(ops::contiguous(saved[r]), mine.device());
      ops::accumulate(mine, row.view({row.numel()}));
    }
    set_residual(i, mine);
  }
}

void GradientBuckets::check_state(const NamedTensors& state) const {
  if (state.empty()) return;
  const auto count = static_cast<int64_t>(parameters_.size());
  const auto entry = [&](const std::string& name, const Shape& shape, DType dtype) {
    const Tensor tensor = find_tensor(state, name);
    FRUGAL_CHECK(tensor.defined(), "[gradient_buckets] expected a state with '{}'", name);
    FRUGAL_CHECK(tensor.shape() == shape && tensor.dtype() == dtype,
                 "[gradient_buckets] expected '{}' to be {} {}, got {}", name, shape,
                 name_of(dtype), describe(tensor));
    return tensor;
  };
  const auto steps = entry(kStepsEntry, {}, DType::i64).item<int64_t>();
  FRUGAL_CHECK(steps > 0, "[gradient_buckets] expected '{}' above 0, got {}", kStepsEntry, steps);
  std::vector<int64_t> order = entry(kOrderEntry, {count}, DType::i64).to_vector<int64_t>();
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < count; ++i)
    FRUGAL_CHECK(order[static_cast<size_t>(i)] == i,
                 "[gradient_buckets] expected '{}' to have each number below {} once", kOrderEntry,
                 count);
  size_t known = 2;
  int64_t ranks = 0;
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.dtype() != DType::f32) continue;
    const Tensor saved = find_tensor(state, kResidual + name);
    if (codec_ == nullptr && !saved.defined()) continue;
    ++known;
    if (ranks == 0 && saved.defined() && saved.dim() > 0) ranks = saved.size(0);
    entry(kResidual + name, with_ranks(ranks, parameter.shape()), DType::f32);
  }
  FRUGAL_CHECK(state.size() == known,
               "[gradient_buckets] expected a state of {} entries, got {}, some of them unknown",
               known, state.size());
}

bool GradientBuckets::has_gradient(size_t parameter) const { return anywhere_[parameter]; }

Tensor GradientBuckets::take_part(size_t parameter) { return std::exchange(parts_[parameter], {}); }

double GradientBuckets::Step::hidden() const {
  return communication > 0 ? std::clamp(1 - waiting / communication, 0.0, 1.0) : 0;
}

}  // namespace frugal::distributed
