#include "compress/bounded/bounded_fixed_kernels.h"

#include "compress/bounded/cuda_fixed.h"

namespace frugal::compress::bounded {
namespace {

// Without masks: lane i % cols of block i / cols.
struct PackDense {
  Codes codes;
  const float* x;
  uint8_t* payload;

  __device__ void operator()(int64_t i) const {
    const int64_t block = i / codes.cols;
    const Lane lane = codes.lanes[i % codes.cols];
    if (lane.width == 0) return;
    uint8_t* const to = payload + codes.head + block * codes.block_bytes + lane.at;
    const StreamWords words = codes.words(block, lane);
    uint32_t code[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = codes.index(block, r, lane.column);
      const float value = at < codes.numel ? x[at] : lane.lo;
      if (lane.width == kRaw)
        put_float(to + int64_t{4} * r * lane.wide, value);
      else
        code[r] = codes.code(value, lane, words, r);
    }
    if (lane.width != kRaw) put_codes(code, lane.width, to, lane.wide);
  }
};

struct UnpackDense {
  Codes codes;
  const uint8_t* payload;
  int64_t first, begin, end;  // block; elements
  float* out;

  __device__ void operator()(int64_t i) const {
    const int64_t block = first + i / codes.cols;
    const Lane lane = codes.lanes[i % codes.cols];
    const uint8_t* from = payload + codes.head + block * codes.block_bytes + lane.at;
    uint32_t code[kRows] = {};
    if (lane.width != kRaw) {
      int shift = 0;
      for_planes(lane.width, [&](auto bits) {
        get_plane<decltype(bits)::value>(code, shift, from, lane.wide);
      });
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = codes.index(block, r, lane.column);
      if (at < begin || at >= end) continue;
      out[at - begin] = lane.width == kRaw ? get_float(from + int64_t{4} * r * lane.wide)
                                           : value_of(code[r], lane);
    }
  }
};

}  // namespace

void pack_fixed_kernel(Cuda, const float* x, const FixedCodes& codes,
                       const std::vector<uint8_t>& head, const Tensor& payload) {
  const Tensor first = upload(head, payload.device());
  frugal::copy_bytes(payload.raw(), payload.device(), first.raw(), payload.device(),
                     first.nbytes());
  if (codes.masked) return pack_masked(x, codes, payload);
  const CodesThere there(codes);
  for_each(codes.view.blocks() * codes.view.cols(),
           PackDense{there.get(), x, payload.mut<uint8_t>()});
}

void unpack_fixed_kernel(Cuda, const Tensor& payload, const FixedCodes& codes, int64_t begin,
                         int64_t end, float* out) {
  use(payload.device());
  if (codes.masked) return unpack_masked(payload, codes, begin, end, out);
  const CodesThere there(codes);
  const int64_t block = codes.view.block(), first = begin / block;
  const int64_t blocks = (end + block - 1) / block - first;
  for_each(blocks * codes.view.cols(),
           UnpackDense{there.get(), payload.data<uint8_t>(), first, begin, end, out});
}

}  // namespace frugal::compress::bounded
