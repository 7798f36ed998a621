// How gradients are added up in parts (gradient_buckets.h).
#pragma once
#include <cstdint>

namespace frugal::distributed {

struct BucketOptions {
  // A bucket takes gradients until it has so many bytes. The first one is smaller, so that
  // something is on the way soon.
  int64_t first_bytes = 1 << 20;
  int64_t bytes = 25 << 20;
  // Buckets with owners: while the sums of more bytes than these are being made, the backward pass
  // waits.
  int64_t window = 50 << 20;
};

}  // namespace frugal::distributed
