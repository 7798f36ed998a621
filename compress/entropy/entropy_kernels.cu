#include "compress/entropy/entropy_kernels.h"

#include <algorithm>
#include <cstring>

#include "compress/entropy/cuda_trial.h"
#include "core/memory/host_copies.h"

namespace frugal::compress::entropy {
namespace {

constexpr int kCoderThreads = 128;
// What the tables of any one width take, and of a few; those of many are read where they lie.
constexpr int64_t kSharedTables = int64_t{64} << 10;

// ---- Where things are in a coded payload

// 8 bytes that lie at a multiple of 4.
__device__ __forceinline__ int64_t load_i64(const uint8_t* from) {
  const auto* words = reinterpret_cast<const uint32_t*>(from);
  return static_cast<int64_t>(words[0] | uint64_t{words[1]} << 32);
}

struct Stream {
  int64_t begin, end;  // place in the payload
  bool whole;          // the codes as they are
};
__device__ __forceinline__ Stream stream_of(const MapView& map, const Tables& tables,
                                            const uint8_t* coded, int64_t b) {
  const uint8_t* ends = coded + map.metadata;
  Stream stream;
  stream.begin = b == 0 ? tables.streams : load_i64(ends + 8 * (b - 1));
  stream.end = load_i64(ends + 8 * b);
  stream.whole = stream.end - stream.begin == map.blocks[b].bytes;
  return stream;
}

// A word of metadata, between payloads.
template <bool kBack>
struct MoveMetadata {
  MapView map;
  uint8_t* plain;
  uint8_t* coded;

  __device__ void operator()(int64_t i) const {
    int64_t first = 0, last = map.place_count;
    while (last - first > 1) {
      const int64_t middle = (first + last) / 2;
      (map.places[middle].metadata <= 4 * i ? first : last) = middle;
    }
    const Place& place = map.places[first];
    auto* there = reinterpret_cast<uint32_t*>(plain + place.offset + (4 * i - place.metadata));
    auto* here = reinterpret_cast<uint32_t*>(coded + 4 * i);
    if (kBack)
      *there = *here;
    else
      *here = *there;
  }
};

// Everything but what the coder makes: raw and constant planes, blocks that are not coded.
template <bool kBack>
__global__ void move_planes_kernel(MapView map, const Tables* tables, uint8_t* plain,
                                   uint8_t* coded) {
  for (int64_t b = blockIdx.x; b < map.block_count; b += gridDim.x) {
    const Block block = map.blocks[b];
    const Stream stream = stream_of(map, *tables, coded, b);
    uint8_t* there = coded + stream.begin;
    SegmentWalk<false> walk(map.places, block);
    for (Segment segment; walk.next(segment);) {
      const Tables::Head head = tables->of[segment.table];
      uint8_t* const here = plain + segment.offset;
      if (stream.whole || head.kind == Kind::raw) {
        uint8_t *const to = kBack ? here : there, *const from = kBack ? there : here;
        for (int64_t i = threadIdx.x; i < segment.size; i += kBlockThreads) to[i] = from[i];
        there += segment.size;
      } else if (kBack && head.kind == Kind::constant) {
        for (int64_t i = threadIdx.x; i < segment.size; i += kBlockThreads) here[i] = head.byte;
      }
    }
  }
}

// ---- Coding: a warp for each block

// Tables where `shared` says that they fit, else where they lie. Every thread comes here.
template <class T>
__device__ const T* nearby(const T* tables, int64_t count, bool shared) {
  if (!shared) return tables;
  T* const near = dynamic_shared<T>();
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) near[i] = tables[i];
  __syncthreads();
  return near;
}

struct Encoding {
  MapView map;
  const uint8_t* plain;
  const Tables* tables;
  const EncodeEntry* entries;  // [count][256]
  int count;
  bool shared;
  int64_t* lengths;     // the first time, else null
  uint8_t* coded;       // the second time, with its ends
  const int64_t* pays;  // if it is 0, nothing is done. May be null
};

// The bytes of a segment, the last one first.
__device__ __forceinline__ void put_segment(WarpEncoder& encoder, const uint8_t* from, int64_t size,
                                            const EncodeEntry* table) {
  constexpr int kAhead = 8;
  const int odd = static_cast<int>(size % kWarp);
  int64_t left = size - odd;
  if (odd > 0) {
    const bool active = lane_of_warp() < odd;
    encoder.put(active, active ? table[from[left + lane_of_warp()]] : EncodeEntry{});
  }
  const uint8_t* last = from + left - kWarp + lane_of_warp();
  const auto steps = static_cast<int>(left / kWarp);
  uint8_t next[kAhead];
  const auto fetch = [&](int first) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (first + k < steps) next[k] = last[-int64_t{kWarp} * (first + k)];
  };
  fetch(0);
  for (int step = 0; step < steps; step += kAhead) {
    uint8_t now[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) now[k] = next[k];
    fetch(step + kAhead);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (step + k >= steps) break;
      encoder.put(true, table[now[k]]);
    }
  }
}

// Coded twice, since where a stream goes depends on all lengths: a place to keep streams meanwhile
// would be as large as the codes.
__global__ void __launch_bounds__(kCoderThreads) encode_blocks_kernel(Encoding e) {
  if (e.pays != nullptr && *e.pays == 0) return;
  const EncodeEntry* entries = nearby(e.entries, int64_t{e.count} * 256, e.shared);
  const int64_t b = first_index() / kWarp;
  if (b >= e.map.block_count) return;
  const Block block = e.map.blocks[b];
  uint8_t* end = nullptr;
  if (e.coded != nullptr) {
    const Stream stream = stream_of(e.map, *e.tables, e.coded, b);
    if (stream.whole) return;
    end = e.coded + stream.end;
  }
  SegmentWalk<true> walk(e.map.places, block);
  WarpEncoder encoder(end);
  int64_t raw = 0;
  for (Segment segment; walk.next(segment);) {
    const Kind kind = e.tables->of[segment.table].kind;
    if (kind == Kind::raw) raw += segment.size;
    if (kind == Kind::coded)
      put_segment(encoder, e.plain + segment.offset, segment.size, entries + segment.table * 256);
  }
  encoder.finish();
  if (e.lengths != nullptr && lane_of_warp() == 0)
    e.lengths[b] = std::min(raw + encoder.bytes(), block.bytes);
}

struct Decoding {
  MapView map;
  const uint8_t* coded;
  const Tables* tables;
  const uint32_t* decode;  // [count][kScale]
  int count;
  bool shared;
  uint8_t* plain;
};

__global__ void __launch_bounds__(kCoderThreads) decode_blocks_kernel(Decoding d) {
  const uint32_t* decode = nearby(d.decode, int64_t{d.count} * rans::kScale, d.shared);
  const int64_t b = first_index() / kWarp;
  if (b >= d.map.block_count) return;
  const Block block = d.map.blocks[b];
  const Stream stream = stream_of(d.map, *d.tables, d.coded, b);
  if (stream.whole) return;
  const uint8_t* from = d.coded + stream.begin;
  Segment segment;
  for (SegmentWalk<false> walk(d.map.places, block); walk.next(segment);)
    if (d.tables->of[segment.table].kind == Kind::raw) from += segment.size;
  WarpDecoder decoder(from, d.coded + stream.end);
  for (SegmentWalk<false> walk(d.map.places, block); walk.next(segment);) {
    if (d.tables->of[segment.table].kind != Kind::coded) continue;
    const uint32_t* table = decode + segment.table * rans::kScale;
    uint8_t* const to = d.plain + segment.offset;
    int64_t i = lane_of_warp();
    for (int64_t step = segment.size / kWarp; step > 0; --step, i += kWarp)
      to[i] = decoder.get(true, table);
    if (segment.size % kWarp == 0) continue;
    const bool active = i < segment.size;
    const uint8_t byte = decoder.get(active, table);
    if (active) to[i] = byte;
  }
}

// ---- Tables of a coded payload, as entropy_plan.h has them

__device__ int64_t table_bytes(const uint8_t* table) {
  const auto kind = static_cast<Kind>(table[0]);
  if (kind != Kind::coded) return kind == Kind::raw ? 1 : 2;
  int count = 0;
  for (int i = 1; i <= 32; ++i) count += __popc(uint32_t{table[i]});
  return 33 + 2 * count;
}

// rans::DecodeTable of table blockIdx.x, with a thread for each byte.
__global__ void read_tables_kernel(const uint8_t* coded, int64_t at, Tables* tables,
                                   uint32_t* decode) {
  __shared__ uint32_t last[256];  // last[b] is the slot behind those of byte b
  for (unsigned t = 0; t < blockIdx.x; ++t) at += table_bytes(coded + at);
  const uint8_t* const table = coded + at;
  const auto kind = static_cast<Kind>(table[0]);
  const auto byte = threadIdx.x;
  if (byte == 0) {
    tables->of[blockIdx.x] = {kind, kind == Kind::constant ? table[1] : uint8_t{0}};
    if (blockIdx.x + 1 == gridDim.x) tables->streams = at + table_bytes(table);
  }
  if (kind != Kind::coded) return;
  uint32_t before = 0;  // bytes that there are, below this one
  for (unsigned i = 0; i <= byte / 8; ++i) {
    const uint32_t there = table[1 + i];
    before += __popc(i < byte / 8 ? there : there & ((1u << byte % 8) - 1));
  }
  const bool there = (table[1 + byte / 8] >> byte % 8 & 1u) != 0;
  uint32_t sum = there ? load_u16(table + 33 + 2 * before) : 0;
  for (unsigned step = 1; step < 256; step *= 2) {
    last[byte] = sum;
    __syncthreads();
    if (byte >= step) sum += last[byte - step];
    __syncthreads();
  }
  last[byte] = sum;
  __syncthreads();
  uint32_t* const to = decode + int64_t{blockIdx.x} * rans::kScale;
  for (uint32_t slot = byte; slot < rans::kScale; slot += 256) {
    uint32_t of = 0;  // the first byte that ends behind the slot
    for (uint32_t step = 128; step > 0; step /= 2)
      if (last[of + step - 1] <= slot) of += step;
    const uint32_t first = of == 0 ? 0 : last[of - 1];
    to[slot] = of | (last[of] - first) << 8 | (slot - first) << 20;
  }
}

dim3 coder_blocks(const CodeMap& map) {
  constexpr int kWarps = kCoderThreads / kWarp;
  return as_blocks((map.block_count() + kWarps - 1) / kWarps);
}

}  // namespace

Tensor encode_kernel(Cuda, const Tensor& plain, const CodeMap& map, double min_saving,
                     bool foresees) {
  check_not_capturing("entropy");
  const Device device = plain.device();
  use(device);
  const CategoryScope scope(Category::workspace);
  const DeviceMap there(map, device);
  const Sample sample = sample_of(map);
  const Trial trial = try_codes(map, there, sample, plain, min_saving);
  const Tensor lengths = Tensor::empty({map.block_count()}, DType::i64, device);
  const bool shared = trial.entries.nbytes() <= kSharedTables;
  const Grid grid{coder_blocks(map), kCoderThreads,
                  shared ? static_cast<size_t>(trial.entries.nbytes()) : 0};
  Encoding encoding{there.view(),
                    plain.data<uint8_t>(),
                    as<Tables>(trial.tables),
                    as<EncodeEntry>(trial.entries),
                    static_cast<int>(map.tables()),
                    shared,
                    lengths.mut<int64_t>(),
                    nullptr,
                    trial.pays.data<int64_t>()};
  if (foresees) launch(encode_blocks_kernel, grid, encoding);
  std::vector<Tensor> here =
      frugal::host_copies({trial.histograms, trial.plans, trial.pays, lengths});

  std::vector<rans::Histogram> counted(2 * map.tables());
  std::memcpy(counted.data(), here[0].raw(), static_cast<size_t>(here[0].nbytes()));
  const auto all = counted.begin() + static_cast<std::ptrdiff_t>(map.tables());
  if (saving(sample, {counted.begin(), all}) < min_saving) return {};
  const std::vector<Plan> plans = plans_of(map, {all, counted.end()}, plain.nbytes(), min_saving);
  if (plans.empty()) return {};
  Tables heads;
  heads.streams = streams_at(map, plans);
  std::vector<EncodeEntry> entries(plans.size() * 256);
  for (size_t t = 0; t < plans.size(); ++t) {
    heads.of[t] = {plans[t].kind, plans[t].byte};
    if (plans[t].kind != Kind::coded) continue;
    const rans::EncodeTable table(plans[t].frequencies);
    std::transform(table.of.begin(), table.of.end(), entries.data() + t * 256, pack_entry);
  }
  const Tensor tables = upload(&heads, 1, device), packed_entries = upload(entries, device);
  encoding.tables = as<Tables>(tables);
  encoding.entries = as<EncodeEntry>(packed_entries);
  encoding.pays = nullptr;
  const bool foreseen =
      foresees && *here[2].data<int64_t>() != 0 &&
      std::equal(plans.begin(), plans.end(), as<TriedPlan>(here[1]),
                 [](const Plan& plan, const TriedPlan& tried) { return tried.is(plan); });
  if (!foreseen) {
    launch(encode_blocks_kernel, grid, encoding);
    here[3] = frugal::host_copies({lengths}).front();
  }
  std::vector<int64_t> ends(here[3].data<int64_t>(), here[3].data<int64_t>() + map.block_count());

  int64_t size = heads.streams;
  for (int64_t& end : ends) end = size += end;
  std::vector<uint8_t> head(static_cast<size_t>(heads.streams - map.metadata_bytes()));
  std::memcpy(head.data(), ends.data(), ends.size() * 8);
  uint8_t* table = head.data() + ends.size() * 8;
  for (const Plan& plan : plans) table = write_table(plan, table);
  const CategoryScope result(Category::packed);
  const Tensor coded = Tensor::empty({size}, DType::u8, device);
  auto* const to = coded.mut<uint8_t>();
  const Tensor head_there = upload(head, device);
  frugal::copy_bytes(to + map.metadata_bytes(), device, head_there.raw(), device,
                     head_there.nbytes());
  for_each(map.metadata_bytes() / 4, MoveMetadata<false>{there.view(), plain.mut<uint8_t>(), to});
  launch(move_planes_kernel<false>, {blocks_across(map.block_count(), 32), kBlockThreads},
         there.view(), as<Tables>(tables), plain.mut<uint8_t>(), to);
  encoding.lengths = nullptr;
  encoding.coded = to;
  launch(encode_blocks_kernel, grid, encoding);
  return coded;
}

void decode_kernel(Cuda, const Tensor& coded, const CodeMap& map, const Tensor& plain) {
  check_not_capturing("entropy");
  const Device device = coded.device();
  use(device);
  const CategoryScope scope(Category::workspace);
  const DeviceMap there(map, device);
  const auto count = static_cast<int64_t>(map.tables());
  const Tensor tables = Tensor::empty({sizeof(Tables)}, DType::u8, device);
  const Tensor decode = Tensor::empty({count, rans::kScale}, DType::i32, device);
  const bool shared = decode.nbytes() <= kSharedTables;
  auto* const from = coded.mut<uint8_t>();  // the kernels only read it
  auto* const to = plain.mut<uint8_t>();
  launch(read_tables_kernel, {as_blocks(count), kBlockThreads}, from,
         map.metadata_bytes() + map.block_count() * 8, as<Tables>(tables), as<uint32_t>(decode));
  for_each(map.metadata_bytes() / 4, MoveMetadata<true>{there.view(), to, from});
  launch(move_planes_kernel<true>, {blocks_across(map.block_count(), 32), kBlockThreads},
         there.view(), as<Tables>(tables), to, from);
  launch(decode_blocks_kernel,
         {coder_blocks(map), kCoderThreads, shared ? static_cast<size_t>(decode.nbytes()) : 0},
         Decoding{there.view(), from, as<Tables>(tables), as<uint32_t>(decode),
                  static_cast<int>(count), shared, to});
}

}  // namespace frugal::compress::entropy
