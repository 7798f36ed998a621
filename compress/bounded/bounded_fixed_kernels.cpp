#include "compress/bounded/bounded_fixed_kernels.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"

namespace frugal::compress::bounded {

namespace {

constexpr int64_t kGrain = 8;  // blocks for a thread at least

// The buffers for a block. All blocks of a thread use the same ones.
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

}  // namespace

std::vector<Range> ranges_kernel(Cpu, const float* x, const View& view, bool zeros) {
  return ranges_of(x, view, zeros);
}

std::vector<int64_t> masked_sizes_kernel(Cpu, const float* x, const FixedCodes& codes) {
  const Packer packer(x, codes.view, codes.lanes, codes.stream);
  std::vector<int64_t> sizes(static_cast<size_t>(codes.view.blocks()));
  parallel_for(0, codes.view.blocks(), kGrain, [&](int64_t begin, int64_t end) {
    Scratch scratch(codes.view.cols());
    for (int64_t b = begin; b < end; ++b)
      sizes[static_cast<size_t>(b)] = packer.masked_bytes(b, scratch);
  });
  return sizes;
}

void pack_fixed_kernel(Cpu, const float* x, const FixedCodes& codes,
                       const std::vector<uint8_t>& head, const Tensor& payload) {
  auto* const to = payload.mut<uint8_t>();
  std::copy(head.begin(), head.end(), to);
  const Packer packer(x, codes.view, codes.lanes, codes.stream);
  const uint8_t* const ends = to + codes.view.channels * kCodeBytes;
  parallel_for(0, codes.view.blocks(), kGrain, [&](int64_t begin, int64_t end) {
    Scratch scratch(codes.view.cols());
    for (int64_t b = begin; b < end; ++b) {
      if (codes.masked)
        packer.masked(b, scratch, to + (b == 0 ? codes.head() : end_of(ends, b - 1)));
      else
        packer.dense(b, scratch, to + codes.head() + b * codes.lanes.block_bytes);
    }
  });
}

void unpack_fixed_kernel(Cpu, const Tensor& payload, const FixedCodes& codes, int64_t begin,
                         int64_t end, float* out) {
  const View& view = codes.view;
  const Lanes& lanes = codes.lanes;
  const Unpacker unpacker(view, lanes);
  const int64_t block = view.block(), start = codes.head();
  const auto* const bytes = payload.data<uint8_t>();
  const uint8_t* const ends = bytes + view.channels * kCodeBytes;
  parallel_for(begin / block, (end + block - 1) / block, kGrain, [&](int64_t first, int64_t last) {
    Scratch scratch(view.cols());
    std::vector<float> rows(static_cast<size_t>(block));
    for (int64_t b = first; b < last; ++b) {
      if (codes.masked)
        unpacker.masked(bytes + (b == 0 ? start : end_of(ends, b - 1)), scratch);
      else
        unpacker.dense(bytes + start + b * lanes.block_bytes, scratch);
      const int64_t from = std::max(begin, b * block), until = std::min(end, (b + 1) * block);
      const bool whole = until - from == block;
      float* const to = whole ? out + (from - begin) : rows.data();
      unstage(scratch.staged.data(), lanes, view.cols(), to);
      if (!whole)
        std::memcpy(out + (from - begin), to + (from - b * block),
                    static_cast<size_t>(until - from) * 4);
    }
  });
}

}  // namespace frugal::compress::bounded
