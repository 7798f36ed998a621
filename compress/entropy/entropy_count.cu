#include <algorithm>
#include <cmath>

#include "compress/entropy/cuda_trial.h"

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

// The host decides with its own logarithms, so the device says no only where it is sure.
constexpr double kDoubt = 1e-6;

struct Least {
  __device__ int operator()(int a, int b) const { return a < b ? a : b; }
};

__device__ double entropy_of(int64_t count, double total) {
  return count > 0
             ? -(static_cast<double>(count) / total) * log2(static_cast<double>(count) / total)
             : 0;
}

// rans::frequencies() with a thread for each byte. The arithmetic has no sums of products, so the
// device rounds as the host does.
__device__ int frequency_of(int64_t count, double total, double* gains) {
  const auto byte = static_cast<int>(threadIdx.x);
  const auto n = static_cast<double>(count);
  int share = 0;
  if (count > 0) share = static_cast<int>(fmax(floor(n / total * rans::kScale), 1.0));
  int left = static_cast<int>(rans::kScale) - block_sum(share);
  while (left != 0) {
    const bool may = share != 0 && (left > 0 || share != 1);
    const double gain = left > 0 ? -n / (share + 0.5) : n / (share - 0.5);
    __syncthreads();
    gains[byte] = may ? gain : INFINITY;
    __syncthreads();
    int before = 0;
    for (int b = 0; b < 256; ++b)
      before += gains[b] < gain || (gains[b] == gain && b < byte) ? 1 : 0;
    const int all = block_sum(may ? 1 : 0);
    const int changes = std::min(all, left > 0 ? left : -left);
    if (may && before < changes) share += left > 0 ? 1 : -1;
    left += left > 0 ? -changes : changes;
  }
  return share;
}

// Table blockIdx.x, with a thread for each byte.
__global__ void plan_kernel(const int64_t* histograms, TriedPlan* plans, Tables* tables,
                            EncodeEntry* entries) {
  __shared__ double gains[256];
  __shared__ int ends[256];
  const auto byte = static_cast<int>(threadIdx.x);
  const int64_t table = blockIdx.x;
  const int64_t seen = histograms[table * 256 + byte],
                count = histograms[(int64_t{gridDim.x} + table) * 256 + byte];
  const int64_t all_seen = block_sum(seen), all = block_sum(count);
  TriedPlan& plan = plans[table];
  const double entropy = block_sum(entropy_of(seen, static_cast<double>(all_seen)));
  // The first byte that occurs as often as all do.
  const int only = across_block(count == all ? byte : 256, 256, Least{});
  Kind kind = Kind::constant;
  double bits = 0;
  int frequency = 0;
  if (only == 256) {
    frequency = frequency_of(count, static_cast<double>(all), gains);
    const double cost = count > 0 ? static_cast<double>(count) *
                                        (rans::kScaleBits - log2(static_cast<double>(frequency)))
                                  : 0;
    const double coded = block_sum(cost);
    bits = 8 * static_cast<double>(all);
    kind = coded > bits * (1 - kPlaneSaving) ? Kind::raw : Kind::coded;
    if (kind == Kind::coded) bits = coded;
  }
  const int present = block_sum(frequency > 0 ? 1 : 0);
  ends[byte] = frequency;
  __syncthreads();
  int start = 0;
  for (int b = 0; b < byte; ++b) start += ends[b];
  plan.frequencies[byte] = static_cast<uint16_t>(kind == Kind::coded ? frequency : 0);
  entries[table * 256 + byte] = pack_entry(
      kind == Kind::coded ? static_cast<uint32_t>(frequency) | static_cast<uint32_t>(start) << 16
                          : 0);
  if (byte != 0) return;
  plan.bits = bits;
  plan.entropy = entropy;
  plan.table_bytes = kind == Kind::raw ? 1 : kind == Kind::constant ? 2 : 33 + 2 * present;
  plan.kind = static_cast<uint8_t>(kind);
  plan.byte = static_cast<uint8_t>(kind == Kind::constant ? only : 0);
  tables->of[table] = {kind, plan.byte};
}

// One thread, as saving() and plans_of() do.
__global__ void decide_kernel(const TriedPlan* plans, const double* sampled, int count,
                              int64_t fixed, int64_t bytes, double min_saving, int64_t* pays) {
  double saved = 0, all = 0;
  auto predicted = static_cast<double>(fixed);
  for (int t = 0; t < count; ++t) {
    saved += sampled[t] * (1 - plans[t].entropy / 8);
    all += sampled[t];
    predicted += plans[t].bits / 8 + static_cast<double>(plans[t].table_bytes);
  }
  const double least = min_saving - kDoubt;
  const bool no = saved / all < least || predicted > (1 - least) * static_cast<double>(bytes);
  *pays = no ? 0 : 1;
}

}  // namespace

bool TriedPlan::is(const Plan& plan) const {
  if (kind != static_cast<uint8_t>(plan.kind)) return false;
  return plan.kind == Kind::coded
             ? std::equal(plan.frequencies.begin(), plan.frequencies.end(), frequencies)
             : byte == plan.byte;
}

Trial try_codes(const CodeMap& map, const DeviceMap& there, const Sample& sample,
                const Tensor& plain, double min_saving) {
  const Device device = plain.device();
  const CategoryScope scope(Category::workspace);
  const auto tables = static_cast<int64_t>(map.tables());
  const auto bytes = [&](size_t size) {
    return Tensor::empty({static_cast<int64_t>(size)}, DType::u8, device);
  };
  Trial trial;
  trial.histograms = Tensor::zeros({2, tables, 256}, DType::i64, device);
  trial.plans = bytes(map.tables() * sizeof(TriedPlan));
  trial.pays = Tensor::empty({1}, DType::i64, device);
  trial.tables = bytes(sizeof(Tables));
  trial.entries = bytes(map.tables() * 256 * sizeof(EncodeEntry));
  const Tensor pieces = upload(sample.pieces, device), sampled = upload(sample.bytes, device);
  // Counts the sample and all codes at once: all of them cost less than waiting for the sample.
  auto* const seen = as<unsigned long long>(trial.histograms);
  launch(count_sample_kernel,
         {as_blocks(static_cast<int64_t>(sample.pieces.size())), kBlockThreads},
         as<Sample::Piece>(pieces), plain.data<uint8_t>(), seen);
  const dim3 grid = as_blocks(blocks_across(map.block_count(), 8).x, tables);
  launch(count_planes_kernel, {grid, kBlockThreads}, there.view(), plain.data<uint8_t>(),
         seen + tables * 256);
  launch(plan_kernel, {as_blocks(tables), kBlockThreads}, trial.histograms.data<int64_t>(),
         as<TriedPlan>(trial.plans), as<Tables>(trial.tables), as<EncodeEntry>(trial.entries));
  const int64_t fixed =
      map.block_count() * rans::kStates * 4 + map.metadata_bytes() + map.block_count() * 8;
  launch(decide_kernel, {dim3(1), 1}, as<TriedPlan>(trial.plans), as<double>(sampled),
         static_cast<int>(tables), fixed, plain.nbytes(), min_saving, trial.pays.mut<int64_t>());
  return trial;
}

}  // namespace frugal::compress::entropy
