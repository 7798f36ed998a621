#include "ops/copy.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dtype_switch.h"

namespace frugal::ops {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements

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
  } else {
    return static_cast<To>(value);
  }
}

// The element offset of the first element of row `row`, rows being all axes but the last.
int64_t row_offset(const Tensor& t, int64_t row) {
  int64_t offset = 0;
  for (int axis = t.dim() - 2; axis >= 0; --axis) {
    offset += row % t.shape()[axis] * t.strides()[axis];
    row /= t.shape()[axis];
  }
  return offset;
}

template <class To, class From>
void copy_rows(const Tensor& out, const Tensor& x) {
  To* to = out.mut<To>();
  const From* from = x.data<From>();
  const bool scalar = x.dim() == 0;
  const int64_t width = scalar ? 1 : x.shape().back();
  const int64_t to_step = scalar ? 1 : out.strides().back();
  const int64_t from_step = scalar ? 1 : x.strides().back();
  parallel_for(0, x.numel() / width, std::max<int64_t>(1, kGrain / width),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   To* t = to + row_offset(out, row);
                   const From* f = from + row_offset(x, row);
                   for (int64_t i = 0; i < width; ++i)
                     t[i * to_step] = convert<To>(f[i * from_step]);
                 }
               });
}

template <class To, class From>
void copy_flat(const Tensor& out, const Tensor& x) {
  To* to = out.mut<To>();
  const From* from = x.data<From>();
  parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin) * sizeof(To));
    } else {
      for (int64_t i = begin; i < end; ++i) to[i] = convert<To>(from[i]);
    }
  });
}

}  // namespace

void copy_kernel(Cpu, const Tensor& out, const Tensor& x) {
  if (x.numel() == 0) return;
  with_dtype(out.dtype(), [&](auto to) {
    with_dtype(x.dtype(), [&](auto from) {
      if (x.is_contiguous() && out.is_contiguous())
        copy_flat<decltype(to), decltype(from)>(out, x);
      else
        copy_rows<decltype(to), decltype(from)>(out, x);
    });
  });
}

void fill_kernel(Cpu, const Tensor& out, double value) {
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
