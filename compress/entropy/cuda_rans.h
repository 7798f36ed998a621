// rANS (rans.h) on CUDA: the 32 states of a stream are the lanes of a warp. A CPU writes or reads
// for one state after the other; here a ballot gives the order. All lanes take part in every step,
// also those without a byte. For .cu files.
#pragma once
#include "compress/entropy/rans.h"
#include "core/cuda/cuda_kernel.h"
#include "core/host_device.h"

namespace frugal::compress::cuda {

using namespace frugal::cuda;

static_assert(rans::kStates == kWarp);

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ uint32_t lanes_below() { return (1u << lane_of_warp()) - 1; }

// Numbers in payloads may lie at any address.
__device__ __forceinline__ uint32_t load_u16(const uint8_t* from) {
  return uint32_t{from[0]} | uint32_t{from[1]} << 8;
}
__device__ __forceinline__ uint32_t load_u32(const uint8_t* from) {
  return load_u16(from) | load_u16(from + 2) << 16;
}

// An entry of rans::EncodeTable, made for dividing by multiplication.
struct alignas(8) EncodeEntry {
  uint32_t reciprocal;
  uint32_t packed;  // frequency | start << 12 | shift << 24
};
// x / f = x * reciprocal >> (31 + shift), exact below 2^31.
FRUGAL_HD EncodeEntry pack_entry(uint32_t entry) {
  const uint32_t f = entry & 0xffffu, start = entry >> 16;
  if (f == 0) return {};
  uint32_t shift = 0;
  while (f > 1u << shift) ++shift;
  const uint64_t reciprocal = ((uint64_t{1} << (31 + shift)) + f - 1) / f;
  return {static_cast<uint32_t>(reciprocal), f | start << 12 | shift << 24};
}

// Writes a stream that grows downwards from `end`. If `end` is null, it only counts words.
class WarpEncoder {
 public:
  __device__ explicit WarpEncoder(uint8_t* end) : at_(end) {}

  __device__ __forceinline__ void put(bool active, EncodeEntry entry) {
    const uint32_t frequency = entry.packed & 0xfffu;
    const bool large = active && state_ >= frequency << rans::kLargeBits;
    const uint32_t bits = __ballot_sync(kAllLanes, large);
    if (large) {
      if (at_ != nullptr) {  // the word of the last lane comes first, so it has the highest address
        const int before = __popc(bits >> lane_of_warp());
        store(at_ - 2 * (words_ + before), state_, 2);
      }
      state_ >>= 16;
    }
    words_ += __popc(bits);
    if (!active) return;
    const auto quotient =
        static_cast<uint32_t>(uint64_t{state_} * entry.reciprocal >> (31 + (entry.packed >> 24)));
    state_ += (entry.packed >> 12 & 0xfffu) + quotient * (rans::kScale - frequency);
  }
  __device__ __forceinline__ void finish() {
    if (at_ != nullptr) store(at_ - bytes() + 4 * lane_of_warp(), state_, 4);
  }
  __device__ __forceinline__ int64_t bytes() const { return 2 * words_ + 4 * kWarp; }

 private:
  __device__ static void store(uint8_t* to, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(value >> 8 * i);
  }

  uint8_t* at_;
  int64_t words_ = 0;
  uint32_t state_ = rans::kLow;
};

// Reads a stream in pieces of 128 bytes, and two pieces ahead. Each lane holds two of the 64 words
// of a piece.
class WarpDecoder {
 public:
  // Nothing at `end` or after it is read.
  __device__ WarpDecoder(const uint8_t* from, const uint8_t* end)
      : at_(from + 4 * kWarp), end_(end), state_(load_u32(from + 4 * lane_of_warp())) {
    now_ = fetch(0), next_ = fetch(1), ahead_ = fetch(2);
  }

  __device__ __forceinline__ uint8_t get(bool active, const uint32_t* table) {
    uint8_t byte = 0;
    if (active) {
      const uint32_t entry = table[state_ % rans::kScale];
      byte = static_cast<uint8_t>(entry);
      state_ = (entry >> 8) % rans::kScale * (state_ >> rans::kScaleBits) + (entry >> 20);
    }
    const bool small = active && state_ < rans::kLow;
    const uint32_t bits = __ballot_sync(kAllLanes, small);
    const int word = word_ + __popc(bits & lanes_below());
    const uint32_t here = __shfl_sync(kAllLanes, now_, word / 2 % kWarp),
                   then = __shfl_sync(kAllLanes, next_, word / 2 % kWarp);
    if (small) state_ = state_ << 16 | ((word < kWords ? here : then) >> (word % 2 * 16) & 0xffffu);
    word_ += __popc(bits);
    if (word_ >= kWords) {
      word_ -= kWords;
      at_ += 2 * kWords;
      now_ = next_, next_ = ahead_, ahead_ = fetch(2);
    }
    return byte;
  }

 private:
  static constexpr int kWords = 2 * kWarp;

  __device__ __forceinline__ uint32_t fetch(int which) const {
    const uint8_t* from = at_ + which * 2 * kWords + 4 * lane_of_warp();
    uint32_t words = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (from + i < end_) words |= uint32_t{from[i]} << 8 * i;
    return words;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  uint32_t state_, now_ = 0, next_ = 0, ahead_ = 0;
  int word_ = 0;  // index of the next word
};

}  // namespace frugal::compress::cuda
