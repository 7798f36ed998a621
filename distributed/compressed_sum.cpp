#include "distributed/compressed_sum.h"

#include <cmath>
#include <utility>

#include "core/integers.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/dense/reduce.h"

namespace frugal::distributed {
namespace {

constexpr int64_t kSlot = 64;  // codes of a share begin at a multiple of so many bytes

Tensor codes_of(int64_t bytes, Device device) {
  const CategoryScope scope(Category::workspace);
  return Tensor::empty({bytes}, DType::u8, device);
}

}  // namespace

void clear_nonfinite(const Tensor& x) {
  if (ops::isfinite_all(x)) return;
  const CategoryScope scope(Category::workspace);
  const Tensor here = to_device(x, kCpu);
  auto* const values = here.mut<float>();
  for (int64_t i = 0; i < here.numel(); ++i)
    if (!std::isfinite(values[i])) values[i] = 0;
  if (x.device() != kCpu) ops::copy_into(x, to_device(here, x.device()));
  x.bump_version();
}

CompressedSum::CompressedSum(Communicator& ranks, const WireCodec& codec, OperationTimes& times,
                             Job job)
    : ranks_(ranks),
      codec_(codec),
      times_(times),
      job_(std::move(job)),
      rank_(static_cast<size_t>(ranks.rank())) {
  // The codes of a share lie in a slot. This rank sends itself nothing.
  Bounds out{0}, in{0};
  slots_ = {0};
  const auto slot = [&](size_t r) {
    return round_up(codec_.bytes(job_.bounds[r + 1] - job_.bounds[r]), kSlot);
  };
  for (size_t r = 0; r < static_cast<size_t>(ranks.size()); ++r) {
    slots_.push_back(slots_.back() + slot(r));
    out.push_back(out.back() + (r == rank_ ? 0 : slot(r)));
    in.push_back(in.back() + (r == rank_ ? 0 : slot(rank_)));
  }
  const Device device = job_.terms.device();
  send_ = codes_of(out.back(), device);
  receive_ = codes_of(in.back(), device);
  for (size_t r = 0; r + 1 < out.size(); ++r)
    if (r != rank_) encode(Stage::shares, r, send_.slice(0, out[r], out[r + 1]));
  ops::fill(share(job_.residual, rank_), 0);
  job_.residual.bump_version();
  sent_bytes_ = out.back();
  pending_ = ranks.begin_all_to_all(send_, out, receive_, in, job_.what);
}

Tensor CompressedSum::share(const Tensor& x, size_t rank) const {
  return x.slice(0, job_.bounds[rank], job_.bounds[rank + 1]);
}

WireKey CompressedSum::key(Stage stage, size_t to) const {
  const auto ranks = static_cast<uint64_t>(ranks_.size());
  return {job_.step,
          ((job_.number * 2 + static_cast<uint64_t>(stage)) * ranks + rank_) * ranks + to};
}

// Encodes the share of a rank, and makes its residual.
void CompressedSum::encode(Stage stage, size_t to, const Tensor& codes) const {
  const Tensor terms = share(job_.terms, to), residual = share(job_.residual, to);
  if (terms.numel() == 0) return;
  const Tensor exact = codes.slice(0, 0, codec_.bytes(terms.numel()));
  codec_.encode(terms, key(stage, to), exact);
  codec_.decode(exact, residual);
  ops::scale_inplace(residual, -1);
  ops::accumulate(residual, terms);
  clear_nonfinite(residual);
}

void CompressedSum::add() {
  times_.wait(std::exchange(pending_, {}));
  send_ = {};
  const Tensor sum = share(job_.terms, rank_);
  const int64_t elements = sum.numel(), slot = slots_[rank_ + 1] - slots_[rank_];
  if (elements > 0) {
    const CategoryScope scope(Category::workspace);
    const Tensor mine = ops::clone(sum),
                 term = Tensor::empty(sum.shape(), DType::f32, sum.device());
    int64_t at = 0;
    for (size_t r = 0; r < static_cast<size_t>(ranks_.size()); ++r) {
      const Tensor& to = r == 0 ? sum : term;
      if (r != rank_) {
        codec_.decode(receive_.slice(0, at, at + codec_.bytes(elements)), to);
        at += slot;
      }
      if (r > 0) ops::accumulate(sum, r == rank_ ? mine : term);
    }
  }
  receive_ = {};
  if (!job_.gather) return;
  sums_ = codes_of(slots_.back(), sum.device());
  encode(Stage::sums, rank_, sums_.slice(0, slots_[rank_], slots_[rank_ + 1]));
  sent_bytes_ += slot * (ranks_.size() - 1);
  pending_ = ranks_.begin_all_gather(sums_, slots_, job_.what + ", sums");
}

void CompressedSum::finish() {
  times_.wait(std::exchange(pending_, {}));
  for (size_t r = 0; r < static_cast<size_t>(ranks_.size()); ++r) {
    const Tensor to = share(job_.terms, r);
    if (to.numel() == 0) continue;
    codec_.decode(sums_.slice(0, slots_[r], slots_[r] + codec_.bytes(to.numel())), to);
  }
  job_.terms.bump_version();
  sums_ = {};
}

}  // namespace frugal::distributed
