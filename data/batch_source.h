// BatchSource: batches in epochs, in an order that a number repeats. Loader makes them of images;
// sequences and graphs have their own.
#pragma once
#include <cstdint>
#include <optional>

#include "data/dataset.h"

namespace frugal::data {

// Where the consumer stands; all a checkpoint needs.
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

  // The next batch, or nothing once at the end of an epoch; then the next epoch begins.
  virtual std::optional<Batch> next() = 0;

  virtual int64_t batches() const = 0;  // per epoch
  virtual int64_t samples() const = 0;  // per epoch
  virtual LoaderState state() const = 0;
  // Continues from `state`, exactly as if its batches had been taken. Errors: outside the epoch.
  virtual void seek(const LoaderState& state) = 0;
};

}  // namespace frugal::data
