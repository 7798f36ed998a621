// Loader: batches of a dataset in random order, made in advance by worker threads, which share the
// samples of a batch. Order and content depend on dataset, batch_size, shuffle, drop_last, seed and
// epoch alone, never on the threads.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "data/batch_source.h"
#include "data/image/changes.h"

namespace frugal::data {

struct LoaderOptions {
  int64_t batch_size = 128;
  bool shuffle = true;
  bool drop_last = false;  // leaves out the last batch of an epoch when it is not full
  uint64_t seed = 0;       // draws the order and augmentation
  int threads = 1;         // 0: next() makes the batch itself
  int prefetch = 1;        // with threads: batches that are made in advance
  MixOptions mix = {};     // how samples of a batch are mixed
  // A second dataset with these samples, changed in another way or by other draws: a batch then has
  // an extra second_view like its input. It may be the dataset itself. Its labels are not read.
  DatasetPtr second_view = {};
};

// Thread safety: one consumer. The consumer's thread allocates all batches, so memory peaks do not
// depend on timing either.
class Loader : public BatchSource {
 public:
  // Errors: an empty dataset, batch_size < 1, threads < 0, prefetch < 1, drop_last that
  // leaves no batch, mixing of samples whose labels are no classes; a second view of another size
  // or shape, or beside mixing or classes of pixels.
  Loader(DatasetPtr dataset, const LoaderOptions& options = {});
  ~Loader() override;  // also in the middle of an epoch
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Errors: what the dataset threw for a sample of this batch, or of this process's share of it.
  // Each further call throws it again.
  std::optional<Batch> next() override;

  int64_t batches() const override;
  int64_t samples() const override;  // less than the dataset's with drop_last
  LoaderState state() const override;
  void seek(const LoaderState& state) override;
  // A share's samples are those of one process, also where samples are mixed: the sample before the
  // share's first one is then read, too.
  void set_share(const Share& share) override;
  int64_t smallest_batch() const override;
  int64_t ahead() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The numbers 0 to count - 1 in random order. Ref: Fisher-Yates shuffle, with Philox.
std::vector<int64_t> shuffled(int64_t count, RngKey key);

}  // namespace frugal::data
