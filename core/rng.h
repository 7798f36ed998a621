// Counter-based randomness: Philox 4x32 through Random123, one definition for CPU and CUDA.
// Ref: Salmon et al. 2011.
#pragma once
#include <array>
#include <cstdint>

namespace frugal {

// Names one stream of random words. Ops take it by value. Equal keys give equal bits on every
// device.
struct RngKey {
  uint64_t seed = 0;
  uint64_t offset = 0;
  bool operator==(const RngKey&) const = default;
};

// The 4 words of `key` at counter `index` (Philox 4x32, 10 rounds).
std::array<uint32_t, 4> philox(RngKey key, uint64_t index);

// Element `index` of the stream `key`: uniform in [0, 1) with 24 bits, or standard normal
// (Box-Muller).
float uniform(RngKey key, uint64_t index);
float normal(RngKey key, uint64_t index);
uint64_t uniform_int(RngKey key, uint64_t index, uint64_t bound);  // [0, bound)

// Hands out keys in order. Its whole state is two words, so checkpoints and recomputation can
// restore it.
class Rng {
 public:
  explicit Rng(uint64_t seed = 0) : state_{seed, 0} {}
  RngKey next() { return {state_.seed, state_.offset++}; }
  RngKey state() const { return state_; }
  void restore(RngKey state) { state_ = state; }

 private:
  RngKey state_;
};

}  // namespace frugal
