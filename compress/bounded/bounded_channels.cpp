#include "compress/bounded/bounded_channels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>

#include "core/parallel.h"

namespace frugal::compress::bounded {

namespace {

// A view with fewer channels has about so many columns, if there are enough rows.
constexpr int64_t kColumns = 256;
constexpr float kHuge = std::numeric_limits<float>::max();

// Minima and maxima of columns. `probe` is NaN if a value of the column is not finite.
struct Extremes {
  explicit Extremes(int64_t cols)
      : min(static_cast<size_t>(cols), kHuge),
        max(min.size(), -kHuge),
        probe(min.size(), 0.0f),
        nonzero_min(min),
        nonzero_max(max),
        zeros(min.size(), 0) {}
  std::vector<float> min, max, probe, nonzero_min, nonzero_max;
  std::vector<int32_t> zeros;
};

void add_row(const float* x, size_t n, Extremes& e) {
  float *mn = e.min.data(), *mx = e.max.data(), *probe = e.probe.data();
  for (size_t j = 0; j < n; ++j) {
    mn[j] = x[j] < mn[j] ? x[j] : mn[j];
    mx[j] = x[j] > mx[j] ? x[j] : mx[j];
    probe[j] += x[j] * 0.0f;
  }
}

void add_zeros(const float* x, size_t n, Extremes& e) {
  float *mn = e.nonzero_min.data(), *mx = e.nonzero_max.data();
  int32_t* zeros = e.zeros.data();
  for (size_t j = 0; j < n; ++j) {
    const bool zero = x[j] == 0;
    const float low = zero ? kHuge : x[j], high = zero ? -kHuge : x[j];
    mn[j] = low < mn[j] ? low : mn[j];
    mx[j] = high > mx[j] ? high : mx[j];
    zeros[j] += zero;
  }
}

}  // namespace

View make_view(const Shape& shape) {
  View view;
  view.numel = shape.numel();
  view.channels = shape.dim() == 0 ? 1 : std::max<int64_t>(shape.back(), 1);
  const int64_t rows = view.numel / view.channels;
  view.repeat = std::clamp<int64_t>(kColumns / view.channels, 1, std::max<int64_t>(rows / 64, 1));
  return view;
}

std::vector<Range> ranges_of(const float* x, const View& view, bool zeros) {
  std::vector<Range> ranges(static_cast<size_t>(view.channels));
  for (Range& range : ranges) {
    range = {kHuge, -kHuge, true, 0, 0, kHuge, -kHuge};
    range.values = view.numel / view.channels;
  }
  const int64_t cols = view.cols(), rows = (view.numel + cols - 1) / cols;
  constexpr int64_t kChunk = 1 << 16;  // elements
  const int64_t step = std::max<int64_t>(kChunk / cols, 1), chunks = (rows + step - 1) / step;
  std::mutex mutex;
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    Extremes e(cols);
    for (int64_t r = begin * step; r < std::min(end * step, rows); ++r) {
      const auto n = static_cast<size_t>(std::min(cols, view.numel - r * cols));
      add_row(x + r * cols, n, e);
      if (zeros) add_zeros(x + r * cols, n, e);
    }
    const std::lock_guard lock(mutex);  // extremes and whole numbers: any order
    for (int64_t j = 0; j < cols; ++j) {
      const auto at = static_cast<size_t>(j);
      Range& range = ranges[static_cast<size_t>(j % view.channels)];
      range.min = std::min(range.min, e.min[at]);
      range.max = std::max(range.max, e.max[at]);
      range.finite = range.finite && e.probe[at] == 0;
      range.nonzero_min = std::min(range.nonzero_min, e.nonzero_min[at]);
      range.nonzero_max = std::max(range.nonzero_max, e.nonzero_max[at]);
      range.zeros += e.zeros[at];
    }
  });
  // Whether 0 or -0 came first does not matter: both become 0.
  for (Range& range : ranges) range.min += 0.0f, range.max += 0.0f;
  return ranges;
}

Code tight_code(float min, float max, double bound, const ErrorBoundedOptions& options) {
  if (min >= max) return {min, 0, 0};
  const double lo = min, range = static_cast<double>(max) - lo;
  // The rounding error of lo + code * step in f32.
  const double ulp = std::max(std::fabs(lo), std::fabs(static_cast<double>(max))) * 0x1p-22;
  const bool nearest = options.rounding == Rounding::nearest;
  const auto middle = static_cast<float>(lo + range / 2);
  if (nearest && options.min_bits == 0 && range / 2 + ulp <= bound) return {middle, 0, 0};
  if (range < 0x1p126) {
    const double share = nearest ? 0.5 : 1;
    for (int width = std::max(options.min_bits, 1); width <= options.max_bits; ++width) {
      const double levels = (1 << width) - 1;
      auto step = static_cast<float>(range / levels);
      if (levels * static_cast<double>(step) < range) step = std::nextafter(step, kHuge);
      const double error = static_cast<double>(step) * (share + std::ldexp(1.0, width - 21)) + ulp;
      const bool last = options.clip && width == options.max_bits;
      if ((error <= bound || last) && step >= std::numeric_limits<float>::min())
        return {min, step, width};
    }
  }
  return {0, 0, kRaw};
}

Lanes make_lanes(const View& view, std::span<const Code> codes) {
  const auto cols = static_cast<size_t>(view.cols());
  auto code_of = [&](int32_t column) -> const Code& {
    return codes[static_cast<size_t>(column % view.channels)];
  };
  Lanes lanes;
  lanes.column.resize(cols);
  std::iota(lanes.column.begin(), lanes.column.end(), 0);
  std::stable_sort(lanes.column.begin(), lanes.column.end(),
                   [&](int32_t a, int32_t b) { return code_of(a).width < code_of(b).width; });
  lanes.sorted = std::is_sorted(lanes.column.begin(), lanes.column.end());
  for (size_t j = 0; j < cols; ++j) {
    const Code& code = code_of(lanes.column[j]);
    const bool coded = code.width > 0 && code.width < kRaw;
    lanes.lo.push_back(code.width == kRaw ? 0 : code.lo);
    lanes.step.push_back(code.step);
    lanes.inverse.push_back(coded ? 1 / code.step : 0);
    lanes.top.push_back(coded ? static_cast<float>((1 << code.width) - 1) : 0);
    const auto place = static_cast<int64_t>(j);
    if (lanes.runs.empty() || lanes.runs.back().width != code.width)
      lanes.runs.push_back({place, place, code.width});
    ++lanes.runs.back().end;
    lanes.block_bytes += code.width;
  }
  return lanes;
}

void write_codes(std::span<const Code> codes, uint8_t* to) {
  for (const Code& code : codes) {
    std::memcpy(to, &code.lo, 4);
    std::memcpy(to + 4, &code.step, 4);
    to[8] = static_cast<uint8_t>(code.width);
    to += kCodeBytes;
  }
}

std::vector<Code> read_codes(const uint8_t* from, int64_t count) {
  std::vector<Code> codes(static_cast<size_t>(count));
  for (Code& code : codes) {
    std::memcpy(&code.lo, from, 4);
    std::memcpy(&code.step, from + 4, 4);
    code.width = from[8];
    from += kCodeBytes;
  }
  return codes;
}

void stage(const float* x, const View& view, const Lanes& lanes, int64_t block, bool zero_fill,
           float* staged) {
  const auto cols = static_cast<size_t>(view.cols());
  const int32_t* column = lanes.column.data();
  for (int64_t r = 0; r < 8; ++r, staged += cols) {
    const int64_t first = (block * 8 + r) * view.cols();
    const auto there = static_cast<size_t>(std::clamp<int64_t>(view.numel - first, 0, view.cols()));
    if (there == cols && lanes.sorted) {
      std::memcpy(staged, x + first, cols * 4);
    } else if (there == cols) {
      for (size_t j = 0; j < cols; ++j) staged[j] = x[first + column[j]];
    } else {
      for (size_t j = 0; j < cols; ++j)
        staged[j] = static_cast<size_t>(column[j]) < there ? x[first + column[j]]
                    : zero_fill                            ? 0.0f
                                                           : lanes.lo[j];
    }
  }
}

void unstage(const float* staged, const Lanes& lanes, int64_t cols, float* x) {
  const auto n = static_cast<size_t>(cols);
  if (lanes.sorted) {
    std::memcpy(x, staged, 8 * n * 4);
    return;
  }
  const int32_t* column = lanes.column.data();
  for (int64_t r = 0; r < 8; ++r, staged += cols, x += cols)
    for (size_t j = 0; j < n; ++j) x[column[j]] = staged[j];
}

void fill_dither(const CodeStream& stream, const Lanes& lanes, int64_t block, float* to) {
  const size_t cols = lanes.column.size();
  for (size_t j = 0; j < cols; ++j) {
    const auto words =
        code_words(stream, static_cast<uint32_t>(block), static_cast<uint32_t>(lanes.column[j]));
    for (size_t r = 0; r < 8; ++r) {
      const uint32_t half = r % 2 == 0 ? words[r / 2] & 0xffffu : words[r / 2] >> 16;
      to[r * cols + j] = (static_cast<float>(half) + 0.5f) * 0x1p-16f;
    }
  }
}

void pack_planes(const uint32_t* codes, int64_t stride, int64_t n, int width, uint8_t* to) {
  const Planes planes = planes_of(width);
  int shift = 0;
  for (int p = 0; p < planes.count; ++p) {
    const int bits = planes.width[static_cast<size_t>(p)], per = 8 / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int i = 0; i < bits; ++i, to += n) {
      const uint32_t* from = codes + i * per * stride;
      if (per == 1) {
        for (int64_t j = 0; j < n; ++j) to[j] = static_cast<uint8_t>(from[j] >> shift & mask);
      } else if (per == 2) {
        for (int64_t j = 0; j < n; ++j)
          to[j] = static_cast<uint8_t>((from[j] >> shift & mask) |
                                       (from[j + stride] >> shift & mask) << 4);
      } else if (per == 4) {
        for (int64_t j = 0; j < n; ++j)
          to[j] = static_cast<uint8_t>((from[j] >> shift & mask) |
                                       (from[j + stride] >> shift & mask) << 2 |
                                       (from[j + 2 * stride] >> shift & mask) << 4 |
                                       (from[j + 3 * stride] >> shift & mask) << 6);
      } else {
        for (int64_t j = 0; j < n; ++j) {
          uint32_t byte = 0;
          for (int r = 0; r < 8; ++r) byte |= (from[j + r * stride] >> shift & 1u) << r;
          to[j] = static_cast<uint8_t>(byte);
        }
      }
    }
    shift += bits;
  }
}

void unpack_planes(const uint8_t* from, int64_t n, int width, int64_t stride, uint32_t* codes) {
  const Planes planes = planes_of(width);
  int shift = 0;
  for (int p = 0; p < planes.count; ++p) {
    const int bits = planes.width[static_cast<size_t>(p)], per = 8 / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int r = 0; r < 8; ++r) {
      const uint8_t* plane = from + r / per * n;
      const int at = r % per * bits;
      uint32_t* to = codes + r * stride;
      if (p == 0) {
        for (int64_t j = 0; j < n; ++j) to[j] = uint32_t{plane[j]} >> at & mask;
      } else {
        for (int64_t j = 0; j < n; ++j) to[j] |= (uint32_t{plane[j]} >> at & mask) << shift;
      }
    }
    from += bits * n;
    shift += bits;
  }
}

}  // namespace frugal::compress::bounded
