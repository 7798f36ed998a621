// BatchSource: batches, epoch by epoch. Equal seeds give equal batches. Loader makes batches of
// images; sequences and graphs have classes of their own.
#pragma once
#include <cstdint>
#include <optional>

#include "core/error.h"
#include "data/dataset.h"

namespace frugal::data {

// ---- which part of each batch a process reads
// `size` processes train one network together, and this one has the number `rank`. The shares of
// all ranks follow each other and are together the batch. Their sizes differ by at most one sample.
struct Share {
  int rank = 0, size = 1;

  // The first sample of this share in a batch of `samples`, and the one behind its last. REQUIRES:
  // samples * size fits into an int64_t.
  int64_t begin(int64_t samples) const { return samples * rank / size; }
  int64_t end(int64_t samples) const { return samples * (rank + 1) / size; }
  bool is_whole() const { return size == 1; }
  bool operator==(const Share&) const = default;
};

// Errors: a size below 1, or a rank outside [0, size).
inline void check_share(const Share& share) {
  FRUGAL_CHECK(share.size >= 1 && share.rank >= 0 && share.rank < share.size,
               "[share] expected a rank in [0, size), got rank {} and size {}", share.rank,
               share.size);
}

// Where an epoch of `samples` is cut into batches of batch_size and a rest: the samples of the
// smallest batch. REQUIRES: samples > 0.
inline int64_t smallest_of(int64_t samples, int64_t batch_size) {
  return samples % batch_size == 0 ? batch_size : samples % batch_size;
}

// ---- batches

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
  // The columns of each row, where a batch has as many as its longest row; empty, the default: all
  // batches have the same. For plans of memory.
  virtual std::vector<int64_t> row_lengths() const { return {}; }
  // How many batches it makes in advance of the one that it gave last. For plans of memory.
  virtual int64_t ahead() const { return 0; }
};

}  // namespace frugal::data
