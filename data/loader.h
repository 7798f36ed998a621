// Loader: shuffled batches of a dataset, assembled ahead by worker threads. Order and content
// depend only on (dataset, batch_size, shuffle, drop_last, seed, epoch), never on the threads.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "data/dataset.h"

namespace frugal::data {

struct LoaderOptions {
  int64_t batch_size = 128;
  bool shuffle = true;
  bool drop_last = false;  // leaves out the last batch of an epoch when it is not full
  uint64_t seed = 0;       // of the order and of augmentation
  int threads = 1;         // 0: batches are assembled in next()
  int prefetch = 2;        // batches in flight beside the caller's, when there are threads
};

// Where the consumer stands; all a checkpoint needs.
struct LoaderState {
  int64_t epoch = 0;
  int64_t next_batch = 0;
  bool operator==(const LoaderState&) const = default;
};

// Thread safety: one consumer. The buffers in flight are allocated by the consumer's thread, so
// memory peaks do not depend on timing either.
class Loader {
 public:
  // Errors: an empty dataset, batch_size < 1, threads < 0, prefetch < 1, drop_last leaving nothing.
  Loader(DatasetPtr dataset, const LoaderOptions& options = {});
  ~Loader();  // also in the middle of an epoch
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch, or nothing once at the end of an epoch; then the next epoch begins.
  // Errors: what the dataset threw for a sample of this batch, again at each call.
  std::optional<Batch> next();

  int64_t batches() const;  // per epoch
  int64_t samples() const;  // per epoch: less than the dataset's with drop_last
  LoaderState state() const;
  // Continues from `state`, exactly as if its batches had been taken. Errors: outside the epoch.
  void seek(const LoaderState& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The order of `count` samples in an epoch: Fisher-Yates with Philox.
std::vector<int64_t> shuffled(int64_t count, RngKey key);

}  // namespace frugal::data
