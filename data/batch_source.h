// BatchSource: batches, epoch by epoch. The same seed gives the same batches. Loader makes batches
// of images; sequences and graphs have classes of their own.
#pragma once
#include <cstdint>
#include <optional>

#include "data/dataset.h"

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
};

}  // namespace frugal::data
