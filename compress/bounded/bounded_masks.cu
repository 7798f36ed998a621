// Masked blocks of fixed-point codes: a block of threads for each.
#include "compress/bounded/cuda_fixed.h"

namespace frugal::compress::bounded {
namespace {

// The sum of what threads before this one have, and of all in `total`. Every thread comes here.
__device__ uint32_t sum_before(uint32_t value, uint32_t& total) {
  __shared__ uint32_t sums[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  uint32_t sum = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // the sums of the call before were read
  if (lane == kWarp - 1) sums[warp] = sum;
  __syncthreads();
  uint32_t before = 0;
  total = 0;
  for (int w = 0; w < kBlockThreads / kWarp; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before + sum - value;
}

// Fills before[0..cols] from mask(lane).
template <class F>
__device__ void count_lanes(int64_t cols, uint32_t* before, const F& mask) {
  uint32_t sum = 0;
  for (int64_t first = 0; first < cols; first += kBlockThreads) {
    const int64_t j = first + threadIdx.x;
    uint32_t total;
    const uint32_t there = sum_before(j < cols ? __popc(mask(j)) : 0, total);
    if (j < cols) before[j] = sum + there;
    sum += total;
  }
  if (threadIdx.x == 0) before[cols] = sum;
  __syncthreads();
}

__device__ __forceinline__ int64_t run_bytes(int width, uint32_t values) {
  return width == kRaw ? int64_t{4} * values : int64_t{width} * ((values + 7) / 8);
}

struct Masked {
  Codes codes;
  int64_t blocks, first, begin, end;  // unpacking: from block `first` on, elements
  uint32_t* before;                   // [blocks of the grid][cols + 1], or null: in shared memory
  const float* x;                     // packing
  float* out;                         // unpacking
  uint8_t* payload;                   // null: sizes only
  int64_t* sizes;

  __device__ uint32_t* my_before() const {
    return before == nullptr ? dynamic_shared<uint32_t>() : before + blockIdx.x * (codes.cols + 1);
  }
  __device__ uint8_t* place_of(int64_t block) const {
    return payload + (block == 0 ? codes.head : get_i64(payload + codes.ends + 8 * (block - 1)));
  }
  __device__ float value(int64_t block, int row, const Lane& lane) const {
    const int64_t at = codes.index(block, row, lane.column);
    return at < codes.numel ? x[at] : 0.0f;
  }
  __device__ uint32_t mask(int64_t block, int64_t j) const {
    const Lane& lane = codes.lanes[j];
    uint32_t bits = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) bits |= (value(block, r, lane) != 0 ? 1u : 0u) << r;
    return bits;
  }
};

__global__ void masked_sizes_of(Masked m) {
  uint32_t* const before = m.my_before();
  for (int64_t b = blockIdx.x; b < m.blocks; b += gridDim.x) {
    count_lanes(m.codes.cols, before, [&](int64_t j) { return m.mask(b, j); });
    if (threadIdx.x == 0) {
      int64_t bytes = m.codes.cols;
      for (int i = 0; i < m.codes.run_count; ++i) {
        const Lanes::Run run = m.codes.runs[i];
        bytes += run_bytes(run.width, before[run.end] - before[run.begin]);
      }
      m.sizes[b] = bytes;
    }
    __syncthreads();
  }
}

// Code, or bits, of value number `e` of a block: of the last lane that begins at it or before.
__device__ uint32_t masked_code(const Masked& m, int64_t block, const Lanes::Run& run,
                                const uint32_t* before, uint32_t e, const uint8_t* masks) {
  int64_t low = run.begin, high = run.end;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (before[middle] <= e ? low : high) = middle;
  }
  const Lane lane = m.codes.lanes[low];
  uint32_t bits = masks[low];
  for (uint32_t skip = e - before[low]; skip > 0; --skip) bits &= bits - 1;
  const int row = __ffs(static_cast<int>(bits)) - 1;
  const float x = m.value(block, row, lane);
  return run.width == kRaw ? __float_as_uint(x)
                           : m.codes.code(x, lane, m.codes.words(block, lane), row);
}

__global__ void pack_masked_blocks(Masked m) {
  uint32_t* const before = m.my_before();
  for (int64_t b = blockIdx.x; b < m.blocks; b += gridDim.x) {
    uint8_t* to = m.place_of(b);
    const uint8_t* const masks = to;
    count_lanes(m.codes.cols, before, [&](int64_t j) {
      const uint32_t bits = m.mask(b, j);
      to[j] = static_cast<uint8_t>(bits);
      return bits;
    });
    to += m.codes.cols;
    for (int i = 0; i < m.codes.run_count; ++i) {
      const Lanes::Run run = m.codes.runs[i];
      const uint32_t first = before[run.begin], n = before[run.end] - first;
      if (run.width == kRaw) {
        for (uint32_t e = threadIdx.x; e < n; e += kBlockThreads)
          put_float(to + int64_t{4} * e,
                    __uint_as_float(masked_code(m, b, run, before, first + e, masks)));
      } else if (run.width > 0) {
        const uint32_t k = (n + 7) / 8;
        for (uint32_t c = threadIdx.x; c < k; c += kBlockThreads) {
          uint32_t code[kRows];
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const uint32_t e = static_cast<uint32_t>(r) * k + c;
            code[r] = e < n ? masked_code(m, b, run, before, first + e, masks) : 0;
          }
          put_codes(code, run.width, to + c, k);
        }
      }
      to += run_bytes(run.width, n);
    }
    __syncthreads();
  }
}

// Code number `e` of a run of `k` columns.
__device__ uint32_t read_code(const uint8_t* from, int width, uint32_t k, uint32_t e) {
  const uint32_t row = e / k, column = e % k;
  uint32_t code = 0;
  int shift = 0;
  for_planes(width, [&](auto bits) {
    constexpr uint32_t kBits = decltype(bits)::value, kPer = 8 / kBits;
    const uint32_t byte = from[int64_t{row / kPer} * k + column];
    code |= (byte >> (row % kPer * kBits) & ((1u << kBits) - 1)) << shift;
    shift += kBits;
    from += int64_t{kBits} * k;
  });
  return code;
}

__global__ void unpack_masked_blocks(Masked m) {
  uint32_t* const before = m.my_before();
  for (int64_t i = blockIdx.x; i < m.blocks; i += gridDim.x) {
    const int64_t b = m.first + i;
    const uint8_t* const masks = m.place_of(b);
    count_lanes(m.codes.cols, before, [&](int64_t j) { return uint32_t{masks[j]}; });
    for (int64_t j = threadIdx.x; j < m.codes.cols; j += kBlockThreads) {
      const Lane lane = m.codes.lanes[j];
      const uint8_t* from = masks + m.codes.cols;
      for (int r = 0; r < lane.run; ++r) {
        const Lanes::Run run = m.codes.runs[r];
        from += run_bytes(run.width, before[run.end] - before[run.begin]);
      }
      const Lanes::Run run = m.codes.runs[lane.run];
      const uint32_t first = before[run.begin], k = (before[run.end] - first + 7) / 8;
      uint32_t e = before[j] - first;
      for (int r = 0; r < kRows; ++r) {
        const int64_t at = m.codes.index(b, r, lane.column);
        float value = 0;
        if ((masks[j] >> r & 1u) != 0) {
          value = lane.width == kRaw ? get_float(from + int64_t{4} * e)
                                     : value_of(read_code(from, lane.width, k, e), lane);
          ++e;
        }
        if (at >= m.begin && at < m.end) m.out[at - m.begin] = value;
      }
    }
    __syncthreads();
  }
}

// `kernel` for m.blocks blocks.
void launch_masked(void (*kernel)(Masked), Masked m) {
  if (m.blocks == 0) return;
  constexpr int64_t kShared = int64_t{40} << 10;  // beside what scans take
  const int64_t bytes = 4 * (m.codes.cols + 1);
  const Grid grid{blocks_across(m.blocks, 8), kBlockThreads,
                  bytes <= kShared ? static_cast<size_t>(bytes) : 0};
  Tensor aside;
  if (bytes > kShared) {
    const CategoryScope scope(Category::workspace);
    aside = Tensor::empty({static_cast<int64_t>(grid.blocks.x) * (m.codes.cols + 1)}, DType::i32,
                          current_device());
    m.before = as<uint32_t>(aside);
  }
  launch(kernel, grid, m);
}

}  // namespace

std::vector<int64_t> masked_sizes_kernel(Cuda, const float* x, const FixedCodes& codes) {
  const CodesThere there(codes);
  const CategoryScope scope(Category::workspace);
  const Tensor sizes = Tensor::empty({codes.view.blocks()}, DType::i64, current_device());
  Masked m{};
  m.codes = there.get();
  m.blocks = codes.view.blocks();
  m.x = x;
  m.sizes = sizes.mut<int64_t>();
  launch_masked(masked_sizes_of, m);
  std::vector<int64_t> all(static_cast<size_t>(codes.view.blocks()));
  frugal::copy_bytes(all.data(), kCpu, sizes.raw(), sizes.device(), sizes.nbytes());
  return all;
}

void pack_masked(const float* x, const FixedCodes& codes, const Tensor& payload) {
  const CodesThere there(codes);
  Masked m{};
  m.codes = there.get();
  m.blocks = codes.view.blocks();
  m.x = x;
  m.payload = payload.mut<uint8_t>();
  launch_masked(pack_masked_blocks, m);
}

void unpack_masked(const Tensor& payload, const FixedCodes& codes, int64_t begin, int64_t end,
                   float* out) {
  const CodesThere there(codes);
  const int64_t block = codes.view.block();
  Masked m{};
  m.codes = there.get();
  m.first = begin / block;
  m.blocks = (end + block - 1) / block - m.first;
  m.begin = begin;
  m.end = end;
  m.out = out;
  m.payload = payload.mut<uint8_t>();  // the kernel only reads it
  launch_masked(unpack_masked_blocks, m);
}

}  // namespace frugal::compress::bounded
