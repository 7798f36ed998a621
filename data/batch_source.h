// BatchSource: batches, epoch by epoch. Equal seeds give equal batches. Loader makes batches of
// images; sequences and graphs have classes of their own.
#pragma once
#include <cstdint>
#include <optional>

#include "data/dataset.h"
#include "data/share.h"

namespace frugal::data {

// How far the consumer has come. A checkpoint needs no more of a source.
struct LoaderState {
  int64_t epoch = 0;
  int64_t next_batch = 0;
  bool operator==(const LoaderState&) const = default;
};

// Order and content of batches depend only on how the source was made and on the epoch.
// Thread safety: one consumer.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // The next batch. At the end of an epoch it returns nothing, once; the call after that begins the
  // next epoch.
  virtual std::optional<Batch> next() = 0;

  virtual int64_t batches() const = 0;  // per epoch
  virtual int64_t samples() const = 0;  // per epoch
  virtual LoaderState state() const = 0;
  // Continues from `state` as if all batches before it had been taken. Errors: a state outside the
  // epoch.
  virtual void seek(const LoaderState& state) = 0;

  // From now on batches hold this process's share of the samples of each batch: consecutive samples
  // in the batch's order. The share may be empty: then the input has 0 samples, and tensors keep
  // their other axes. batches(), samples(), state() and seek() stay those of the whole batches.
  // What was made in advance is dropped. By default a source knows no shares: sources that were
  // written for one process stay valid, and several processes get an error instead of the same
  // samples. Errors: a rank outside [0, size); by default, also a share that is not the whole.
  virtual void set_share(const Share& share) {
    check_share(share);
    FRUGAL_CHECK(
        share.is_whole(),
        "[batches] expected a source that gives each process its share of a batch, got one "
        "without set_share() for {} processes: write its set_share(), or train in one "
        "process",
        share.size);
  }
  // The samples of the smallest batch of an epoch. With more processes than that, some process has
  // an empty share. 1, the default: batches cannot be divided, or the source does not know.
  virtual int64_t smallest_batch() const { return 1; }
  // How many batches it makes in advance of the one that it gave last. For plans of memory.
  virtual int64_t ahead() const { return 0; }
};

}  // namespace frugal::data
