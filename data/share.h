// Share: which part of each batch a process reads, where several processes train one network.
#pragma once
#include <cstdint>

#include "core/error.h"

namespace frugal::data {

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

}  // namespace frugal::data
