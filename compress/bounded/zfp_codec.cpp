#include "compress/bounded/zfp_codec.h"

#ifdef FRUGAL_ZFP
#include <zfp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/parallel.h"
#endif

namespace frugal::compress {

#ifndef FRUGAL_ZFP

bool has_zfp() { return false; }
std::unique_ptr<ErrorBounded> make_zfp(const ErrorBoundedOptions&) {
  throw Error(
      "[zfp] expected a build with libzfp, got one without; install it and configure again");
}

#else

namespace {

using bounded::Payload;

// zfp stores a block with one common exponent. The least error, relative to the block's largest
// value:
constexpr double kLeastTolerance = 0x1p-22;
// zfp scales blocks by powers of two. For values much smaller than this, f32 has no such power.
constexpr double kLeastBound = 0x1p-90;

enum Mode : uint8_t { kCoded, kPlain, kZero };

// Chunk k holds items [k step, (k + 1) step) of the leading axis, each of height x width pixels
// (height 1 where there are none) of `channels`.
struct Grid {
  explicit Grid(const Shape& shape) {
    const int64_t numel = shape.numel();
    channels = shape.dim() == 0 ? 1 : std::max<int64_t>(shape.back(), 1);
    if (shape.dim() == 4) {
      items = shape[0], height = shape[1], width = shape[2];
    } else {
      items = numel / channels;
    }
    constexpr int64_t kChunk = 4096;  // elements of a channel at least
    step = std::max<int64_t>((kChunk + pixels() - 1) / std::max<int64_t>(pixels(), 1), 1);
    chunks = numel == 0 ? 0 : (items + step - 1) / step;
  }
  int64_t pixels() const { return height * width; }
  int64_t streams() const { return chunks * channels; }
  int64_t first(int64_t chunk) const { return chunk * step * pixels() * channels; }
  int64_t values(int64_t chunk) const { return std::min(step, items - chunk * step) * pixels(); }
  int64_t items = 1, height = 1, width = 1, channels = 1, step = 1, chunks = 0;
};

// zfp's objects for one channel of a chunk.
class Stream {
 public:
  Stream(const Grid& grid, int64_t chunk, float* values, void* buffer, size_t bytes)
      : bits_(stream_open(buffer, bytes)), zfp_(zfp_stream_open(bits_)) {
    const auto n = static_cast<size_t>(grid.values(chunk));
    const auto c = static_cast<std::ptrdiff_t>(grid.channels);
    if (grid.height > 1) {
      const auto nx = static_cast<size_t>(grid.width);
      field_ = zfp_field_2d(values, zfp_type_float, nx, n / nx);
      zfp_field_set_stride_2d(field_, c, c * static_cast<std::ptrdiff_t>(nx));
    } else {
      field_ = zfp_field_1d(values, zfp_type_float, n);
      zfp_field_set_stride_1d(field_, c);
    }
  }
  ~Stream() {
    zfp_field_free(field_);
    zfp_stream_close(zfp_);
    stream_close(bits_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void set_tolerance(double tolerance) { zfp_stream_set_accuracy(zfp_, tolerance); }
  size_t bound() const { return zfp_stream_maximum_size(zfp_, field_); }
  size_t compress() {
    zfp_stream_rewind(zfp_);
    return zfp_compress(zfp_, field_);
  }
  void decompress() {
    zfp_stream_rewind(zfp_);
    const size_t read = zfp_decompress(zfp_, field_);
    FRUGAL_ASSERT(read > 0);
  }

 private:
  bitstream* bits_;
  zfp_stream* zfp_;
  zfp_field* field_ = nullptr;
};

// The mode of the stream holds the tolerance, so decoding needs no other source for it.
constexpr int64_t kToleranceBytes = 8;

class PackedZfp final : public Payload {
 public:
  using Payload::Payload;

 private:
  void decode(int64_t begin, int64_t end, float* out) const override {
    const Grid grid(shape());
    const uint8_t* const modes = bytes() + 8 * grid.streams();
    const int64_t start = 9 * grid.streams();
    const int64_t size = grid.step * grid.pixels() * grid.channels;
    parallel_for(begin / size, (end + size - 1) / size, 1, [&](int64_t low, int64_t high) {
      std::vector<float> values(static_cast<size_t>(size));
      std::vector<uint64_t> buffer;  // zfp reads words
      for (int64_t chunk = low; chunk < high; ++chunk) {
        for (int64_t c = 0; c < grid.channels; ++c) {
          const int64_t index = chunk * grid.channels + c, n = grid.values(chunk);
          int64_t from = start, until = 0;
          if (index > 0) std::memcpy(&from, bytes() + 8 * (index - 1), 8);
          std::memcpy(&until, bytes() + 8 * index, 8);
          float* const to = values.data() + c;
          if (modes[index] == kCoded) {
            double tolerance = 0;
            std::memcpy(&tolerance, bytes() + from, 8);
            const auto coded = static_cast<size_t>(until - from - kToleranceBytes);
            buffer.assign(coded / 8 + 2, 0);
            std::memcpy(buffer.data(), bytes() + from + kToleranceBytes, coded);
            Stream stream(grid, chunk, to, buffer.data(), buffer.size() * 8);
            stream.set_tolerance(tolerance);
            stream.decompress();
          } else if (modes[index] == kPlain) {
            for (int64_t i = 0; i < n; ++i)
              std::memcpy(to + i * grid.channels, bytes() + from + 4 * i, 4);
          } else {
            for (int64_t i = 0; i < n; ++i) to[i * grid.channels] = 0;
          }
        }
        const int64_t first = std::max(begin, chunk * size),
                      last = std::min(end, (chunk + 1) * size);
        std::memcpy(out + (first - begin), values.data() + (first - chunk * size),
                    static_cast<size_t>(last - first) * 4);
      }
    });
  }
};

class Zfp final : public ErrorBounded {
 public:
  explicit Zfp(const ErrorBoundedOptions& options)
      : options_(options), min_bits_(options.min_bits) {}
  std::unique_ptr<bounded::Payload> pack(const Tensor& tensor, const ErrorBound& bound,
                                         const SaveInfo&) const override {
    const Tensor x = bounded::on_host(bounded::checked("zfp", tensor, bound));
    const Grid grid(tensor.shape());
    const int64_t start = 9 * grid.streams();
    if (x.device() == kMeta)
      return std::make_unique<PackedZfp>(bounded::meta_payload(start, x.numel(), options_),
                                         tensor.shape(), tensor.dtype());
    std::vector<Tensor> streams(static_cast<size_t>(grid.streams()));
    std::vector<uint8_t> modes(streams.size());
    parallel_for(0, grid.streams(), 1, [&](int64_t begin, int64_t end) {
      const CategoryScope scope(Category::workspace);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = i % grid.channels, chunk = i / grid.channels;
        const float* values = x.data<float>() + grid.first(chunk) + c;
        const auto at = static_cast<size_t>(i);
        streams[at] = coded(grid, chunk, values, bound.at(c), modes[at]);
      }
    });
    int64_t size = start;
    for (const Tensor& each : streams) size += each.numel();
    const Tensor payload = bounded::packed_bytes(size, kCpu);
    auto* const to = payload.mut<uint8_t>();
    int64_t at = start;
    for (size_t i = 0; i < streams.size(); ++i) {
      const auto bytes = static_cast<size_t>(streams[i].numel());
      if (bytes > 0) std::memcpy(to + at, streams[i].data<uint8_t>(), bytes);
      at += streams[i].numel();
      std::memcpy(to + 8 * i, &at, 8);
    }
    if (!modes.empty()) std::memcpy(to + 8 * grid.streams(), modes.data(), modes.size());
    return std::make_unique<PackedZfp>(bounded::placed(payload, tensor.device()), tensor.shape(),
                                       tensor.dtype());
  }

 private:
  Tensor coded(const Grid& grid, int64_t chunk, const float* values, double bound,
               uint8_t& mode) const {
    const int64_t n = grid.values(chunk);
    float most = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; ++i) {
      const float value = values[i * grid.channels];
      finite = finite && std::isfinite(value);
      most = std::max(most, std::fabs(value));
    }
    const auto largest = static_cast<double>(most);
    if (min_bits_ > 0) bound = std::min(bound, std::ldexp(largest, -min_bits_));
    if (finite && largest <= bound) {
      mode = kZero;
      return Tensor::empty({0}, DType::u8);
    }
    if (!finite || bound < largest * kLeastTolerance || bound < kLeastBound) {
      mode = kPlain;
      const Tensor plain = Tensor::empty({4 * n}, DType::u8);
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(plain.mut<uint8_t>() + 4 * i, values + i * grid.channels, 4);
      return plain;
    }
    mode = kCoded;
    std::vector<uint64_t> buffer;
    {
      // NOLINTNEXTLINE: zfp does not write to what it compresses
      Stream sizing(grid, chunk, const_cast<float*>(values), nullptr, 0);
      sizing.set_tolerance(bound);
      buffer.resize(sizing.bound() / 8 + 2);
    }
    Stream stream(grid, chunk, const_cast<float*>(values), buffer.data(),  // NOLINT: as above
                  buffer.size() * 8);
    stream.set_tolerance(bound);
    const size_t bytes = stream.compress();
    FRUGAL_ASSERT(bytes > 0);
    const Tensor all = Tensor::empty({kToleranceBytes + static_cast<int64_t>(bytes)}, DType::u8);
    std::memcpy(all.mut<uint8_t>(), &bound, 8);
    std::memcpy(all.mut<uint8_t>() + kToleranceBytes, buffer.data(), bytes);
    return all;
  }

  ErrorBoundedOptions options_;
  int min_bits_;
};

}  // namespace

bool has_zfp() { return true; }
std::unique_ptr<ErrorBounded> make_zfp(const ErrorBoundedOptions& options) {
  return std::make_unique<Zfp>(options);
}

#endif

}  // namespace frugal::compress
