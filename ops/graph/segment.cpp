#include "ops/graph/segment.h"

#include <cmath>
#include <cstring>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/f32_blocks.h"
#include "ops/graph/spmm.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

void check_segment_rows(const char* op, const Tensor& x) {
  check_real(op, "x", x);
  check_dim(op, "x", x, 2);
}

void check_index(const char* op, const Tensor& x, const Tensor& index) {
  check_segment_rows(op, x);
  check_dim(op, "index", index, 1);
  const bool reachable = index.device() == x.device() || x.device().type == DeviceType::meta;
  FRUGAL_CHECK(index.dtype() == DType::i64 && reachable,
               "[{}] expected index of dtype i64 on {}, got {}", op, x.device().str(),
               describe(index));
}

// The elements of each segment, as a matrix of ones.
Csr grouped(const char* op, const Tensor& x, const Tensor& index, int64_t rows) {
  check_segment_rows(op, x);
  FRUGAL_CHECK(rows >= 0, "[{}] expected rows >= 0, got {}", op, rows);
  check_shape(op, "index", index, {x.size(0)});
  check_index(op, x, index);
  CategoryScope scope(Category::workspace);
  return group_by(op, index, rows);
}

// Calls f(first element of row e, first element of row index[e], width) for every row e of [E, F].
template <class F>
void each_row(const Tensor& shaped, const Tensor& index, F f) {
  const int64_t width = shaped.size(1);
  if (width == 0) return;
  const auto* row = index.data<int64_t>();
  parallel_for(0, shaped.size(0), kArithmeticGrain / width + 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) f(e * width, row[e] * width, width);
  });
}

}  // namespace

void gather_rows_kernel(Cpu, const Tensor& x, const Tensor& index, const Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t width = x.size(1);
  const auto bytes = static_cast<size_t>(width) * size_of(x.dtype());
  const auto* from = static_cast<const char*>(x.raw());
  auto* to = static_cast<char*>(y.raw());
  const auto* row = index.data<int64_t>();
  parallel_for(0, y.size(0), kArithmeticGrain / width + 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e)
      std::memcpy(to + static_cast<size_t>(e) * bytes, from + static_cast<size_t>(row[e]) * bytes,
                  bytes);
  });
}

Tensor gather_rows(const Tensor& x, const Tensor& index) {
  check_index("gather_rows", x, index);
  const Tensor in = contiguous(x), rows = contiguous(index);
  if (index.device() == kCpu)
    for (int64_t e = 0; e < rows.numel(); ++e) {
      const int64_t row = rows.data<int64_t>()[e];
      FRUGAL_CHECK(row >= 0 && row < x.size(0),
                   "[gather_rows] expected indices 0 to {}, got {} at {}", x.size(0) - 1, row, e);
    }
  Tensor y = Tensor::empty({index.size(0), x.size(1)}, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { gather_rows_kernel(backend, in, rows, y); });
  return y;
}

Tensor segment_sum(const Tensor& x, const Tensor& index, int64_t rows) {
  return spmm(grouped("segment_sum", x, index, rows), x);
}

Tensor segment_mean(const Tensor& x, const Tensor& index, int64_t rows) {
  SpmmOptions options;
  options.mean = true;
  return spmm(grouped("segment_mean", x, index, rows), x, options);
}

void segment_mean_backward_kernel(Cpu, const Tensor& dy, const Tensor& index, const Tensor& dx) {
  if (dx.dtype() == DType::bf16) {
    InF32 wide;
    segment_mean_backward_kernel(Cpu{}, wide.read(dy), index, wide.write(dx));
    return wide.finish();
  }
  std::vector<int64_t> counts(static_cast<size_t>(dy.size(0)), 0);
  for (int64_t e = 0; e < index.numel(); ++e)
    ++counts[static_cast<size_t>(index.data<int64_t>()[e])];
  with_real(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row(dx, index, [&](int64_t at, int64_t row, int64_t width) {
      const T count = static_cast<T>(counts[static_cast<size_t>(row / width)]);
      for (int64_t f = 0; f < width; ++f) dx.mut<T>()[at + f] = dy.data<T>()[row + f] / count;
    });
  });
}

Tensor segment_mean_backward(const Tensor& dy, const Tensor& index) {
  check_index("segment_mean backward", dy, index);
  const Tensor in = contiguous(dy), rows = contiguous(index);
  Tensor dx = Tensor::empty({index.size(0), dy.size(1)}, dy.dtype(), dy.device());
  count_in_f32(dy, {&in}, {&dx});
  dispatch(dy.device(), [&](auto backend) { segment_mean_backward_kernel(backend, in, rows, dx); });
  return dx;
}

void segment_elements_kernel(Cpu, const Csr& groups, const Tensor& entry, const Tensor& element) {
  const int64_t width = element.size(1);
  const auto* ptr = groups.row_ptr.data<int64_t>();
  const auto* from = groups.col.data<int32_t>();
  const bool bytes = entry.dtype() == DType::u8;
  parallel_for(0, groups.rows, kArithmeticGrain / (width + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = r * width; i < (r + 1) * width; ++i) {
        const int64_t at = bytes ? static_cast<int64_t>(entry.data<uint8_t>()[i])
                                 : static_cast<int64_t>(entry.data<int32_t>()[i]);
        element.mut<int32_t>()[i] = ptr[r] == ptr[r + 1] ? -1 : from[ptr[r] + at];
      }
  });
}

SegmentMax segment_max(const Tensor& x, const Tensor& index, int64_t rows) {
  const Csr groups = grouped("segment_max", x, index, rows);
  const RowMax found = spmm_max(groups, x);
  SegmentMax out{found.y, Tensor::empty(found.y.shape(), DType::i32, x.device())};
  dispatch(x.device(), [&](auto backend) {
    segment_elements_kernel(backend, groups, found.index, out.element);
  });
  return out;
}

void segment_max_backward_kernel(Cpu, const Tensor& dy, const Tensor& element, const Tensor& dx) {
  if (dx.dtype() == DType::bf16) {
    InF32 wide;
    segment_max_backward_kernel(Cpu{}, wide.read(dy), element, wide.write(dx));
    return wide.finish();
  }
  fill_kernel(Cpu{}, dx, 0);
  const int64_t width = dy.size(1);
  const auto* from = element.data<int32_t>();
  with_real(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    // Each element belongs to one row, so no two threads write to one place.
    parallel_for(0, dy.size(0), kArithmeticGrain / (width + 1) + 1,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin * width; i < end * width; ++i)
                     if (from[i] >= 0) dx.mut<T>()[from[i] * width + i % width] = dy.data<T>()[i];
                 });
  });
}

Tensor segment_max_backward(const Tensor& dy, const Tensor& element, int64_t elements) {
  check_segment_rows("segment_max backward", dy);
  check_shape("segment_max backward", "the index", element, dy.shape());
  const Tensor in = contiguous(dy);
  Tensor dx = Tensor::empty({elements, dy.size(1)}, dy.dtype(), dy.device());
  count_in_f32(dy, {&in}, {&dx});
  dispatch(dy.device(),
           [&](auto backend) { segment_max_backward_kernel(backend, in, element, dx); });
  return dx;
}

void segment_exp_kernel(Cpu, const Tensor& x, const Tensor& largest, const Tensor& index,
                        const Tensor& y) {
  if (x.dtype() == DType::bf16) {
    InF32 wide;
    segment_exp_kernel(Cpu{}, wide.read(x), wide.read(largest), index, wide.write(y));
    return wide.finish();
  }
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row(x, index, [&](int64_t at, int64_t row, int64_t width) {
      for (int64_t f = 0; f < width; ++f)
        y.mut<T>()[at + f] = std::exp(x.data<T>()[at + f] - largest.data<T>()[row + f]);
    });
  });
}

void segment_divide_kernel(Cpu, const Tensor& y, const Tensor& total, const Tensor& index) {
  if (y.dtype() == DType::bf16) {
    InF32 wide;
    segment_divide_kernel(Cpu{}, wide.write(y, true), wide.read(total), index);
    return wide.finish();
  }
  with_real(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row(y, index, [&](int64_t at, int64_t row, int64_t width) {
      for (int64_t f = 0; f < width; ++f) y.mut<T>()[at + f] /= total.data<T>()[row + f];
    });
  });
}

Tensor segment_softmax(const Tensor& x, const Tensor& index, int64_t rows) {
  const Csr groups = grouped("segment_softmax", x, index, rows);
  const Tensor in = contiguous(x), row = contiguous(index);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  CategoryScope scope(Category::workspace);
  const Tensor largest = spmm_max(groups, in).y;
  count_in_f32(x, {&in, &largest}, {&y});
  dispatch(x.device(), [&](auto backend) { segment_exp_kernel(backend, in, largest, row, y); });
  const Tensor total = spmm(groups, y);
  count_in_f32(x, {&total}, {&y});
  dispatch(x.device(), [&](auto backend) { segment_divide_kernel(backend, y, total, row); });
  return y;
}

void segment_softmax_backward_kernel(Cpu, const Tensor& dx, const Tensor& y, const Tensor& total,
                                     const Tensor& index) {
  if (dx.dtype() == DType::bf16) {
    InF32 wide;
    segment_softmax_backward_kernel(Cpu{}, wide.write(dx, true), wide.read(y), wide.read(total),
                                    index);
    return wide.finish();
  }
  with_real(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row(dx, index, [&](int64_t at, int64_t row, int64_t width) {
      for (int64_t f = 0; f < width; ++f)
        dx.mut<T>()[at + f] -= y.data<T>()[at + f] * total.data<T>()[row + f];
    });
  });
}

Tensor segment_softmax_backward(const Tensor& dy, const Tensor& y, const Tensor& index,
                                int64_t rows) {
  check_same("segment_softmax backward", dy, {&y});
  check_shape("segment_softmax backward", "y", y, dy.shape());
  Tensor dx = mul(dy, y);
  Tensor total;
  {
    CategoryScope scope(Category::workspace);
    total = spmm(grouped("segment_softmax backward", dx, index, rows), dx);
  }
  const Tensor out = contiguous(y), row = contiguous(index);
  count_in_f32(dx, {&out, &total}, {&dx});
  dispatch(dx.device(),
           [&](auto backend) { segment_softmax_backward_kernel(backend, dx, out, total, row); });
  return dx;
}

}  // namespace frugal::ops
