#include "ops/dense/bitmask.h"

#include <algorithm>

#include "core/computed.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/shared_kernels.h"
#include "ops/simd/simd_loops.h"

namespace frugal::ops {
namespace {

// Plain loops over columns [begin, end) of the blocks: y = value(x), and the bits of the mask from
// keep(x).
template <class T, class Keep, class Value>
void map_columns(const Tensor& x, const Tensor& y, const Tensor& mask, int64_t block, int64_t begin,
                 int64_t end, Keep keep, Value value) {
  const BitmaskLayout layout = bitmask_layout(x.shape());
  const int64_t n = x.numel();
  for (int64_t k = begin; k < end; ++k) {
    unsigned byte = 0;
    for (int r = 0; r < 8; ++r) {
      const int64_t i = (block * 8 + r) * layout.cols + k;
      if (i >= n) continue;
      const auto v = static_cast<Computed<T>>(x.data<T>()[i]);
      if (keep(v)) byte |= 1u << r;
      y.mut<T>()[i] = static_cast<T>(value(v));
    }
    if (mask.defined()) mask.mut<uint8_t>()[block * layout.cols + k] = static_cast<uint8_t>(byte);
  }
}

simd::Output masked_output(const Tensor& y) {
  const BitmaskLayout layout = bitmask_layout(y.shape());
  return simd::output_of(y, layout.cols);
}

// Calls whole(element, byte, Blocks) for parts of the tensor that fill 8 rows of a mask. Calls
// rest(begin, end) for the last columns of the second layout, whose last row is shorter.
template <class Whole, class Rest>
void for_mask_blocks(const Tensor& x, Whole whole, Rest rest) {
  const BitmaskLayout layout = bitmask_layout(x.shape());
  if (layout.by_rows) {
    parallel_for(0, layout.rows / 8, kCopyGrain / (8 * layout.cols) + 1,
                 [&](int64_t begin, int64_t end) {
                   whole(begin * 8 * layout.cols, begin * layout.cols,
                         simd::Blocks{end - begin, layout.cols, layout.cols});
                 });
    return;
  }
  const int64_t full = x.numel() - 7 * layout.cols;  // columns that the last row has
  parallel_for(0, std::max<int64_t>(full, 0), kCopyGrain / 8, [&](int64_t begin, int64_t end) {
    whole(begin, begin, simd::Blocks{1, layout.cols, end - begin});
  });
  rest(std::max<int64_t>(full, 0), layout.cols);
}

// y = value(x), and the mask from keep(x). f32 and bf16 use `whole`; f64, and columns that `whole`
// cannot take, use plain loops.
template <class Whole, class Keep, class Value>
void mask_and_map(const Tensor& x, const Tensor& y, const Tensor& mask, Whole whole, Keep keep,
                  Value value) {
  if (x.dtype() != DType::f64) {
    const simd::Output out = masked_output(y);
    for_mask_blocks(
        x,
        [&](int64_t element, int64_t byte, simd::Blocks blocks) {
          whole(simd::input_of(x, element), out.from(element),
                mask.defined() ? mask.mut<uint8_t>() + byte : nullptr, blocks);
        },
        [&](int64_t begin, int64_t end) {
          if (x.dtype() == DType::bf16)
            map_columns<BFloat16>(x, y, mask, 0, begin, end, keep, value);
          else
            map_columns<float>(x, y, mask, 0, begin, end, keep, value);
        });
    return;
  }
  const BitmaskLayout layout = bitmask_layout(x.shape());
  for (int64_t block = 0; block < layout.rows / 8; ++block)
    map_columns<double>(x, y, mask, block, 0, layout.cols, keep, value);
}

// Writes 0 to those of the elements [begin, end) of x whose bit is clear in a mask of one row. x[0]
// is element `first` of the tensor that the mask describes. Words: as wide as elements.
template <class Word>
void select_part(Word* __restrict x, const uint8_t* __restrict mask, int64_t cols, int64_t first,
                 int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end;) {
    const int64_t k = (first + i) % cols, count = std::min(end - i, cols - k);
    const auto bit = static_cast<uint8_t>(1u << ((first + i) / cols));
    Word* const to = x + i;
    const uint8_t* const bits = mask + k;
    for (int64_t j = 0; j < count; ++j) to[j] = (bits[j] & bit) != 0 ? to[j] : Word{0};
    i += count;
  }
}

void check_selection(const Tensor& x, const Tensor& mask) {
  check_real("select_by_mask", "x", x);
  const BitmaskLayout layout = bitmask_layout(x.shape());
  check_shape("select_by_mask", "the mask", mask, {layout.rows / 8, layout.cols});
  FRUGAL_CHECK(mask.dtype() == DType::u8 && mask.device() == x.device(),
               "[select_by_mask] expected the mask of dtype u8 on {}, got {}", x.device().str(),
               describe(mask));
}

// slope * v; for slope 0 the result is 0 even if v is infinite.
template <class T>
T scaled(T v, double slope) {
  return slope == 0 ? T{0} : static_cast<T>(slope) * v;
}

}  // namespace

BitmaskLayout bitmask_layout(const Shape& shape) {
  const int64_t n = shape.numel(), c = shape.dim() == 0 ? 1 : shape.back();
  if (n == 0) return {0, 0, false};
  if (n / c % 8 == 0) return {n / c, c, true};
  return {8, (n + 7) / 8, false};
}

Tensor empty_bitmask(const Shape& shape, Device device) {
  const BitmaskLayout layout = bitmask_layout(shape);
  return Tensor::empty({layout.rows / 8, layout.cols}, DType::u8, device);
}

void rectify_kernel(Cpu, const Tensor& x, double slope, const Tensor& y, const Tensor& mask) {
  if (x.numel() == 0) return;
  mask_and_map(
      x, y, mask,
      [slope](simd::Input px, simd::Output py, uint8_t* bytes, simd::Blocks blocks) {
        simd::rectify_blocks(px, static_cast<float>(slope), py, bytes, blocks);
      },
      [](auto v) { return !(v <= 0); },
      [slope](auto v) { return !(v <= 0) ? v : scaled(v, slope); });
}

void clamp_kernel(Cpu, const Tensor& x, double lo, double hi, const Tensor& y, const Tensor& mask) {
  if (x.numel() == 0) return;
  // The bounds are rounded to the dtype first, so that clamping twice equals clamping once.
  if (x.dtype() == DType::bf16) {
    lo = static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(lo))));
    hi = static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(hi))));
  }
  const auto below = [lo](auto v) { return v < static_cast<decltype(v)>(lo); };
  const auto above = [hi](auto v) { return v > static_cast<decltype(v)>(hi); };
  mask_and_map(
      x, y, mask,
      [=](simd::Input px, simd::Output py, uint8_t* bytes, simd::Blocks blocks) {
        simd::clamp_blocks(px, static_cast<float>(lo), static_cast<float>(hi), py, bytes, blocks);
      },
      [=](auto v) { return !below(v) && !above(v); },
      [=](auto v) {
        using T = decltype(v);
        return below(v) ? static_cast<T>(lo) : (above(v) ? static_cast<T>(hi) : v);
      });
}

void select_by_mask_kernel(Cpu, const Tensor& x, const Tensor& mask, double slope,
                           const Tensor& y) {
  if (x.numel() == 0) return;
  const BitmaskLayout layout = bitmask_layout(x.shape());
  const uint8_t* bytes = mask.data<uint8_t>();
  const auto plain = [&]<class T>(T, int64_t i) {
    const int64_t row = i / layout.cols;
    const bool kept = (bytes[row / 8 * layout.cols + i % layout.cols] >> (row % 8) & 1) != 0;
    const auto v = static_cast<Computed<T>>(x.data<T>()[i]);
    y.mut<T>()[i] = static_cast<T>(kept ? v : scaled(v, slope));
  };
  if (x.dtype() == DType::f64) {
    for (int64_t i = 0; i < x.numel(); ++i) plain(double{}, i);
    return;
  }
  const simd::Output out = masked_output(y);
  for_mask_blocks(
      x,
      [&](int64_t element, int64_t byte, simd::Blocks blocks) {
        simd::select_blocks(simd::input_of(x, element), bytes + byte, static_cast<float>(slope),
                            out.from(element), blocks);
      },
      [&](int64_t begin, int64_t end) {
        for (int64_t row = 0; row < 8; ++row)
          for (int64_t k = begin; k < end; ++k)
            if (const int64_t i = row * layout.cols + k; i < x.numel())
              x.dtype() == DType::bf16 ? plain(BFloat16{}, i) : plain(float{}, i);
      });
}

Rectified rectify(const Tensor& x, double slope, bool want_mask) {
  check_real("relu", "x", x);
  const Tensor in = contiguous(x);
  Rectified out{Tensor::empty(x.shape(), x.dtype(), x.device()),
                want_mask ? empty_bitmask(x.shape(), x.device()) : Tensor()};
  dispatch(x.device(), [&](auto backend) { rectify_kernel(backend, in, slope, out.y, out.mask); });
  return out;
}

Rectified clamp(const Tensor& x, double lo, double hi, bool want_mask) {
  check_real("clamp", "x", x);
  FRUGAL_CHECK(lo <= hi, "[clamp] expected bounds in order, got {} and {}", lo, hi);
  const Tensor in = contiguous(x);
  Rectified out{Tensor::empty(x.shape(), x.dtype(), x.device()),
                want_mask ? empty_bitmask(x.shape(), x.device()) : Tensor()};
  dispatch(x.device(), [&](auto backend) { clamp_kernel(backend, in, lo, hi, out.y, out.mask); });
  return out;
}

Tensor rectify_over(const Tensor& x, double slope) {
  check_real("relu", "x", x);
  FRUGAL_ASSERT(x.is_contiguous());
  Tensor mask = empty_bitmask(x.shape(), x.device());
  dispatch(x.device(), [&](auto backend) { rectify_kernel(backend, x, slope, x, mask); });
  x.bump_version();
  return mask;
}

void select_by_mask_over(const Tensor& x, const Tensor& mask, double slope) {
  check_selection(x, mask);
  FRUGAL_ASSERT(x.is_contiguous());
  dispatch(x.device(), [&](auto backend) { select_by_mask_kernel(backend, x, mask, slope, x); });
  x.bump_version();
}

void select_part_by_mask(const Tensor& x, const Tensor& mask, int64_t first) {
  check_real("select_by_mask", "x", x);
  FRUGAL_ASSERT(x.is_contiguous() && mask.dim() == 2 && mask.size(0) == 1 &&
                x.device().type != DeviceType::cuda);
  if (x.device() == kCpu)
    parallel_for(0, x.numel(), kCopyGrain, [&](int64_t begin, int64_t end) {
      const auto select = [&](auto word) {
        select_part(static_cast<decltype(word)*>(x.raw()), mask.data<uint8_t>(), mask.size(1),
                    first, begin, end);
      };
      if (size_of(x.dtype()) == 8) return select(uint64_t{});
      size_of(x.dtype()) == 4 ? select(uint32_t{}) : select(uint16_t{});
    });
  x.bump_version();
}

Tensor select_by_mask(const Tensor& x, const Tensor& mask, double slope) {
  check_selection(x, mask);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { select_by_mask_kernel(backend, in, mask, slope, y); });
  return y;
}

}  // namespace frugal::ops
