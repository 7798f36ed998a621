#include "compress/bounded_fixed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/quantize_reference.h"
#include "core/parallel.h"

namespace frugal::compress {

using namespace bounded;

namespace {

constexpr int64_t kGrain = 8;  // blocks for a thread at least
constexpr int kMaxFraction = 15;

Code published_code(const Range& range, double bound) {
  if (!range.finite) return {0, 0, kRaw};
  const float m = std::max(std::fabs(range.min), std::fabs(range.max));
  if (m == 0) return {0, 0, 0};
  const int width = published_width(static_cast<double>(m), bound);
  const float step = std::ldexp(m, 1 - width);
  if (!(m < 0x1p125f) || step < 0x1p-126f) return {0, 0, kRaw};
  return {-m, step, width};
}

// Everything a block needs, reused from block to block.
struct Scratch {
  explicit Scratch(int64_t cols)
      : staged(static_cast<size_t>(8 * cols)),
        dither(staged.size(), 0.5f),
        codes(staged.size() + 8),
        dense(staged.size() + 8) {}
  std::vector<float> staged, dither;
  std::vector<uint32_t> codes, dense;
};

void quantize(const float* staged, const float* dither, const Lanes& lanes, uint32_t* codes) {
  const size_t cols = lanes.column.size();
  const float *lo = lanes.lo.data(), *inverse = lanes.inverse.data(), *top = lanes.top.data();
  for (size_t r = 0; r < 8; ++r, staged += cols, dither += cols, codes += cols)
    for (size_t j = 0; j < cols; ++j) {
      float t = (staged[j] - lo[j]) * inverse[j] + dither[j];
      t = t > 0 ? t : 0;
      t = t < top[j] ? t : top[j];
      codes[j] = static_cast<uint32_t>(static_cast<int32_t>(t));
    }
}

class Packer {
 public:
  Packer(const float* x, const View& view, const Lanes& lanes, const CodeStream* stream)
      : x_(x), view_(view), lanes_(lanes), stream_(stream) {}

  void dense(int64_t block, Scratch& s, uint8_t* to) const {
    prepare(block, false, s);
    const int64_t cols = view_.cols();
    for (const Lanes::Run& run : lanes_.runs) {
      const int64_t n = run.end - run.begin;
      if (run.width == kRaw) {
        for (int64_t r = 0; r < 8; ++r, to += 4 * n)
          std::memcpy(to, &s.staged[static_cast<size_t>(r * cols + run.begin)],
                      static_cast<size_t>(4 * n));
      } else {
        pack_planes(s.codes.data() + run.begin, cols, n, run.width, to);
        to += run.width * n;
      }
    }
  }

  int64_t masked_bytes(int64_t block, Scratch& s) const {
    stage(x_, view_, lanes_, block, true, s.staged.data());
    const int64_t cols = view_.cols();
    int64_t bytes = cols;
    for (const Lanes::Run& run : lanes_.runs) {
      int32_t count = 0;
      for (int64_t r = 0; r < 8; ++r)
        for (int64_t j = run.begin; j < run.end; ++j)
          count += s.staged[static_cast<size_t>(r * cols + j)] != 0;
      bytes += run.width == kRaw ? 4 * int64_t{count} : run.width * ((int64_t{count} + 7) / 8);
    }
    return bytes;
  }

  void masked(int64_t block, Scratch& s, uint8_t* to) const {
    prepare(block, true, s);
    const auto cols = static_cast<size_t>(view_.cols());
    const float* staged = s.staged.data();
    for (size_t j = 0; j < cols; ++j) {
      uint32_t byte = 0;
      for (size_t r = 0; r < 8; ++r) byte |= uint32_t{staged[r * cols + j] != 0} << r;
      to[j] = static_cast<uint8_t>(byte);
    }
    to += cols;
    for (const Lanes::Run& run : lanes_.runs) {
      if (run.width == kRaw) std::memcpy(s.codes.data(), staged, 8 * cols * 4);  // it comes last
      size_t n = 0;
      for (auto j = static_cast<size_t>(run.begin); j < static_cast<size_t>(run.end); ++j)
        for (size_t r = 0; r < 8; ++r) {
          s.dense[n] = s.codes[r * cols + j];
          n += staged[r * cols + j] != 0;
        }
      if (run.width == kRaw) {
        std::memcpy(to, s.dense.data(), 4 * n);
        return;
      }
      const size_t k = (n + 7) / 8;
      std::fill(s.dense.begin() + static_cast<std::ptrdiff_t>(n),
                s.dense.begin() + static_cast<std::ptrdiff_t>(8 * k), 0u);
      const auto columns = static_cast<int64_t>(k);
      pack_planes(s.dense.data(), columns, columns, run.width, to);
      to += run.width * columns;
    }
  }

 private:
  void prepare(int64_t block, bool zero_fill, Scratch& s) const {
    stage(x_, view_, lanes_, block, zero_fill, s.staged.data());
    if (stream_ != nullptr) fill_dither(*stream_, lanes_, block, s.dither.data());
    quantize(s.staged.data(), s.dither.data(), lanes_, s.codes.data());
  }
  const float* x_;
  const View& view_;
  const Lanes& lanes_;
  const CodeStream* stream_;
};

class Unpacker {
 public:
  Unpacker(const View& view, const Lanes& lanes) : view_(view), lanes_(lanes) {}

  void dense(const uint8_t* from, Scratch& s) const {
    const int64_t cols = view_.cols();
    for (const Lanes::Run& run : lanes_.runs) {
      const int64_t n = run.end - run.begin;
      if (run.width == kRaw) {
        for (int64_t r = 0; r < 8; ++r, from += 4 * n)
          std::memcpy(&s.staged[static_cast<size_t>(r * cols + run.begin)], from,
                      static_cast<size_t>(4 * n));
        continue;
      }
      if (run.width > 0) unpack_planes(from, n, run.width, cols, s.codes.data() + run.begin);
      from += run.width * n;
      for (int64_t r = 0; r < 8; ++r)
        for (int64_t j = run.begin; j < run.end; ++j) {
          const auto at = static_cast<size_t>(r * cols + j), lane = static_cast<size_t>(j);
          const auto code = static_cast<float>(static_cast<int32_t>(s.codes[at]));
          s.staged[at] =
              run.width == 0 ? lanes_.lo[lane] : lanes_.lo[lane] + code * lanes_.step[lane];
        }
    }
  }

  void masked(const uint8_t* from, Scratch& s) const {
    const auto cols = static_cast<size_t>(view_.cols());
    const uint8_t* mask = from;
    from += cols;
    for (const Lanes::Run& run : lanes_.runs) {
      const auto begin = static_cast<size_t>(run.begin), end = static_cast<size_t>(run.end);
      size_t count = 0;
      for (size_t j = begin; j < end; ++j)
        for (size_t r = 0; r < 8; ++r) count += mask[j] >> r & 1u;
      if (run.width == kRaw) {
        std::memcpy(s.dense.data(), from, 4 * count);
      } else if (run.width > 0) {
        const auto k = static_cast<int64_t>((count + 7) / 8);
        unpack_planes(from, k, run.width, k, s.dense.data());
        from += run.width * k;
      } else {
        std::fill(s.dense.begin(), s.dense.begin() + static_cast<std::ptrdiff_t>(count), 0u);
      }
      size_t n = 0;
      for (size_t j = begin; j < end; ++j)
        for (size_t r = 0; r < 8; ++r) {
          const bool there = (mask[j] >> r & 1u) != 0;
          float value;
          if (run.width == kRaw) {
            std::memcpy(&value, &s.dense[n], 4);
          } else {
            value = lanes_.lo[j] +
                    static_cast<float>(static_cast<int32_t>(s.dense[n])) * lanes_.step[j];
          }
          s.staged[r * cols + j] = there ? value : 0.0f;
          n += there;
        }
    }
  }

 private:
  const View& view_;
  const Lanes& lanes_;
};

int64_t end_of(const uint8_t* ends, int64_t block) {
  int64_t end;
  std::memcpy(&end, ends + block * 8, 8);
  return end;
}

double code_bits(const Code& code, int64_t values) {
  return static_cast<double>(code.width) * static_cast<double>(values);
}

}  // namespace

int published_width(double max_abs, double bound) {
  const double bits = std::trunc(std::log2(max_abs) - std::log2(bound) - 1);
  // A bound of 0 or infinity makes it infinite; 0 over 0, or the like, NaN: the widest.
  return 1 + (bits >= 1  ? static_cast<int>(std::min<double>(bits, kMaxFraction))
              : bits < 1 ? 1
                         : kMaxFraction);
}

BoundedFixed::BoundedFixed(const BoundedFixedOptions& options) : options_(options) {
  FRUGAL_CHECK(options.of.max_bits >= 1 && options.of.max_bits <= 16,
               "[bounded_fixed] expected max_bits in 1..16, got {}", options.of.max_bits);
  FRUGAL_CHECK(options.of.min_bits >= 0 && options.of.min_bits <= options.of.max_bits,
               "[bounded_fixed] expected min_bits in 0..{}, got {}", options.of.max_bits,
               options.of.min_bits);
}

std::unique_ptr<Packed> BoundedFixed::pack(const Tensor& tensor, const ErrorBound& bound,
                                           const SaveInfo& info) const {
  const Tensor x = checked("bounded_fixed", tensor, bound);
  const View view = make_view(tensor.shape(), bound.by_channel());
  const int64_t head = view.codes() * kCodeBytes;
  if (x.device() == kMeta)
    return std::make_unique<PackedFixed>(packed_bytes(head + view.blocks() * view.block(), kMeta),
                                         tensor.shape(), tensor.dtype(), view, false);
  const auto* values = x.data<float>();

  std::vector<Code> codes, others;
  double plain = 0, masked = static_cast<double>(view.numel + 64 * view.blocks());
  const std::vector<Range> ranges = ranges_of(values, view, options_.zeros);
  for (int64_t c = 0; c < view.codes(); ++c) {
    const Range& range = ranges[static_cast<size_t>(c)];
    const double limit = bound.at(c);
    auto code_of = [&](float min, float max) {
      if (!range.finite) return Code{0, 0, kRaw};
      return options_.rule == WidthRule::published ? published_code(range, limit)
                                                   : tight_code(min, max, limit, options_.of);
    };
    codes.push_back(range.values == 0 ? Code{} : code_of(range.min, range.max));
    plain += code_bits(codes.back(), range.values);
    if (!options_.zeros) continue;
    const int64_t nonzero = range.values - range.zeros;
    others.push_back(nonzero == 0 ? Code{} : code_of(range.nonzero_min, range.nonzero_max));
    masked += code_bits(others.back(), nonzero);
  }
  const bool with_masks = options_.zeros && masked < plain;
  if (with_masks) codes = std::move(others);

  const Lanes lanes = make_lanes(view, codes);
  const CodeStream stream = code_stream(options_.of.seed, info);
  const bool stochastic = options_.of.rounding == Rounding::stochastic;
  const Packer packer(values, view, lanes, stochastic ? &stream : nullptr);
  const int64_t blocks = view.blocks();
  std::vector<int64_t> sizes(static_cast<size_t>(with_masks ? blocks : 0));
  parallel_for(0, with_masks ? blocks : 0, kGrain, [&](int64_t begin, int64_t end) {
    Scratch scratch(view.cols());
    for (int64_t b = begin; b < end; ++b)
      sizes[static_cast<size_t>(b)] = packer.masked_bytes(b, scratch);
  });
  const int64_t start = head + (with_masks ? 8 * blocks : 0);
  int64_t size = start + (with_masks ? 0 : blocks * lanes.block_bytes);
  for (int64_t& each : sizes) {
    size += each;
    each = size;  // from here on: ends
  }
  const Tensor payload = packed_bytes(size, kCpu);
  auto* to = payload.mut<uint8_t>();
  write_codes(codes, to);
  if (with_masks) std::memcpy(to + head, sizes.data(), sizes.size() * 8);
  parallel_for(0, blocks, kGrain, [&](int64_t begin, int64_t end) {
    Scratch scratch(view.cols());
    for (int64_t b = begin; b < end; ++b) {
      if (with_masks)
        packer.masked(b, scratch, to + (b == 0 ? start : sizes[static_cast<size_t>(b - 1)]));
      else
        packer.dense(b, scratch, to + start + b * lanes.block_bytes);
    }
  });
  return std::make_unique<PackedFixed>(placed(payload, tensor.device()), tensor.shape(),
                                       tensor.dtype(), view, with_masks);
}

std::vector<Code> PackedFixed::codes() const { return read_codes(bytes(), view_.codes()); }

void PackedFixed::decode(int64_t begin, int64_t end, float* out) const {
  const std::vector<Code> all = codes();
  const Lanes lanes = make_lanes(view_, all);
  const Unpacker unpacker(view_, lanes);
  const int64_t block = view_.block();
  const uint8_t* const ends = bytes() + view_.codes() * kCodeBytes;
  const int64_t start = view_.codes() * kCodeBytes + (masked_ ? 8 * view_.blocks() : 0);
  parallel_for(begin / block, (end + block - 1) / block, kGrain, [&](int64_t first, int64_t last) {
    Scratch scratch(view_.cols());
    std::vector<float> rows(static_cast<size_t>(block));
    for (int64_t b = first; b < last; ++b) {
      if (masked_)
        unpacker.masked(bytes() + (b == 0 ? start : end_of(ends, b - 1)), scratch);
      else
        unpacker.dense(bytes() + start + b * lanes.block_bytes, scratch);
      const int64_t from = std::max(begin, b * block), until = std::min(end, (b + 1) * block);
      const bool whole = until - from == block;
      float* const to = whole ? out + (from - begin) : rows.data();
      unstage(scratch.staged.data(), lanes, view_.cols(), to);
      if (!whole)
        std::memcpy(out + (from - begin), to + (from - b * block),
                    static_cast<size_t>(until - from) * 4);
    }
  });
}

}  // namespace frugal::compress
