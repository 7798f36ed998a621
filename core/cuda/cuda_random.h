// Random streams in kernels. A kernel takes a DeviceKey instead of an RngKey: while captured work
// is rerun (core/cuda/cuda_graph.h), its arguments are those of the captured step, and the
// device itself holds how far the streams have moved on since. For .cu files.
#pragma once
#include "core/cuda/cuda.h"
#include "core/random/philox.h"

namespace frugal::cuda {

// How far the streams have moved on since the work was captured. `keys` is added to the offset of
// every RngKey, `steps` to the step that names a stream of stochastic rounding. Both are 0 unless
// work is rerun.
struct Advance {
  uint64_t keys = 0, steps = 0;
};
const Advance* advance();              // lies on the current device
void set_advance(const Advance& now);  // takes effect in the order of the compute stream

struct DeviceKey {
  RngKey key;
  const Advance* advance;
};
inline DeviceKey device_key(RngKey key) { return {key, advance()}; }

__device__ __forceinline__ RngKey advanced(const DeviceKey& key) {
  return {key.key.seed, key.key.offset + key.advance->keys};
}

}  // namespace frugal::cuda
