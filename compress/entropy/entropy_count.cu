#include "compress/entropy/entropy_kernels.h"
#include "compress/quantize/cuda_code_map.h"

namespace frugal::compress::entropy {
namespace {

// Neighbouring threads count apart: of codes, most bytes are alike.
constexpr int kCopies = 8;
struct Counts {
  uint32_t of[256][kCopies];
};

__device__ __forceinline__ void count(Counts& counts, uint32_t byte, uint32_t times) {
  atomicAdd(&counts.of[byte][threadIdx.x % kCopies], times);
}
__device__ __forceinline__ void clear(Counts& counts) {
  for (int i = static_cast<int>(threadIdx.x); i < 256 * kCopies; i += kBlockThreads)
    (&counts.of[0][0])[i] = 0;
  __syncthreads();
}
__device__ void count_bytes(Counts& counts, const uint8_t* from, int64_t size) {
  const auto thread = static_cast<int64_t>(threadIdx.x);
  const int64_t head =
      std::min<int64_t>(size, static_cast<int64_t>((0 - reinterpret_cast<uintptr_t>(from)) & 15));
  const int64_t packs = (size - head) / 16, tail = head + packs * 16;
  for (int64_t i = thread; i < head; i += kBlockThreads) count(counts, from[i], 1);
  for (int64_t i = tail + thread; i < size; i += kBlockThreads) count(counts, from[i], 1);
  for (int64_t i = thread; i < packs; i += kBlockThreads) {
    const auto pack = load_pack(reinterpret_cast<const uint32_t*>(from + head + i * 16));
#pragma unroll
    for (uint32_t word : pack.at) {
      if (word == (word & 0xffu) * 0x01010101u) {
        count(counts, word & 0xffu, 4);
        continue;
      }
      for (int k = 0; k < 32; k += 8) count(counts, word >> k & 0xffu, 1);
    }
  }
}
// No counter of a block runs over: it would have counted 4 GiB.
__device__ void add_counts(const Counts& counts, unsigned long long* histogram) {
  __syncthreads();
  const auto byte = threadIdx.x;
  static_assert(kBlockThreads == 256);
  unsigned long long sum = 0;
  for (int k = 0; k < kCopies; ++k) sum += counts.of[byte][k];
  if (sum > 0) atomicAdd(histogram + byte, sum);
}

__global__ void count_sample_kernel(const Sample::Piece* pieces, const uint8_t* payload,
                                    unsigned long long* histograms) {
  __shared__ Counts counts;
  clear(counts);
  const Sample::Piece piece = pieces[blockIdx.x];
  count_bytes(counts, payload + piece.offset, piece.size);
  add_counts(counts, histograms + piece.table * 256);
}

// The planes of table blockIdx.y. Those that lie together are one run of bytes.
__global__ void count_planes_kernel(MapView map, const uint8_t* payload,
                                    unsigned long long* histograms) {
  __shared__ Counts counts;
  clear(counts);
  for (int64_t b = blockIdx.x; b < map.block_count; b += gridDim.x) {
    const Block block = map.blocks[b];
    SegmentWalk<false> walk(map.places, block);
    Segment run, segment;
    while (walk.next(segment)) {
      if (segment.table != blockIdx.y) continue;
      if (segment.offset == run.offset + run.size) {
        run.size += segment.size;
      } else {
        count_bytes(counts, payload + run.offset, run.size);
        run = segment;
      }
    }
    count_bytes(counts, payload + run.offset, run.size);
  }
  add_counts(counts, histograms + int64_t{blockIdx.y} * 256);
}

}  // namespace

std::vector<rans::Histogram> count_kernel(Cuda, const Tensor& plain, const CodeMap& map,
                                          double min_saving) {
  check_not_recording("entropy");
  const Device device = plain.device();
  use(device);
  const CategoryScope scope(Category::workspace);
  const DeviceMap there(map, device);
  const Sample sample = sample_of(map);
  const Tensor pieces = upload(sample.pieces, device);
  // Both at once: all of them cost less than waiting for the sample.
  const auto tables = static_cast<int64_t>(map.tables());
  const Tensor counts = Tensor::zeros({2, tables, 256}, DType::i64, device);
  auto* const seen = as<unsigned long long>(counts);
  launch(count_sample_kernel, {dim3(static_cast<unsigned>(sample.pieces.size())), kBlockThreads},
         as<Sample::Piece>(pieces), plain.data<uint8_t>(), seen);
  dim3 grid = blocks_across(map.block_count(), 8);
  grid.y = static_cast<unsigned>(tables);
  launch(count_planes_kernel, {grid, kBlockThreads}, there.view(), plain.data<uint8_t>(),
         seen + tables * 256);
  std::vector<rans::Histogram> both(2 * map.tables());
  frugal::copy_bytes(both.data(), kCpu, counts.raw(), device, counts.nbytes());
  const auto all = both.begin() + tables;
  if (saving(sample, {both.begin(), all}) < min_saving) return {};
  return {all, both.end()};
}

}  // namespace frugal::compress::entropy
