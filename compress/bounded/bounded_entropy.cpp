#include "compress/bounded/bounded_entropy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>

#include "compress/entropy/entropy_plan.h"
#include "compress/entropy/rans.h"
#include "compress/quantize/quantize_reference.h"
#include "core/parallel.h"

namespace frugal::compress {

using namespace bounded;
using entropy::Kind;
using entropy::Plan;

namespace {

constexpr int kMaxWidth = 16;

// In the result `lo` is the least q. If the width is 0, `lo` is the value itself.
Code step_code(const Range& range, double bound, const ErrorBoundedOptions& options) {
  const bool nearest = options.rounding == Rounding::nearest;
  const Steps steps = steps_of(range, bound, options, [nearest](double allowed, double most) {
    // f32 rounds twice: x / step, by up to 2^-6 where there are 2^16 steps, and the result.
    return (allowed - most * 0x1p-22) / ((nearest ? 0.5 : 1.0) + 0x1p-6);
  });
  if (steps.kind == Steps::kept) return {0, 0, kRaw};
  if (steps.kind == Steps::constant) return {steps.step, 0, 0};
  const double min = range.min, max = range.max, s = static_cast<double>(steps.step);
  const double half = nearest ? 0.5 : 0, least = std::floor(min / s + half);
  // One level more, because stochastic rounding, or the rounding of f32, may go up.
  const double levels = std::floor(max / s + half) - least + 1;
  const int width = 1 + std::ilogb(levels);
  if (width > kMaxWidth) return {0, 0, kRaw};
  return {static_cast<float>(least), steps.step, width};
}

// Where the symbols of a chunk lie: each run of columns of one width has planes of bytes.
struct Layout {
  struct Plane {
    const Lanes::Run* run;
    int shift;
    // Where it begins in the symbols of a chunk, divided by the blocks of the chunk.
    int64_t offset;
  };
  Layout(const View& of, const Lanes& lanes) : view(of) {
    constexpr int64_t kChunk = 131072;  // elements, about
    per_chunk = std::max<int64_t>(kChunk / view.block(), 1);
    for (const Lanes::Run& run : lanes.runs) {
      if (run.width == kRaw) raw = &run;
      for (int shift = 0; run.width < kRaw && shift < run.width; shift += 8) {
        planes.push_back({&run, shift, block_bytes});
        block_bytes += 8 * (run.end - run.begin);
      }
    }
  }
  int64_t chunks() const { return (view.blocks() + per_chunk - 1) / per_chunk; }
  int64_t blocks_in(int64_t chunk) const {
    return std::min(per_chunk, view.blocks() - chunk * per_chunk);
  }
  int64_t plane_bytes(const Plane& plane, int64_t blocks) const {
    return 8 * (plane.run->end - plane.run->begin) * blocks;
  }
  int64_t raw_bytes(int64_t blocks) const {
    return raw == nullptr ? 0 : 32 * (raw->end - raw->begin) * blocks;
  }
  View view;
  std::vector<Plane> planes;
  const Lanes::Run* raw = nullptr;
  int64_t per_chunk = 1, block_bytes = 0;  // blocks; bytes of symbols of a block
};

// Writes the symbols of one chunk to `to`, and the columns that are kept raw to `raw`.
void symbols_of(const float* x, const Lanes& lanes, const Layout& layout, int64_t chunk,
                const CodeStream* stream, uint8_t* to, uint8_t* raw) {
  const View& view = layout.view;
  const int64_t cols = view.cols(), blocks = layout.blocks_in(chunk);
  std::vector<float> staged(static_cast<size_t>(8 * cols)), dither(staged.size(), 0.5f);
  std::vector<uint32_t> codes(staged.size());
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t block = chunk * layout.per_chunk + i;
    stage(x, view, lanes, block, true, staged.data());
    if (stream != nullptr) fill_dither(*stream, lanes, block, dither.data());
    for (int64_t r = 0; r < 8; ++r) {
      const float *from = &staged[static_cast<size_t>(r * cols)],
                  *u = &dither[static_cast<size_t>(r * cols)];
      uint32_t* out = &codes[static_cast<size_t>(r * cols)];
      const float *lo = lanes.lo.data(), *inverse = lanes.inverse.data(), *top = lanes.top.data();
      for (int64_t j = 0; j < cols; ++j) {
        float t = from[j] * inverse[j] - lo[j] + u[j];
        t = t > 0 ? t : 0;
        t = t < top[j] ? t : top[j];
        out[j] = static_cast<uint32_t>(static_cast<int32_t>(t));
      }
    }
    for (const Layout::Plane& plane : layout.planes) {
      const int64_t n = plane.run->end - plane.run->begin;
      uint8_t* out = to + plane.offset * blocks + 8 * n * i;
      for (int64_t r = 0; r < 8; ++r, out += n) {
        const uint32_t* from = &codes[static_cast<size_t>(r * cols + plane.run->begin)];
        for (int64_t j = 0; j < n; ++j) out[j] = static_cast<uint8_t>(from[j] >> plane.shift);
      }
    }
    if (layout.raw == nullptr) continue;
    const auto n = static_cast<size_t>(4 * (layout.raw->end - layout.raw->begin));
    for (int64_t r = 0; r < 8; ++r, raw += n)
      std::memcpy(raw, &staged[static_cast<size_t>(r * cols + layout.raw->begin)], n);
  }
}

class PackedSteps final : public Payload {
 public:
  PackedSteps(Tensor payload, const Shape& shape, DType dtype, const View& view)
      : Payload(std::move(payload), shape, dtype), view_(view) {}

 private:
  void decode(int64_t begin, int64_t end, float* out) const override;
  View view_;
};

void PackedSteps::decode(int64_t begin, int64_t end, float* out) const {
  const std::vector<Code> codes = read_codes(bytes(), view_.channels);
  const Lanes lanes = make_lanes(view_, codes);
  const Layout layout(view_, lanes);
  const uint8_t* const ends = bytes() + view_.channels * kCodeBytes;
  const uint8_t* at = ends + 8 * layout.chunks();
  std::vector<Plan> plans(layout.planes.size());
  std::vector<std::optional<rans::DecodeTable>> tables(plans.size());
  for (size_t p = 0; p < plans.size(); ++p) {
    at = entropy::read_table(at, plans[p]);
    if (plans[p].kind == Kind::coded) tables[p].emplace(plans[p].frequencies);
  }
  const int64_t start = at - bytes(), chunk_size = layout.per_chunk * view_.block();
  const int64_t cols = view_.cols();
  parallel_for(
      begin / chunk_size, (end + chunk_size - 1) / chunk_size, 1, [&](int64_t first, int64_t last) {
        std::vector<float> staged(static_cast<size_t>(8 * cols)), rows(staged.size());
        std::vector<uint32_t> values(staged.size());
        std::vector<uint8_t> symbols(static_cast<size_t>(layout.per_chunk * layout.block_bytes));
        for (int64_t chunk = first; chunk < last; ++chunk) {
          int64_t from = start;
          if (chunk > 0) std::memcpy(&from, ends + 8 * (chunk - 1), 8);
          const int64_t blocks = layout.blocks_in(chunk);
          const uint8_t* raw = bytes() + from;
          const uint8_t* kept = raw;  // columns kept as they are come first
          raw += layout.raw_bytes(blocks);
          const uint8_t* stream = raw;
          for (size_t p = 0; p < plans.size(); ++p)
            if (plans[p].kind == Kind::raw) stream += layout.plane_bytes(layout.planes[p], blocks);
          int64_t stream_end;
          std::memcpy(&stream_end, ends + 8 * chunk, 8);
          rans::Decoder decoder(stream, bytes() + stream_end);
          for (size_t p = 0; p < plans.size(); ++p) {
            uint8_t* to = symbols.data() + layout.planes[p].offset * blocks;
            const auto size = static_cast<size_t>(layout.plane_bytes(layout.planes[p], blocks));
            if (plans[p].kind == Kind::coded) {
              decoder.get(to, size, *tables[p]);
            } else if (plans[p].kind == Kind::constant) {
              std::memset(to, plans[p].byte, size);
            } else {
              std::memcpy(to, raw, size);
              raw += size;
            }
          }
          for (int64_t i = 0; i < blocks; ++i) {
            const int64_t block = chunk * layout.per_chunk + i;
            const int64_t low = std::max(begin, block * view_.block());
            const int64_t high = std::min(end, (block + 1) * view_.block());
            std::fill(values.begin(), values.end(), 0u);
            for (const Layout::Plane& plane : layout.planes) {
              const int64_t n = plane.run->end - plane.run->begin;
              const uint8_t* in = symbols.data() + plane.offset * blocks + 8 * n * i;
              for (int64_t r = 0; r < 8; ++r, in += n) {
                uint32_t* to = &values[static_cast<size_t>(r * cols + plane.run->begin)];
                for (int64_t j = 0; j < n; ++j) to[j] |= uint32_t{in[j]} << plane.shift;
              }
            }
            for (int64_t r = 0; r < 8; ++r)
              for (const Lanes::Run& run : lanes.runs)
                for (auto j = static_cast<size_t>(run.begin); j < static_cast<size_t>(run.end);
                     ++j) {
                  const size_t place = static_cast<size_t>(r * cols) + j;
                  const auto code = static_cast<float>(static_cast<int32_t>(values[place]));
                  staged[place] =
                      run.width == 0 ? lanes.lo[j] : (lanes.lo[j] + code) * lanes.step[j];
                }
            if (layout.raw != nullptr) {
              const auto n = static_cast<size_t>(4 * (layout.raw->end - layout.raw->begin));
              for (int64_t r = 0; r < 8; ++r, kept += n)
                std::memcpy(&staged[static_cast<size_t>(r * cols + layout.raw->begin)], kept, n);
            }
            if (low >= high) continue;
            unstage(staged.data(), lanes, cols, rows.data());
            std::memcpy(out + (low - begin), rows.data() + (low - block * view_.block()),
                        static_cast<size_t>(high - low) * 4);
          }
        }
      });
}

}  // namespace

std::unique_ptr<bounded::Payload> BoundedEntropy::pack(const Tensor& tensor,
                                                       const ErrorBound& bound,
                                                       const SaveInfo& info) const {
  const Tensor x = on_host(checked("bounded_entropy", tensor, bound));
  const View view = make_view(tensor.shape());
  const int64_t head = view.channels * kCodeBytes;
  if (x.device() == kMeta)
    return std::make_unique<PackedSteps>(meta_payload(head, view.numel, options_), tensor.shape(),
                                         tensor.dtype(), view);
  const auto* values = x.data<float>();
  std::vector<Code> codes;
  const std::vector<Range> ranges = ranges_of(values, view, false);
  for (int64_t c = 0; c < view.channels; ++c) {
    const Range& range = ranges[static_cast<size_t>(c)];
    codes.push_back(range.values == 0 ? Code{} : step_code(range, bound.at(c), options_));
  }
  const Lanes lanes = make_lanes(view, codes);
  const Layout layout(view, lanes);
  const int64_t chunks = layout.chunks(), stride = layout.per_chunk * layout.block_bytes;
  const int64_t raw_stride = layout.raw_bytes(layout.per_chunk);
  CategoryScope scope(Category::workspace);
  const Tensor symbols = Tensor::empty({chunks * stride}, DType::u8);
  const Tensor kept = Tensor::empty({chunks * raw_stride}, DType::u8);
  auto* const symbol = symbols.mut<uint8_t>();
  const CodeStream stream = code_stream(options_.seed, info);
  const bool stochastic = options_.rounding == Rounding::stochastic;

  std::vector<rans::Histogram> histograms(layout.planes.size());
  std::mutex mutex;
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    std::vector<rans::Counter> mine(histograms.size());
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      uint8_t* const to = symbol + chunk * stride;
      symbols_of(values, lanes, layout, chunk, stochastic ? &stream : nullptr, to,
                 kept.mut<uint8_t>() + chunk * raw_stride);
      const int64_t blocks = layout.blocks_in(chunk);
      for (size_t p = 0; p < mine.size(); ++p)
        mine[p].add(to + layout.planes[p].offset * blocks,
                    static_cast<size_t>(layout.plane_bytes(layout.planes[p], blocks)));
    }
    const std::lock_guard lock(mutex);  // sums of whole numbers: any order
    for (size_t p = 0; p < mine.size(); ++p) mine[p].add_to(histograms[p]);
  });

  std::vector<Plan> plans;
  std::vector<std::optional<rans::EncodeTable>> tables(histograms.size());
  int64_t size = head + 8 * chunks;
  for (size_t p = 0; p < histograms.size(); ++p) {
    plans.push_back(entropy::plan_of(histograms[p]));
    if (plans[p].kind == Kind::coded) tables[p].emplace(plans[p].frequencies);
    size += plans[p].table_bytes();
  }
  // The coded bytes of each chunk.
  std::vector<Tensor> streams(static_cast<size_t>(chunks));
  const auto room = static_cast<int64_t>(rans::stream_bound(static_cast<size_t>(stride)));
  const Tensor rooms = Tensor::empty({parallel_ranges(chunks, 1), room}, DType::u8);
  auto* const scratch = rooms.mut<uint8_t>();
  std::atomic<int64_t> next = 0;
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    const CategoryScope inner(Category::workspace);
    uint8_t* const until = scratch + ++next * room;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t blocks = layout.blocks_in(chunk);
      const uint8_t* const from = symbol + chunk * stride;
      rans::Encoder encoder(until);
      int64_t plain = layout.raw_bytes(blocks);
      for (size_t p = plans.size(); p-- > 0;) {
        const int64_t bytes = layout.plane_bytes(layout.planes[p], blocks);
        if (plans[p].kind == Kind::coded)
          encoder.put(from + layout.planes[p].offset * blocks, static_cast<size_t>(bytes),
                      *tables[p]);
        if (plans[p].kind == Kind::raw) plain += bytes;
      }
      const uint8_t* const coded = encoder.finish();
      const Tensor all = Tensor::empty({plain + (until - coded)}, DType::u8);
      auto* to = all.mut<uint8_t>();
      if (layout.raw != nullptr)
        std::memcpy(to, kept.data<uint8_t>() + chunk * raw_stride,
                    static_cast<size_t>(layout.raw_bytes(blocks)));
      to += layout.raw_bytes(blocks);
      for (size_t p = 0; p < plans.size(); ++p) {
        if (plans[p].kind != Kind::raw) continue;
        const auto bytes = static_cast<size_t>(layout.plane_bytes(layout.planes[p], blocks));
        std::memcpy(to, from + layout.planes[p].offset * blocks, bytes);
        to += bytes;
      }
      std::memcpy(to, coded, static_cast<size_t>(until - coded));
      streams[static_cast<size_t>(chunk)] = all;
    }
  });
  int64_t total = size;
  for (const Tensor& each : streams) total += each.numel();
  const Tensor payload = packed_bytes(total, kCpu);
  auto* const to = payload.mut<uint8_t>();
  write_codes(codes, to);
  uint8_t* table = to + head + 8 * chunks;
  for (const Plan& plan : plans) table = entropy::write_table(plan, table);
  int64_t at = size;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Tensor& each = streams[static_cast<size_t>(chunk)];
    std::memcpy(to + at, each.data<uint8_t>(), static_cast<size_t>(each.numel()));
    at += each.numel();
    std::memcpy(to + head + 8 * chunk, &at, 8);
  }
  return std::make_unique<PackedSteps>(placed(payload, tensor.device()), tensor.shape(),
                                       tensor.dtype(), view);
}

}  // namespace frugal::compress
