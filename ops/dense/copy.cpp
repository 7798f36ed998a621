#include "ops/dense/copy.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "core/to_integer.h"
#include "ops/checks.h"
#include "ops/shared_kernels.h"
#include "ops/simd/convert_loops.h"

namespace frugal::ops {
namespace {

template <class To, class From>
To convert(From value) {
  constexpr bool from_half = std::is_same_v<From, BFloat16> || std::is_same_v<From, Float16>;
  constexpr bool to_half = std::is_same_v<To, BFloat16> || std::is_same_v<To, Float16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (from_half) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (to_half) {
    return To(static_cast<float>(value));
  } else if constexpr (kToInteger<To, From>) {
    return to_integer<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
void convert_flat(const Tensor& out, const Tensor& x) {
  To* to = out.mut<To>();
  const From* from = x.data<From>();
  parallel_for(0, x.numel(), kCopyGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<From, BFloat16> && std::is_same_v<To, float>)
      return simd::widen(from + begin, to + begin, end - begin);
    else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, BFloat16>)
      return simd::narrow(from + begin, to + begin, end - begin);
    for (int64_t i = begin; i < end; ++i) to[i] = convert<To>(from[i]);
  });
}

struct Axis {
  int64_t extent = 1, to = 0, from = 0;  // strides in elements
};

// The axes of a copy, beginning with the outermost in the output's memory. Axes that one loop can
// cover are joined.
std::vector<Axis> joined_axes(const Tensor& out, const Tensor& x) {
  std::vector<Axis> axes;
  for (int axis = 0; axis < x.dim(); ++axis)
    if (x.shape()[axis] != 1)
      axes.push_back({x.shape()[axis], out.strides()[axis], x.strides()[axis]});
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.to > b.to; });
  std::vector<Axis> joined;
  for (const Axis& axis : axes) {
    if (!joined.empty() && joined.back().to == axis.to * axis.extent &&
        joined.back().from == axis.from * axis.extent)
      joined.back() = {joined.back().extent * axis.extent, axis.to, axis.from};
    else
      joined.push_back(axis);
  }
  return joined;
}

template <class T>
void copy_row(T* to, const T* from, const Axis& inner) {
  if (inner.to == 1 && inner.from == 1) {
    std::copy_n(from, inner.extent, to);
  } else if (inner.to == 1 && inner.from == 0) {
    std::fill_n(to, inner.extent, *from);
  } else {
    for (int64_t i = 0; i < inner.extent; ++i) to[i * inner.to] = from[i * inner.from];
  }
}

constexpr int64_t kTile = 32;

// Transposes `rows` x inner.extent elements through a buffer. So every cache line is read once and
// written once, even where strides are powers of 2.
template <class T>
void copy_tiles(T* to, const T* from, const Axis& outer, int64_t rows, const Axis& inner) {
  T buffer[kTile * kTile];
  for (int64_t start = 0; start < inner.extent; start += kTile) {
    const int64_t width = std::min(kTile, inner.extent - start);
    for (int64_t i = 0; i < width; ++i)
      for (int64_t row = 0; row < rows; ++row)
        buffer[row * kTile + i] = from[(start + i) * inner.from + row * outer.from];
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i)
        to[row * outer.to + (start + i) * inner.to] = buffer[row * kTile + i];
  }
}

template <class T>
void copy_strided(const Tensor& out, const Tensor& x) {
  std::vector<Axis> axes = joined_axes(out, x);
  const auto take = [&](auto position) {
    const Axis axis = *position;
    axes.erase(position);
    return axis;
  };
  const Axis inner = axes.empty() ? Axis{} : take(axes.end() - 1);
  const auto neighbours =
      std::find_if(axes.begin(), axes.end(), [](const Axis& axis) { return axis.from == 1; });
  const bool transposes = inner.from > 1 && neighbours != axes.end();
  const Axis outer = transposes ? take(neighbours) : axes.empty() ? Axis{} : take(axes.end() - 1);
  int64_t planes = 1;
  for (const Axis& axis : axes) planes *= axis.extent;
  const int64_t strips = (outer.extent + kTile - 1) / kTile;
  T* to = out.mut<T>();
  const T* from = x.data<T>();
  parallel_for(0, planes * strips,
               rows_at_once(kCopyGrain, std::min(kTile, outer.extent) * inner.extent),
               [&](int64_t begin, int64_t end) {
                 for (int64_t strip = begin; strip < end; ++strip) {
                   const int64_t first = strip % strips * kTile;
                   const int64_t rows = std::min(kTile, outer.extent - first);
                   T* t = to + first * outer.to;
                   const T* f = from + first * outer.from;
                   int64_t plane = strip / strips;
                   for (size_t axis = axes.size(); axis-- > 0;) {
                     t += plane % axes[axis].extent * axes[axis].to;
                     f += plane % axes[axis].extent * axes[axis].from;
                     plane /= axes[axis].extent;
                   }
                   if (transposes) {
                     copy_tiles(t, f, outer, rows, inner);
                   } else {
                     for (int64_t row = 0; row < rows; ++row)
                       copy_row(t + row * outer.to, f + row * outer.from, inner);
                   }
                 }
               });
}

void copy_flat(const Tensor& out, const Tensor& x) {
  char* to = static_cast<char*>(out.raw());
  const char* from = static_cast<const char*>(x.raw());
  parallel_for(0, x.nbytes(), kCopyGrain * 4, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

void copy_kernel(Cpu, const Tensor& out, const Tensor& x) {
  if (x.numel() == 0) return;
  const bool flat = x.is_contiguous() && out.is_contiguous();
  if (out.dtype() == x.dtype()) {
    if (flat) return copy_flat(out, x);
    return with_dtype(x.dtype(), [&](auto zero) { copy_strided<decltype(zero)>(out, x); });
  }
  if (!flat) {  // converts into a contiguous tensor first, then copies that
    const CategoryScope scope(Category::workspace);
    return copy_kernel(Cpu{}, out, cast(contiguous(x), out.dtype()));
  }
  with_dtype(out.dtype(), [&](auto to) {
    with_dtype(x.dtype(), [&](auto from) { convert_flat<decltype(to), decltype(from)>(out, x); });
  });
}

void fill_kernel(Cpu, const Tensor& out, double value) {
  const CategoryScope scope(Category::workspace);
  const Tensor one = Tensor::full({}, value, out.dtype());
  Shape strides = out.shape();
  for (int axis = 0; axis < strides.dim(); ++axis) strides[axis] = 0;
  copy_kernel(Cpu{}, out, one.as_strided(out.shape(), strides, 0));
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

Tensor clone(const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy_into(out, x);
  return out;
}

void copy_into(const Tensor& out, const Tensor& x) {
  check_shape("copy", "the source", x, out.shape());
  FRUGAL_CHECK(x.device() == out.device(), "[copy] expected one device, got {} and {}",
               describe(out), describe(x));
  dispatch(x.device(), [&](auto backend) { copy_kernel(backend, out, x); });
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", "x", x);
  if (x.dtype() == dtype) return x;
  Tensor out = Tensor::empty(x.shape(), dtype, x.device());
  copy_into(out, x);
  return out;
}

void fill(const Tensor& out, double value) {
  check_defined("fill", "out", out);
  dispatch(out.device(), [&](auto backend) { fill_kernel(backend, out, value); });
}

}  // namespace frugal::ops
