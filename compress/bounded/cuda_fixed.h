// Fixed-point codes (bounded_fixed_kernels.h) on CUDA: lanes, and codes in planes of bytes. For .cu
// files.
#pragma once
#include "compress/bounded/bounded_fixed_kernels.h"
#include "compress/quantize/cuda_codes.h"
#include "compress/quantize/cuda_upload.h"

namespace frugal::compress::bounded {

using namespace compress::cuda;

// A sorted place in the row of a block.
struct Lane {
  float lo, step, inverse, top;
  int32_t column, width;
  int32_t run;
  int32_t wide;  // number of lanes in the run of equal width
  int64_t at;    // where its first byte is in a block without masks
};

// FixedCodes on the device.
struct Codes {
  const Lane* lanes;
  const Lanes::Run* runs;
  int run_count;
  int64_t cols, numel, block_bytes, head, ends;
  bool stochastic;
  StreamKeys keys;

  __device__ __forceinline__ int64_t index(int64_t block, int row, int32_t column) const {
    return (block * kRows + row) * cols + column;
  }
  __device__ __forceinline__ StreamWords words(int64_t block, const Lane& lane) const {
    return stochastic ? stream_words(keys, static_cast<uint32_t>(block),
                                     static_cast<uint32_t>(lane.column))
                      : StreamWords{};
  }
  __device__ __forceinline__ uint32_t code(float x, const Lane& lane, const StreamWords& words,
                                           int row) const {
    const uint32_t half = words.w[row / 2] >> (row % 2 * 16) & 0xffffu;
    const float u = stochastic ? (static_cast<float>(half) + 0.5f) * 0x1p-16f : 0.5f;
    float t = __fadd_rn(__fmul_rn(__fsub_rn(x, lane.lo), lane.inverse), u);
    t = t > 0 ? t : 0;
    t = t < lane.top ? t : lane.top;
    return static_cast<uint32_t>(static_cast<int32_t>(t));
  }
};
__device__ __forceinline__ float value_of(uint32_t code, const Lane& lane) {
  return lane.width == 0
             ? lane.lo
             : __fadd_rn(lane.lo,
                         __fmul_rn(static_cast<float>(static_cast<int32_t>(code)), lane.step));
}

__device__ __forceinline__ void put_float(uint8_t* to, float x) {
  const uint32_t bits = __float_as_uint(x);
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(bits >> 8 * i);
}
__device__ __forceinline__ float get_float(const uint8_t* from) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= uint32_t{from[i]} << 8 * i;
  return __uint_as_float(bits);
}
__device__ __forceinline__ int64_t get_i64(const uint8_t* from) {
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= uint64_t{from[i]} << 8 * i;
  return static_cast<int64_t>(bits);
}

// A column of bytes, `stride` apart, which holds the planes of the codes of 8 rows.
template <int kBits>
__device__ __forceinline__ void put_plane(const uint32_t (&code)[kRows], int& shift, uint8_t*& to,
                                          int64_t stride) {
  constexpr int kPer = 8 / kBits;
#pragma unroll
  for (int i = 0; i < kBits; ++i, to += stride) {
    uint32_t byte = 0;
#pragma unroll
    for (int k = 0; k < kPer; ++k)
      byte |= (code[i * kPer + k] >> shift & ((1u << kBits) - 1)) << (k * kBits);
    *to = static_cast<uint8_t>(byte);
  }
  shift += kBits;
}
template <int kBits>
__device__ __forceinline__ void get_plane(uint32_t (&code)[kRows], int& shift, const uint8_t*& from,
                                          int64_t stride) {
  constexpr int kPer = 8 / kBits;
#pragma unroll
  for (int i = 0; i < kBits; ++i, from += stride) {
    const uint32_t byte = *from;
#pragma unroll
    for (int k = 0; k < kPer; ++k)
      code[i * kPer + k] |= (byte >> (k * kBits) & ((1u << kBits) - 1)) << shift;
  }
  shift += kBits;
}
// Calls f(bits) for the planes of a width, the widest first.
template <class F>
__device__ __forceinline__ void for_planes(int width, const F& f) {
  for (int left = width; left >= 8; left -= 8) f(std::integral_constant<int, 8>{});
  if ((width & 4) != 0) f(std::integral_constant<int, 4>{});
  if ((width & 2) != 0) f(std::integral_constant<int, 2>{});
  if ((width & 1) != 0) f(std::integral_constant<int, 1>{});
}
__device__ __forceinline__ void put_codes(const uint32_t (&code)[kRows], int width, uint8_t* to,
                                          int64_t stride) {
  int shift = 0;
  for_planes(width, [&](auto bits) { put_plane<decltype(bits)::value>(code, shift, to, stride); });
}

inline Device current_device() {
  int current = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&current));
  return {DeviceType::cuda, current};
}

// Codes on the device; their tables live as long as this object.
class CodesThere {
 public:
  explicit CodesThere(const FixedCodes& codes) {
    const Lanes& lanes = codes.lanes;
    std::vector<Lane> all;
    int64_t bytes = 0;
    for (size_t i = 0; i < lanes.runs.size(); ++i) {
      const Lanes::Run& run = lanes.runs[i];
      for (int64_t j = run.begin; j < run.end; ++j) {
        const auto at = static_cast<size_t>(j);
        const int64_t size = run.width == kRaw ? 4 : 1;
        all.push_back({lanes.lo[at], lanes.step[at], lanes.inverse[at], lanes.top[at],
                       lanes.column[at], run.width, static_cast<int32_t>(i),
                       static_cast<int32_t>(run.end - run.begin), bytes + size * (j - run.begin)});
      }
      bytes += run.width * (run.end - run.begin);
    }
    lanes_ = upload(all, current_device());
    runs_ = upload(lanes.runs, current_device());
    const CodeStream stream = codes.stream != nullptr ? *codes.stream : CodeStream{};
    codes_ = {as<Lane>(lanes_),
              as<Lanes::Run>(runs_),
              static_cast<int>(lanes.runs.size()),
              codes.view.cols(),
              codes.view.numel,
              lanes.block_bytes,
              codes.head(),
              codes.view.channels * kCodeBytes,
              codes.stream != nullptr,
              {{stream.key[0], stream.key[1]}, {stream.counter[0], stream.counter[1]}}};
  }
  const Codes& get() const { return codes_; }

 private:
  Tensor lanes_, runs_;
  Codes codes_{};
};

// Packs with masks. `codes`: as in bounded_fixed_kernels.h.
void pack_masked(const float* x, const FixedCodes& codes, const Tensor& payload);
void unpack_masked(const Tensor& payload, const FixedCodes& codes, int64_t begin, int64_t end,
                   float* out);

}  // namespace frugal::compress::bounded
