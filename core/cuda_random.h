// Random streams in kernels. Kernels take a DeviceKey, not a key: while work is replayed
// (core/cuda_graph.h), its arguments are those of the recorded step, and the device holds how far
// the streams have moved on since. For .cu files.
#pragma once
#include "core/cuda.h"
#include "core/philox.h"

namespace frugal::cuda {

// How far the recorded numbers lie behind: added to every RngKey's offset, and to the step that
// names a stream of stochastic rounding. Zeros unless work is being replayed.
struct Advance {
  uint64_t keys = 0, steps = 0;
};
const Advance* advance();              // on the current device
void set_advance(const Advance& now);  // in the order of the compute stream

struct DeviceKey {
  RngKey key;
  const Advance* advance;
};
inline DeviceKey device_key(RngKey key) { return {key, advance()}; }

__device__ __forceinline__ RngKey advanced(const DeviceKey& key) {
  return {key.key.seed, key.key.offset + key.advance->keys};
}

}  // namespace frugal::cuda
