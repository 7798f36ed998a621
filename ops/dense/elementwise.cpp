#include "ops/dense/elementwise.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise_loops.h"
#include "ops/dense/reduce.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"
#include "ops/simd/convert_loops.h"

namespace frugal::ops {
namespace {

const char* name_of(Binary op) {
  switch (op) {
    case Binary::add:
      return "add";
    case Binary::sub:
      return "sub";
    case Binary::mul:
      return "mul";
    case Binary::div:
      return "div";
  }
  throw InternalError("unknown binary op");
}

constexpr int64_t kElementBlock = 1 << 12;  // elements

// Calls f(F32Rows) over elements in blocks that do not depend on the number of threads. Other
// instructions may compute the last elements of a block, and these may round differently.
template <class F>
void for_elements(int64_t n, std::initializer_list<const Tensor*> in, const Tensor& out, F f) {
  for_f32_rows(n, 1, kElementBlock, kCopyGrain, in, {&out}, f);
}

// The axes of a broadcast. Neighbouring axes are merged where both operands allow it. Strides are
// in elements.
struct Broadcast {
  Shape shape, a, b;
};
Broadcast merged(const Tensor& a, const Tensor& b) {  // REQUIRES: a and b have one shape
  Broadcast out;
  for (int axis = 0; axis < a.dim(); ++axis) {
    const int64_t n = a.shape()[axis], sa = a.strides()[axis], sb = b.strides()[axis];
    if (n == 1) continue;
    const int last = out.shape.dim() - 1;
    if (last >= 0 && out.a[last] == n * sa && out.b[last] == n * sb) {
      out.shape[last] *= n;
      out.a[last] = sa;
      out.b[last] = sb;
    } else {
      out.shape.push_back(n);
      out.a.push_back(sa);
      out.b.push_back(sb);
    }
  }
  while (out.shape.dim() < 2) {  // at least rows and columns
    Broadcast outer;
    outer.shape.push_back(1);
    outer.a.push_back(0);
    outer.b.push_back(0);
    if (out.shape.dim() == 1) {
      outer.shape.push_back(out.shape[0]);
      outer.a.push_back(out.a[0]);
      outer.b.push_back(out.b[0]);
    }
    out = outer;
  }
  return out;
}

void binary_f32(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Broadcast all = merged(a, b);
  const int col = all.shape.dim() - 1, row = col - 1;
  const int64_t cols = all.shape[col], rows = y.numel() / cols;
  const float *pa = a.data<float>(), *pb = b.data<float>();
  float* py = y.mut<float>();
  if (rows == 1) {
    parallel_for(0, (cols + kElementBlock - 1) / kElementBlock, kCopyGrain / kElementBlock,
                 [&](int64_t first, int64_t last) {
                   for (int64_t begin = first * kElementBlock;
                        begin < std::min(cols, last * kElementBlock); begin += kElementBlock)
                     simd::binary(
                         op, pa + begin * all.a[col], pb + begin * all.b[col], py + begin,
                         {1, std::min(kElementBlock, cols - begin), 0, all.a[col], 0, all.b[col]});
                 });
    return;
  }
  parallel_for(0, rows, kCopyGrain / cols + 1, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      int64_t rest = begin, at_a = 0, at_b = 0;
      for (int axis = row; axis >= 0; --axis) {
        at_a += rest % all.shape[axis] * all.a[axis];
        at_b += rest % all.shape[axis] * all.b[axis];
        rest /= all.shape[axis];
      }
      const int64_t run = std::min(end - begin, all.shape[row] - begin % all.shape[row]);
      simd::binary(op, pa + at_a, pb + at_b, py + begin * cols,
                   {run, cols, all.a[row], all.a[col], all.b[row], all.b[col]});
      begin += run;
    }
  });
}

// A part of an operand of bf16 as f32: `rows` rows of `cols` elements from `from` on, whose strides
// are those of the operand. `wide` has room for rows * cols. Gives what simd::binary reads.
struct F32Part {
  const float* from;
  int64_t row, col;  // strides
};
F32Part widened(const BFloat16* from, int64_t rows, int64_t cols, int64_t row, int64_t col,
                float* wide) {
  const int64_t own_rows = row == 0 ? 1 : rows, own_cols = col == 0 ? 1 : cols;
  if (col <= 1 && (own_rows == 1 || row == own_cols)) {
    simd::widen(from, wide, own_rows * own_cols);
  } else {
    for (int64_t r = 0; r < own_rows; ++r)
      for (int64_t c = 0; c < own_cols; ++c)
        wide[r * own_cols + c] = static_cast<float>(from[r * row + c * col]);
  }
  return {wide, row == 0 ? 0 : own_cols, col == 0 ? 0 : 1};
}

// Blocks of f32 stand for the parts that are computed, so nothing whole is copied.
void binary_bf16(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Broadcast all = merged(a, b);
  const int last = all.shape.dim() - 1, before = last - 1;
  const int64_t cols = all.shape[last], rows = y.numel() / cols;
  // A block is some rows of all columns, or some columns of one row.
  const int64_t strip = std::min(cols, kElementBlock), strips = (cols + strip - 1) / strip,
                height = std::max<int64_t>(kElementBlock / cols, 1);
  const auto *pa = a.data<BFloat16>(), *pb = b.data<BFloat16>();
  auto* py = y.mut<BFloat16>();
  parallel_for(0, rows * strips, kCopyGrain / strip + 1, [&](int64_t begin, int64_t end) {
    std::vector<float> wide(static_cast<size_t>(3 * strip * height));
    float *of_a = wide.data(), *of_b = of_a + strip * height, *of_y = of_b + strip * height;
    while (begin < end) {
      const int64_t first = begin / strips, column = begin % strips * strip;
      int64_t rest = first, at_a = column * all.a[last], at_b = column * all.b[last];
      for (int axis = before; axis >= 0; --axis) {
        at_a += rest % all.shape[axis] * all.a[axis];
        at_b += rest % all.shape[axis] * all.b[axis];
        rest /= all.shape[axis];
      }
      const int64_t within = all.shape[before] - first % all.shape[before];
      const int64_t n = strips > 1 ? 1 : std::min({end - begin, within, height});
      const int64_t width = std::min(strip, cols - column);
      const F32Part in_a = widened(pa + at_a, n, width, all.a[before], all.a[last], of_a),
                    in_b = widened(pb + at_b, n, width, all.b[before], all.b[last], of_b);
      simd::binary(op, in_a.from, in_b.from, of_y,
                   {n, width, in_a.row, in_a.col, in_b.row, in_b.col});
      simd::narrow(of_y, py + first * cols + column, n * width);
      begin += n;
    }
  });
}

// The offset of the element with this flat index.
int64_t offset_of(const Tensor& t, int64_t index) {
  int64_t offset = 0;
  for (int axis = t.dim() - 1; axis >= 0; --axis) {
    offset += index % t.shape()[axis] * t.strides()[axis];
    index /= t.shape()[axis];
  }
  return offset;
}

}  // namespace

void binary_kernel(Cpu, Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (y.numel() == 0) return;
  const Tensor wide_a = expand(a, y.shape()), wide_b = expand(b, y.shape());
  if (y.dtype() == DType::f32) return binary_f32(op, wide_a, wide_b, y);
  if (y.dtype() == DType::bf16) {
    if (wide_a.is_contiguous() && wide_b.is_contiguous())
      return for_elements(y.numel(), {&wide_a, &wide_b}, y, [op](const F32Rows& x) {
        simd::binary(op, x.in[0], x.in[1], x.out[0], {1, x.rows, 0, 1, 0, 1});
      });
    return binary_bf16(op, wide_a, wide_b, y);
  }
  with_binary(op, [&](auto f) {
    for (int64_t i = 0; i < y.numel(); ++i)
      y.mut<double>()[i] = f(wide_a.data<double>()[offset_of(wide_a, i)],
                             wide_b.data<double>()[offset_of(wide_b, i)]);
  });
}

void affine_kernel(Cpu, const Tensor& x, double factor, double term, const Tensor& y) {
  if (x.dtype() == DType::f64) {
    for (int64_t i = 0; i < x.numel(); ++i)
      y.mut<double>()[i] = x.data<double>()[i] * factor + term;
    return;
  }
  for_elements(x.numel(), {&x}, y, [&](const F32Rows& e) {
    simd::affine(e.in[0], static_cast<float>(factor), static_cast<float>(term), e.out[0], e.rows);
  });
}

void unary_kernel(Cpu, Unary op, const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::f64) {
    with_unary(op, [&](auto f) {
      for (int64_t i = 0; i < x.numel(); ++i) y.mut<double>()[i] = f.f(x.data<double>()[i]);
    });
    return;
  }
  for_elements(x.numel(), {&x}, y,
               [&](const F32Rows& e) { simd::unary(op, e.in[0], e.out[0], e.rows); });
}

void unary_backward_kernel(Cpu, Unary op, const Tensor& dy, const Tensor& saved, const Tensor& dx) {
  if (dy.dtype() == DType::f64) {
    with_unary(op, [&](auto f) {
      if constexpr (requires { f.df(0.0, 0.0); })
        for (int64_t i = 0; i < dy.numel(); ++i)
          dx.mut<double>()[i] = f.df(dy.data<double>()[i], saved.data<double>()[i]);
    });
    return;
  }
  for_elements(dy.numel(), {&dy, &saved}, dx, [&](const F32Rows& e) {
    simd::unary_backward(op, e.in[0], e.in[1], e.out[0], e.rows);
  });
}

void unary_estimate_kernel(Cpu, Unary op, const Tensor& x, const Tensor& variance,
                           const Tensor& y) {
  if (x.dtype() == DType::f64) {
    with_unary(op, [&](auto f) {
      if constexpr (is_smooth<decltype(f)>)
        for (int64_t i = 0; i < x.numel(); ++i)
          y.mut<double>()[i] = estimate(f, x.data<double>()[i], variance.data<double>()[i]);
    });
    return;
  }
  for_elements(x.numel(), {&x, &variance}, y, [&](const F32Rows& e) {
    simd::unary_estimate(op, e.in[0], e.in[1], e.out[0], e.rows);
  });
}

void unary_backward_estimate_kernel(Cpu, Unary op, const Tensor& dy, const Tensor& x,
                                    const Tensor& variance, const Tensor& dx) {
  if (x.dtype() == DType::f64) {
    with_unary(op, [&](auto f) {
      if constexpr (is_smooth<decltype(f)>)
        for (int64_t i = 0; i < x.numel(); ++i)
          dx.mut<double>()[i] = backward_estimate(f, dy.data<double>()[i], x.data<double>()[i],
                                                  variance.data<double>()[i]);
    });
    return;
  }
  for_elements(x.numel(), {&dy, &x, &variance}, dx, [&](const F32Rows& e) {
    simd::unary_backward_estimate(op, e.in[0], e.in[1], e.in[2], e.out[0], e.rows);
  });
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  const char* name = name_of(op);
  check_real(name, "a", a);
  check_real(name, "b", b);
  check_same(name, a, {&b});
  Tensor y = Tensor::empty(broadcast_shape(name, a.shape(), b.shape()), a.dtype(), a.device());
  dispatch(a.device(), [&](auto backend) { binary_kernel(backend, op, a, b, y); });
  return y;
}

Tensor affine(const Tensor& x, double factor, double term) {
  check_real("scale", "x", x);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { affine_kernel(backend, in, factor, term, y); });
  return y;
}

const char* name_of(Unary op) {
  switch (op) {
    case Unary::neg:
      return "neg";
    case Unary::exp:
      return "exp";
    case Unary::log:
      return "log";
    case Unary::sqrt:
      return "sqrt";
    case Unary::sigmoid:
      return "sigmoid";
    case Unary::tanh:
      return "tanh";
    case Unary::gelu_exact:
    case Unary::gelu_tanh:
      return "gelu";
    case Unary::silu:
      return "silu";
  }
  throw InternalError("unknown unary op");
}

Unary unary_of(Gelu kind) {
  switch (kind) {
    case Gelu::exact:
      return Unary::gelu_exact;
    case Gelu::tanh:
      break;
  }
  return Unary::gelu_tanh;
}

Tensor unary(Unary op, const Tensor& x) {
  check_real(name_of(op), "x", x);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { unary_kernel(backend, op, in, y); });
  return y;
}

Tensor unary_backward(Unary op, const Tensor& dy, const Tensor& saved) {
  FRUGAL_ASSERT(op != Unary::neg);
  check_shape(name_of(op), "dy", dy, saved.shape());
  check_same(name_of(op), dy, {&saved});
  const Tensor gradient = contiguous(dy), kept = contiguous(saved);
  Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  dispatch(dy.device(),
           [&](auto backend) { unary_backward_kernel(backend, op, gradient, kept, dx); });
  return dx;
}

bool has_estimate(Unary op) {
  bool answer = false;
  with_unary(op, [&](auto f) { answer = is_smooth<decltype(f)>; });
  return answer;
}

Tensor unary_estimate(Unary op, const Tensor& x, const Tensor& variance) {
  FRUGAL_ASSERT(has_estimate(op));
  check_real(name_of(op), "x", x);
  check_shape(name_of(op), "the variance", variance, x.shape());
  check_same(name_of(op), x, {&variance});
  const Tensor in = contiguous(x), squares = contiguous(variance);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { unary_estimate_kernel(backend, op, in, squares, y); });
  return y;
}

Tensor unary_backward_estimate(Unary op, const Tensor& dy, const Tensor& x,
                               const Tensor& variance) {
  FRUGAL_ASSERT(has_estimate(op));
  check_shape(name_of(op), "dy", dy, x.shape());
  check_shape(name_of(op), "the variance", variance, x.shape());
  check_same(name_of(op), dy, {&x, &variance});
  const Tensor gradient = contiguous(dy), in = contiguous(x), squares = contiguous(variance);
  Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  dispatch(dy.device(), [&](auto backend) {
    unary_backward_estimate_kernel(backend, op, gradient, in, squares, dx);
  });
  return dx;
}

}  // namespace frugal::ops
