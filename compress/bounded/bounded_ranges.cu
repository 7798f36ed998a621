#include <bit>

#include "compress/bounded/cuda_fixed.h"

namespace frugal::compress::bounded {
namespace {

// Extremes as numbers that are ordered as the floats are: atomics on whole numbers, in any order.
struct Extremes {
  uint32_t min = ~0u, max = 0, nonzero_min = ~0u, nonzero_max = 0;
  uint32_t odd = 0;  // whether a value is not finite
  uint32_t unused = 0;
  unsigned long long zeros = 0;
};
FRUGAL_HD uint32_t ordered(uint32_t bits) { return bits >> 31 != 0 ? ~bits : bits | 1u << 31; }
float float_at(uint32_t order) {
  return std::bit_cast<float>(order >> 31 != 0 ? order & ~(1u << 31) : ~order);
}

__device__ void add(Extremes& to, const Extremes& from) {
  atomicMin(&to.min, from.min);
  atomicMax(&to.max, from.max);
  atomicMin(&to.nonzero_min, from.nonzero_min);
  atomicMax(&to.nonzero_max, from.nonzero_max);
  if (from.odd != 0) atomicOr(&to.odd, 1u);
  if (from.zeros != 0) atomicAdd(&to.zeros, from.zeros);
}

// With so many codes or fewer, a block gathers the extremes of all codes in its shared memory.
constexpr int64_t kNearCodes = 512;

// `step` is a multiple of `codes`: a thread stays with one of them.
__global__ void extremes_kernel(const float* x, int64_t n, int64_t codes, int64_t step,
                                Extremes* all) {
  const bool near = codes <= kNearCodes;
  auto* const mine = near ? dynamic_shared<Extremes>() : all;
  if (near)
    for (int64_t c = threadIdx.x; c < codes; c += blockDim.x) mine[c] = Extremes{};
  __syncthreads();
  const int64_t first = first_index();
  if (first < std::min(step, n)) {
    Extremes e;
    for (int64_t i = first; i < n; i += step) {
      const uint32_t bits = __float_as_uint(x[i]), order = ordered(bits);
      const bool zero = bits << 1 == 0;
      e.min = std::min(e.min, order);
      e.max = std::max(e.max, order);
      e.nonzero_min = std::min(e.nonzero_min, zero ? ~0u : order);
      e.nonzero_max = std::max(e.nonzero_max, zero ? 0u : order);
      e.odd |= (bits >> 23 & 0xffu) == 0xffu ? 1u : 0u;
      e.zeros += zero ? 1 : 0;
    }
    add(mine[first % codes], e);
  }
  if (!near) return;
  __syncthreads();
  for (int64_t c = threadIdx.x; c < codes; c += blockDim.x)
    if (mine[c].min <= mine[c].max) add(all[c], mine[c]);
}

}  // namespace

std::vector<Range> ranges_kernel(Cuda, const float* x, const View& view, bool zeros) {
  check_not_capturing("error_bounded");
  const auto count = static_cast<size_t>(view.channels);
  std::vector<Extremes> all(count);
  const Tensor there = upload(all, current_device());
  // 16 elements a thread at least.
  int64_t blocks = blocks_across((view.numel + 16 * kBlockThreads - 1) / (16 * kBlockThreads), 8).x;
  blocks = std::max(blocks, (view.channels + kBlockThreads - 1) / kBlockThreads);
  const int64_t step = blocks * kBlockThreads / view.channels * view.channels;
  const bool near = view.channels <= kNearCodes;
  if (view.numel > 0)
    launch(extremes_kernel, {as_blocks(blocks), kBlockThreads, near ? count * sizeof(Extremes) : 0},
           x, view.numel, view.channels, step, as<Extremes>(there));
  frugal::copy_bytes(all.data(), kCpu, there.raw(), there.device(), there.nbytes());
  std::vector<Range> ranges;
  for (const Extremes& e : all) {
    Range range;
    range.values = view.numel / view.channels;
    range.min = float_at(e.min) + 0.0f;
    range.max = float_at(e.max) + 0.0f;
    range.finite = e.odd == 0;
    if (zeros) {
      range.zeros = static_cast<int64_t>(e.zeros);
      range.nonzero_min = float_at(e.nonzero_min);
      range.nonzero_max = float_at(e.nonzero_max);
    }
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace frugal::compress::bounded
