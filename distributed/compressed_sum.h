// CompressedSum: adds one tensor over the ranks in codes of few bits. Internal to distributed.
#pragma once
#include <string>

#include "distributed/communicator.h"
#include "distributed/operation_times.h"
#include "distributed/wire_codec.h"

namespace frugal::distributed {

// Each rank encodes the shares of the others and sends them. An owner decodes them and adds them to
// its own terms, which are exact, in the order of the ranks. With `gather`, it encodes the sum of
// its share and sends that to all. All ranks decode the same codes, the owner too, so all have the
// same bits.
//
// The residual is what was to be sent minus what was sent: of the shares of the others, and of the
// sum of this rank's own share where that is encoded. It is added to the next terms. So the sum of
// what was applied differs from the true sum by the last residuals alone. Residuals are of
// gradients and not of updates: a residual is applied at the learning rate of a later step. Where a
// value is not finite, the residual is 0. Ref: Seide et al. 2014; Karimireddy et al. 2019 (EF-SGD).
class CompressedSum {
 public:
  struct Job {
    Tensor terms;      // [n] f32, with the residual of the step before in it
    Tensor residual;   // [n] f32, is overwritten
    Bounds bounds;     // the share of each rank
    bool gather;       // false: only this rank's share of `terms` becomes the sum
    uint64_t step;     // number of the step
    uint64_t number;   // number of the sum within the step
    std::string what;  // for messages
  };
  // Encodes and begins to send. `times` gets the times of what is waited for.
  CompressedSum(Communicator& ranks, const WireCodec& codec, OperationTimes& times, Job job);

  bool done() const { return pending_.done(); }  // what was begun is done
  // Waits for the terms of the others, adds them, and with `gather` begins to send the sum.
  // The order of this and other operations must be the same on all ranks.
  void add();
  // With `gather`, after add(): waits for the sums of the others and puts all into `terms`.
  void finish();

  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  enum class Stage : uint8_t { shares, sums };
  Tensor share(const Tensor& x, size_t rank) const;
  WireKey key(Stage stage, size_t to) const;
  void encode(Stage stage, size_t to, const Tensor& codes) const;

  Communicator& ranks_;
  const WireCodec& codec_;
  OperationTimes& times_;
  Job job_;
  size_t rank_;
  Tensor send_, receive_, sums_;  // codes
  Bounds slots_;                  // where the codes of each share are, in send_ and in sums_
  Pending pending_;
  int64_t sent_bytes_ = 0;
};

// Replaces NaN and infinities in x, f32 and contiguous, by 0.
void clear_nonfinite(const Tensor& x);

}  // namespace frugal::distributed
