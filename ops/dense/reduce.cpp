#include "ops/dense/reduce.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/dtype_switch.h"
#include "core/finite.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

uint32_t axes_mask(const char* op, const Shape& shape, const std::vector<int>& axes) {
  if (axes.empty()) return (1u << shape.dim()) - 1u;
  uint32_t mask = 0;
  for (int axis : axes) {
    const int a = normalize_axis(op, axis, shape.dim());
    FRUGAL_CHECK((mask >> a & 1u) == 0, "[{}] expected each axis once, got {} twice", op, axis);
    mask |= 1u << a;
  }
  return mask;
}

int64_t extent_of(const Shape& shape, int begin, int end) {
  int64_t n = 1;
  for (int axis = begin; axis < end; ++axis) n *= shape[axis];
  return n;
}

// x as a contiguous [O, R, I] whose middle axis holds all reduced elements. It is a view if the
// reduced axes are neighbours.
Tensor as_outer_reduce_inner(const Tensor& x, uint32_t mask) {
  int first = x.dim(), last = 0;  // first and one past the last of the reduced axes
  for (int axis = 0; axis < x.dim(); ++axis) {
    if ((mask >> axis & 1u) == 0 || x.shape()[axis] == 1) continue;
    first = std::min(first, axis);
    last = axis + 1;
  }
  if (first >= last) return contiguous(x).view({1, 1, x.numel()});
  bool neighbours = true;
  for (int axis = first; axis < last; ++axis)
    neighbours = neighbours && ((mask >> axis & 1u) != 0 || x.shape()[axis] == 1);
  if (neighbours)
    return contiguous(x).view({extent_of(x.shape(), 0, first), extent_of(x.shape(), first, last),
                               extent_of(x.shape(), last, x.dim())});
  std::vector<int> order;
  int64_t kept = 1, gone = 1;
  for (int axis = 0; axis < x.dim(); ++axis) {
    if ((mask >> axis & 1u) != 0) continue;
    order.push_back(axis);
    kept *= x.shape()[axis];
  }
  for (int axis = 0; axis < x.dim(); ++axis) {
    if ((mask >> axis & 1u) == 0) continue;
    order.push_back(axis);
    gone *= x.shape()[axis];
  }
  const CategoryScope scope(Category::workspace);
  return contiguous(x.permute(order)).view({kept, gone, 1});
}

Tensor sum_times(const char* op, const Tensor& x, const std::vector<int>& axes, bool keep_dim,
                 double factor) {
  const uint32_t mask = axes_mask(op, x.shape(), axes);
  Tensor out = Tensor::empty(reduced_shape(op, x.shape(), axes, keep_dim), x.dtype(), x.device());
  const Tensor folded = as_outer_reduce_inner(x, mask);
  const Tensor flat = out.view({folded.size(0), folded.size(2)});
  dispatch(x.device(), [&](auto backend) { sum_kernel(backend, folded, flat, factor); });
  return out;
}

// A plain loop for each output: the reference.
void sum_f64(const Tensor& x, const Tensor& out, double factor) {
  const int64_t reduce = x.size(1), inner = x.size(2);
  const double* from = x.data<double>();
  double* to = out.mut<double>();
  parallel_for(0, out.numel(), rows_at_once(kCopyGrain, reduce), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const double* column = from + k / inner * reduce * inner + k % inner;
      double total = 0;
      for (int64_t r = 0; r < reduce; ++r) total += column[r * inner];
      to[k] = total * factor;
    }
  });
}

constexpr int64_t kLanes = 16;   // independent f32 sums, which SIMD registers hold
constexpr int64_t kDepth = 256;  // terms that one f32 sum takes
constexpr int64_t kRun = kLanes * kDepth;

// T: float or BFloat16.
template <class T>
double sum_run(const T* x, int64_t n) {
  std::array<float, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[static_cast<size_t>(lane)] += static_cast<float>(x[i + lane]);
  double total = 0;
  if (i > 0)
    for (const float lane : lanes) total += static_cast<double>(lane);
  for (; i < n; ++i) total += static_cast<double>(static_cast<float>(x[i]));
  return total;
}

// x [O, R] -> out [O]. A row is summed in runs of kRun elements, so that several threads can share
// a long row.
template <class T, class Sum>
void sum_rows(const T* x, Sum* out, int64_t outer, int64_t reduce, double factor) {
  const int64_t runs = (reduce + kRun - 1) / kRun;
  if (runs <= 1) {
    parallel_for(0, outer, rows_at_once(kCopyGrain, reduce), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        out[o] = static_cast<Sum>(static_cast<float>(sum_run(x + o * reduce, reduce) * factor));
    });
    return;
  }
  const CategoryScope scope(Category::workspace);
  const Tensor partial = Tensor::empty({outer, runs}, DType::f64);
  double* partials = partial.mut<double>();
  parallel_for(0, outer * runs, kCopyGrain / kRun, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t start = k % runs * kRun;
      partials[k] = sum_run(x + k / runs * reduce + start, std::min(kRun, reduce - start));
    }
  });
  for (int64_t o = 0; o < outer; ++o) {
    double total = 0;
    for (int64_t run = 0; run < runs; ++run) total += partials[o * runs + run];
    out[o] = static_cast<Sum>(static_cast<float>(total * factor));
  }
}

// x [O, R, I] -> out [O, I] with I > 1, in blocks of kDepth rows and kWidth columns, whose sums
// stay in the cache.
template <class T, class Sum>
void sum_columns(const T* x, Sum* out, int64_t outer, int64_t reduce, int64_t inner,
                 double factor) {
  constexpr int64_t kWidth = 256;
  const int64_t blocks = std::max<int64_t>(1, (reduce + kDepth - 1) / kDepth);
  const CategoryScope scope(Category::workspace);
  const Tensor partial = Tensor::empty({outer, blocks, inner}, DType::f32);
  float* partials = partial.mut<float>();
  parallel_for(0, outer * blocks, rows_at_once(kCopyGrain, std::min(reduce, kDepth) * inner + 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t k = begin; k < end; ++k) {
                   const int64_t first = k % blocks * kDepth;
                   const int64_t rows = std::min(kDepth, reduce - first);
                   const T* from = x + (k / blocks * reduce + first) * inner;
                   for (int64_t column = 0; column < inner; column += kWidth) {
                     const int64_t width = std::min(kWidth, inner - column);
                     std::array<float, kWidth> sums{};
                     for (int64_t r = 0; r < rows; ++r) {
                       const T* row = from + r * inner + column;
                       for (int64_t i = 0; i < width; ++i)
                         sums[static_cast<size_t>(i)] += static_cast<float>(row[i]);
                     }
                     std::copy_n(sums.data(), width, partials + k * inner + column);
                   }
                 }
               });
  parallel_for(0, outer * inner, rows_at_once(kCopyGrain, blocks), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const float* column = partials + k / inner * blocks * inner + k % inner;
      double total = 0;
      for (int64_t block = 0; block < blocks; ++block)
        total += static_cast<double>(column[block * inner]);
      out[k] = static_cast<Sum>(static_cast<float>(total * factor));
    }
  });
}

template <class T, class Index>
void max_columns(const Tensor& x, const Tensor& values, const Tensor& indices) {
  using Wide = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
  const int64_t reduce = x.size(1), inner = x.size(2);
  const T* from = x.data<T>();
  T* value = values.mut<T>();
  Index* index = indices.mut<Index>();
  parallel_for(0, values.numel(), rows_at_once(kCopyGrain, reduce),
               [&](int64_t begin, int64_t end) {
                 for (int64_t k = begin; k < end; ++k) {
                   const T* column = from + k / inner * reduce * inner + k % inner;
                   auto best = static_cast<Wide>(column[0]);
                   int64_t at = 0;
                   for (int64_t r = 1; r < reduce && !is_nan(best); ++r) {
                     const auto candidate = static_cast<Wide>(column[r * inner]);
                     if (candidate > best || is_nan(candidate)) {
                       best = candidate;
                       at = r;
                     }
                   }
                   value[k] = static_cast<T>(best);
                   index[k] = static_cast<Index>(at);
                 }
               });
}

template <class F>
void with_index_dtype(DType dtype, F&& f) {
  if (dtype == DType::u8) return f(uint8_t{});
  if (dtype == DType::i32) return f(int32_t{});
  FRUGAL_ASSERT(dtype == DType::i64);
  return f(int64_t{});
}

DType axis_index_dtype(int64_t extent) {
  if (extent <= 256) return DType::u8;
  return extent <= std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
}

MaxResult max_with(const char* op, const Tensor& x, int axis, bool keep_dim, DType index) {
  axis = normalize_axis(op, axis, x.dim());
  const Shape shape = reduced_shape(op, x.shape(), {axis}, keep_dim);
  FRUGAL_CHECK(x.shape()[axis] > 0 || shape.numel() == 0,
               "[{}] expected at least one element along axis {}, got {}", op, axis, describe(x));
  MaxResult result{Tensor::empty(shape, x.dtype(), x.device()),
                   Tensor::empty(shape, index, x.device())};
  if (shape.numel() == 0) return result;
  const Tensor folded = contiguous(x).view(
      {extent_of(x.shape(), 0, axis), x.shape()[axis], extent_of(x.shape(), axis + 1, x.dim())});
  dispatch(x.device(),
           [&](auto backend) { max_kernel(backend, folded, result.values, result.indices); });
  return result;
}

template <class T>
bool is_finite_at(const T* x, int64_t i) {
  if constexpr (sizeof(T) == 2)
    return is_finite(static_cast<float>(x[i]));
  else
    return is_finite(x[i]);
}

}  // namespace

Shape reduced_shape(const char* op, const Shape& shape, const std::vector<int>& axes,
                    bool keep_dim) {
  const uint32_t mask = axes_mask(op, shape, axes);
  Shape reduced;
  for (int axis = 0; axis < shape.dim(); ++axis) {
    if ((mask >> axis & 1u) == 0)
      reduced.push_back(shape[axis]);
    else if (keep_dim)
      reduced.push_back(1);
  }
  return reduced;
}

void sum_kernel(Cpu, const Tensor& x, const Tensor& out, double factor) {
  if (out.numel() == 0) return;
  if (x.dtype() == DType::f64) return sum_f64(x, out, factor);
  const int64_t outer = x.size(0), reduce = x.size(1), inner = x.size(2);
  const auto sum = [&]<class T, class Sum>(const T* from, Sum* to) {
    if (inner == 1)
      sum_rows(from, to, outer, reduce, factor);
    else
      sum_columns(from, to, outer, reduce, inner, factor);
  };
  if (x.dtype() == DType::f32)
    sum(x.data<float>(), out.mut<float>());
  else if (out.dtype() == DType::f32)
    sum(x.data<BFloat16>(), out.mut<float>());
  else
    sum(x.data<BFloat16>(), out.mut<BFloat16>());
}

void max_kernel(Cpu, const Tensor& x, const Tensor& values, const Tensor& indices) {
  const auto run = [&](auto zero) {
    with_index_dtype(indices.dtype(), [&](auto index) {
      max_columns<decltype(zero), decltype(index)>(x, values, indices);
    });
  };
  if (x.dtype() == DType::bf16) return run(BFloat16{});
  with_real(x.dtype(), run);
}

void max_backward_kernel(Cpu, const Tensor& dy, const Tensor& indices, const Tensor& dx) {
  const int64_t reduce = dx.size(1), inner = dx.size(2);
  with_dtype(dx.dtype(), [&](auto zero) {
    with_index_dtype(indices.dtype(), [&](auto index) {
      using T = decltype(zero);
      const T* from = dy.data<T>();
      const auto* at = indices.data<decltype(index)>();
      T* to = dx.mut<T>();
      std::fill_n(to, dx.numel(), T{0});
      for (int64_t k = 0; k < dy.numel(); ++k)
        to[(k / inner * reduce + static_cast<int64_t>(at[k])) * inner + k % inner] = from[k];
    });
  });
}

void first_nonfinite_kernel(Cpu, const Tensor& x, int64_t& index) {
  index = -1;
  if (!is_floating(x.dtype())) return;
  constexpr int64_t kBlock = 4096;  // a block is first checked as a whole, which SIMD does fast
  const auto search = [&](const auto* values) {
    for (int64_t start = 0; start < x.numel(); start += kBlock) {
      const int64_t end = std::min(start + kBlock, x.numel());
      int bad = 0;
      for (int64_t i = start; i < end; ++i) bad |= static_cast<int>(!is_finite_at(values, i));
      if (bad == 0) continue;
      for (index = start; is_finite_at(values, index);) ++index;
      return;
    }
  };
  if (x.dtype() == DType::f64) return search(x.data<double>());
  if (x.dtype() == DType::f32) return search(x.data<float>());
  if (x.dtype() == DType::bf16) return search(x.data<BFloat16>());
  return search(x.data<Float16>());
}

Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep_dim) {
  check_real("sum", "x", x);
  return sum_times("sum", x, axes, keep_dim, 1);
}

Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep_dim) {
  check_real("mean", "x", x);
  const int64_t outputs = reduced_shape("mean", x.shape(), axes, keep_dim).numel();
  FRUGAL_CHECK(x.numel() > 0, "[mean] expected at least one element, got {}", describe(x));
  return sum_times("mean", x, axes, keep_dim,
                   static_cast<double>(outputs) / static_cast<double>(x.numel()));
}

MaxResult max(const Tensor& x, int axis, bool keep_dim) {
  check_real("max", "x", x);
  return max_with("max", x, axis, keep_dim, axis_index_dtype(x.size(axis)));
}

Tensor argmax(const Tensor& x, int axis, bool keep_dim) {
  check_real("argmax", "x", x);
  return max_with("argmax", x, axis, keep_dim, DType::i64).indices;
}

Tensor max_backward(const Tensor& dy, const Tensor& indices, const Shape& shape, int axis) {
  check_real("max_backward", "dy", dy);
  axis = normalize_axis("max_backward", axis, shape.dim());
  check_shape("max_backward", "indices", indices, dy.shape());
  const int64_t outer = extent_of(shape, 0, axis), inner = extent_of(shape, axis + 1, shape.dim());
  FRUGAL_CHECK(dy.numel() == outer * inner, "[max_backward] expected dy of {} elements, got {}",
               outer * inner, describe(dy));
  Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  const Tensor folded = dx.view({outer, shape[axis], inner});
  const Tensor from = contiguous(dy), at = contiguous(indices);
  dispatch(dy.device(), [&](auto backend) { max_backward_kernel(backend, from, at, folded); });
  return dx;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined("sum_to", "x", x);
  if (x.shape() == shape) return x;
  const int extra = x.dim() - shape.dim();
  std::vector<int> axes;
  bool fits = extra >= 0;
  for (int axis = 0; fits && axis < x.dim(); ++axis) {
    if (axis < extra) {
      axes.push_back(axis);
    } else if (shape[axis - extra] != x.shape()[axis]) {
      fits = shape[axis - extra] == 1;
      axes.push_back(axis);
    }
  }
  FRUGAL_CHECK(fits, "[sum_to] expected a shape that broadcasts to {}, got {}", x.shape(), shape);
  check_real("sum_to", "x", x);
  return sum_times("sum_to", x, axes, true, 1).view(shape);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  check_defined("broadcast_to", "x", x);
  const int extra = shape.dim() - x.dim();
  bool fits = extra >= 0;
  Shape strides = shape;
  for (int axis = 0; fits && axis < shape.dim(); ++axis) {
    const bool repeated = axis < extra || (x.shape()[axis - extra] == 1 && shape[axis] != 1);
    fits = repeated || x.shape()[axis - extra] == shape[axis];
    strides[axis] = repeated ? 0 : x.strides()[axis - extra];
  }
  FRUGAL_CHECK(fits, "[broadcast_to] expected a tensor that broadcasts to {}, got {}", shape,
               describe(x));
  return x.as_strided(shape, strides, x.offset());
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) { return contiguous(expand(x, shape)); }

int64_t first_nonfinite(const Tensor& x) {
  check_defined("first_nonfinite", "x", x);
  int64_t index = -1;
  const Tensor flat = contiguous(x);
  dispatch(x.device(), [&](auto backend) { first_nonfinite_kernel(backend, flat, index); });
  return index;
}

}  // namespace frugal::ops
