#include "ops/dense/matmul.h"

#include <algorithm>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/matmul_reference.h"
#include "ops/dense/reduce.h"
#include "ops/dense/row_product.h"
#include "ops/f32_blocks.h"
#include "ops/kernel_memory.h"
#include "ops/onednn.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

constexpr const char* kMatmul = "matmul";

bool is_transposed(const Tensor& x) { return x.transpose(-1, -2).is_contiguous(); }

// x in a layout that the kernels take.
Tensor prepared(const Tensor& x) {
  return x.is_contiguous() || is_transposed(x) ? x : contiguous(x);
}

// x with leading axes of extent 1, so that it has `dim` axes.
Tensor with_axes(const Tensor& x, int dim) {
  Shape shape, strides;
  for (int axis = x.dim(); axis < dim; ++axis) {
    shape.push_back(1);
    strides.push_back(x.numel());
  }
  for (int axis = 0; axis < x.dim(); ++axis) {
    shape.push_back(x.shape()[axis]);
    strides.push_back(x.strides()[axis]);
  }
  return x.as_strided(shape, strides, x.offset());
}

// The offset, in elements, of batch item `batch` of c in x, which may broadcast along axes of
// extent 1.
int64_t batch_offset(const Tensor& x, const Shape& c, int64_t batch) {
  int64_t offset = 0;
  for (int axis = c.dim() - 3; axis >= 0; --axis) {
    if (x.shape()[axis] != 1) offset += batch % c[axis] * x.strides()[axis];
    batch /= c[axis];
  }
  return offset;
}

// From one row of the output c to the next one. The rows of a strip of columns lie apart.
int64_t row_stride(const Tensor& c) {
  return c.is_contiguous() ? c.size(-1) : c.strides()[c.dim() - 2];
}

// What c holds before the product: values to ignore, or values to which the product is added.
enum class Onto : uint8_t { nothing, itself };

// Rows [first, first + rows) of batch `batch` (counted over c's batch axes) of x.
MatrixView<const double> matrix_of(const Tensor& x, const Shape& c, int64_t batch, int64_t first,
                                   int64_t rows) {
  const bool transposed = !x.is_contiguous();
  const int64_t stride = x.size(transposed ? -2 : -1);
  return {x.data<double>() + batch_offset(x, c, batch) + first * (transposed ? 1 : stride), rows,
          x.size(-1), transposed, stride};
}

// Blocks of rows are of a fixed size, so that the bits do not depend on the number of threads.
void matmul_reference(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias,
                      Onto onto) {
  constexpr int64_t kRows = 64;
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1);
  const int64_t blocks = (m + kRows - 1) / kRows, stride = row_stride(c);
  parallel_for(0, c.numel() / (m * n) * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t batch = block / blocks, first = block % blocks * kRows;
      const int64_t rows = std::min(kRows, m - first);
      double* pc = c.mut<double>() + (batch * m + first) * stride;
      for (int64_t i = 0; i < rows; ++i) {
        double* const row = pc + i * stride;
        if (onto == Onto::nothing) std::fill_n(row, n, 0.0);
        if (bias.defined()) std::transform(row, row + n, bias.data<double>(), row, std::plus<>());
      }
      add_product({pc, rows, n, false, stride}, matrix_of(a, c.shape(), batch, first, rows),
                  matrix_of(b, c.shape(), batch, 0, k));
    }
  });
}

std::vector<int64_t> list(const Shape& shape) { return {shape.begin(), shape.end()}; }

onednn::Desc desc_of(const Tensor& x, DType dtype) {
  // The strides of axes of extent 1 do not matter. Canonical strides keep oneDNN on its fast paths.
  const bool transposed = !x.is_contiguous();
  Shape strides = contiguous_strides(x.shape());
  if (transposed) {
    strides[x.dim() - 2] = 1;
    strides[x.dim() - 1] = x.shape()[x.dim() - 2];
  }
  return onednn::desc(list(x.shape()), list(strides), dtype);
}
onednn::Desc desc_of(const Tensor& x) { return desc_of(x, x.dtype()); }

onednn::Desc desc_of_output(const Tensor& c) {
  return c.is_contiguous() ? desc_of(c)
                           : onednn::desc(list(c.shape()), list(c.strides()), c.dtype());
}

// Checks dy [..., O] against x [..., I].
void check_linear_rows(const Tensor& dy, const Tensor& x) {
  check_real("linear backward", "dy", dy);
  check_defined("linear backward", "x", x);
  check_same("linear backward", dy, {&x});
  FRUGAL_CHECK(dy.dim() == x.dim() && dy.dim() >= 1 && rows_of(dy) == rows_of(x),
               "[linear backward] expected dy [..., O] and x [..., I] with the same rows, got {} "
               "and {}",
               dy.shape(), x.shape());
}

onednn::Desc desc_of_bias(const Tensor& c, const Tensor& bias) {
  std::vector<int64_t> dims(static_cast<size_t>(c.dim()), 1);
  dims.back() = c.size(-1);
  return onednn::desc(dims, list(contiguous_strides(Shape(std::span<const int64_t>(dims)))),
                      bias.dtype());
}

// Beside bf16, an f32 operand is rounded to bf16 for the product.
const onednn::Plan& plan_of(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias,
                            Onto onto) {
  const auto name = [](const Tensor& x) { return x.defined() ? name_of(x.dtype()) : "none"; };
  const std::string key = fmt::format(
      "matmul{} {}{}{} {}{}{} {}{} {} {}", onto == Onto::itself ? " onto" : "", a.shape(),
      a.is_contiguous() ? "" : "t", name(a), b.shape(), b.is_contiguous() ? "" : "t", name(b),
      c.shape(), name(c), name(bias), row_stride(c));
  return onednn::cached_plan(onednn::Work::product, key, [&] {
    using P = dnnl::matmul;
    const auto attr = onto == Onto::itself ? onednn::adding() : onednn::user_scratchpad();
    const bool half = a.dtype() == DType::bf16 || b.dtype() == DType::bf16;
    const DType type = half ? DType::bf16 : DType::f32;
    const onednn::Desc left = desc_of(a, type), right = desc_of(b, type);
    onednn::Plan plan = onednn::Plan::of<P>(
        bias.defined() ? onednn::describe_with<P>(attr, {}, left, right, desc_of_bias(c, bias),
                                                  desc_of_output(c))
                       : onednn::describe_with<P>(attr, {}, left, right, desc_of_output(c)));
    plan.repack(DNNL_ARG_SRC, desc_of(a), left, onednn::Direction::input);
    plan.repack(DNNL_ARG_WEIGHTS, desc_of(b), right, onednn::Direction::input);
    return plan;
  });
}

bool has_bf16(const Tensor& a, const Tensor& b, const Tensor& c) {
  return a.dtype() == DType::bf16 || b.dtype() == DType::bf16 || c.dtype() == DType::bf16;
}

// Is this a product of bf16 that oneDNN does not take here? It is computed with copies in f32.
bool computes_in_f32(const Tensor& a, const Tensor& b, const Tensor& c) {
  return has_bf16(a, b, c) && !onednn::takes(DType::bf16);
}

// Is c the product of one row and a weight [N, K]? oneDNN would copy the weight to another layout,
// which takes several times as long as to read it once: the work of a model that writes a text.
bool is_row_product(const Tensor& c, const Tensor& a, const Tensor& b, Onto onto) {
  return c.dtype() == DType::f32 && a.dtype() == DType::f32 && b.dtype() == DType::f32 &&
         onto == Onto::nothing && c.dim() == 2 && c.size(0) == 1 && a.is_contiguous() &&
         is_transposed(b);
}

void row_product(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  constexpr int64_t kGrain = int64_t{1} << 15;  // elements of the weight that pay for a thread
  const int64_t n = a.size(1);
  parallel_for(0, c.size(1), std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    simd::row_products(a.data<float>(), b.data<float>() + begin * n,
                       bias.defined() ? bias.data<float>() + begin : nullptr, end - begin, n,
                       c.mut<float>() + begin);
  });
}

// Threads share the sums of a product with a transposed left operand, as those of a weight's
// gradient, where these have 2048 terms and more (oneDNN 2.6, AVX-512). Then the bits depend on the
// number of threads. So such sums are added up in parts of kSumPart terms. Over 169,343 nodes, a
// step of a GCN takes 0.6 % longer; with parts of half the size it took 2.4 %.
constexpr int64_t kSumPart = 2032;
bool adds_parts(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (c.dtype() == DType::f64 || bias.defined() || a.size(-1) <= kSumPart) return false;
  return !a.is_contiguous() || (c.dim() == 2 && is_transposed(a) && b.is_contiguous());
}
// Calls f(c, a, b, onto) for the terms of each part of each product of a batch: those of a batch
// lie apart, and oneDNN's kernels for such matrices share shorter sums, too. A sum is f32 until it
// is whole.
template <class F>
void for_sum_parts(const Tensor& c, const Tensor& a, const Tensor& b, Onto onto, F f) {
  const CategoryScope scope(Category::workspace);
  InF32 wide;
  const Tensor sums = wide.write(c, onto == Onto::itself), right = contiguous(b);
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1);
  for (int64_t batch = 0; batch < c.numel() / (m * n); ++batch) {
    const bool one = c.dim() == 2;
    const auto of = [&](const Tensor& x, const Shape& shape, const Shape& strides) {
      return x.as_strided(shape, strides, x.offset() + batch_offset(x, c.shape(), batch));
    };
    const Tensor sum = one ? sums : of(sums, {m, n}, {n, 1}),
                 left = one ? a : of(a, {m, k}, {1, m}),
                 other = one ? right : of(right, {k, n}, {n, 1});
    for (int64_t begin = 0; begin < k; begin += kSumPart) {
      const int64_t end = std::min(begin + kSumPart, k);
      f(sum, left.slice(1, begin, end), other.slice(0, begin, end),
        begin == 0 ? onto : Onto::itself);
    }
  }
  wide.finish();
}

void multiply(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias, Onto onto) {
  if (c.dtype() == DType::f64) return matmul_reference(c, a, b, bias, onto);
  if (is_row_product(c, a, b, onto)) return row_product(c, a, b, bias);
  if (adds_parts(c, a, b, bias))
    return for_sum_parts(c, a, b, onto,
                         [](const Tensor& sum, const Tensor& left, const Tensor& right, Onto next) {
                           multiply(sum, left, right, {}, next);
                         });
  if (computes_in_f32(a, b, c)) {
    InF32 wide;
    const Tensor out = wide.write(c, onto == Onto::itself);
    multiply(out, wide.read(a), wide.read(b), wide.read(bias), onto);
    return wide.finish();
  }
  onednn::guarded(kMatmul, [&] {
    const onednn::Plan& plan = plan_of(c, a, b, bias, onto);
    const onednn::Argument left{DNNL_ARG_SRC, a.raw(), desc_of(a)};
    const onednn::Argument right{DNNL_ARG_WEIGHTS, b.raw(), desc_of(b)};
    const onednn::Argument out{DNNL_ARG_DST, c.raw(), desc_of_output(c)};
    if (bias.defined())
      onednn::execute(plan, {left, right, {DNNL_ARG_BIAS, bias.raw(), desc_of_bias(c, bias)}},
                      {out});
    else
      onednn::execute(plan, {left, right}, {out});
  });
}

// Counts on `meta` what the product takes on the CPU.
void count_product(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias = {},
                   Onto onto = Onto::nothing) {
  if (!counts_kernel_memory(c.device()) || c.numel() == 0 || a.size(-1) == 0 ||
      is_row_product(c, a, b, onto))
    return;
  if (adds_parts(c, a, b, bias))
    return for_sum_parts(c, a, b, onto,
                         [](const Tensor& sum, const Tensor& left, const Tensor& right, Onto next) {
                           count_product(sum, left, right, {}, next);
                         });
  if (computes_in_f32(a, b, c)) {
    InF32 wide;
    const Tensor out = wide.write(c, onto == Onto::itself);
    return count_product(out, wide.read(a), wide.read(b), wide.read(bias), onto);
  }
  if (!has_bf16(a, b, c) && !onednn::takes(c.dtype())) return;
  onednn::guarded(kMatmul, [&] { onednn::account(plan_of(c, a, b, bias, onto)); });
}

// A weight and a bias beside x. Beside a bf16 x they are f32, or bf16 where the caller cast them
// for several products.
void check_parameters(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.dtype() == DType::bf16 && weight.dtype() == DType::bf16)
    check_same(op, x, {&weight, &bias});
  else
    check_beside(op, x, {&weight, &bias});
}

// a [M, K] b [K, N].
Tensor product(const Tensor& a, const Tensor& b, DType dtype) {
  const Tensor left = prepared(a), right = prepared(b);
  Tensor c = Tensor::empty({a.size(0), b.size(1)}, dtype, a.device());
  dispatch(a.device(), [&](auto backend) { matmul_kernel(backend, c, left, right, {}); });
  count_product(c, left, right);
  return c;
}

}  // namespace

void matmul_kernel(Cpu, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (c.numel() == 0) return;
  if (a.size(-1) > 0) return multiply(c, a, b, bias, Onto::nothing);
  fill_kernel(Cpu{}, c, 0);
  if (!bias.defined()) return;
  Shape rows = c.shape(), strides = c.shape();
  for (int axis = 0; axis < rows.dim(); ++axis) strides[axis] = axis + 1 == rows.dim() ? 1 : 0;
  copy_kernel(Cpu{}, c, bias.as_strided(rows, strides, bias.offset()));
}

void multiply_into(const Tensor& c, const Tensor& a, const Tensor& b) {
  FRUGAL_ASSERT(c.dim() == 2 && c.strides()[1] == 1 && c.numel() > 0 && a.size(1) > 0);
  dispatch(c.device(), [&](auto backend) { matmul_kernel(backend, c, a, b, {}); });
  count_product(c, a, b);
}

void matmul_add_kernel(Cpu, const Tensor& c, const Tensor& a, const Tensor& b) {
  if (c.numel() > 0 && a.size(-1) > 0) multiply(c, a, b, {}, Onto::itself);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_real(kMatmul, "a", a);
  check_real(kMatmul, "b", b);
  check_same(kMatmul, a, {&b});
  FRUGAL_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-2),
               "[matmul] expected [..., M, K] and [..., K, N], got {} and {}", a.shape(),
               b.shape());
  const int dim = std::max(a.dim(), b.dim());
  const Tensor left = with_axes(prepared(a), dim), right = with_axes(prepared(b), dim);
  Shape batch_a, batch_b;
  for (int axis = 0; axis < dim - 2; ++axis) {
    batch_a.push_back(left.shape()[axis]);
    batch_b.push_back(right.shape()[axis]);
  }
  Shape shape = broadcast_shape(kMatmul, batch_a, batch_b);
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  Tensor c = Tensor::empty(shape, a.dtype(), a.device());
  dispatch(a.device(), [&](auto backend) { matmul_kernel(backend, c, left, right, {}); });
  count_product(c, left, right);
  return c;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_real("linear", "x", x);
  check_dim("linear", "weight", weight, 2);
  check_parameters("linear", x, weight, bias);
  FRUGAL_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1),
               "[linear] expected x [..., {}] for weight {}, got {}", weight.size(1),
               weight.shape(), x.shape());
  if (bias.defined()) check_shape("linear", "bias", bias, {weight.size(0)});
  const Tensor rows = as_rows(x);
  const Tensor w = contiguous(weight), b = contiguous_or_none(bias);
  Shape shape = x.shape();
  shape[shape.dim() - 1] = weight.size(0);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor out = y.view({rows.size(0), weight.size(0)});
  dispatch(x.device(),
           [&](auto backend) { matmul_kernel(backend, out, rows, w.transpose(0, 1), b); });
  count_product(out, rows, w.transpose(0, 1), b);
  return y;
}

Tensor linear_backward_input(const Tensor& dy, const Tensor& weight) {
  check_real("linear backward", "dy", dy);
  check_defined("linear backward", "weight", weight);
  check_parameters("linear backward", dy, weight, {});
  FRUGAL_CHECK(weight.dim() == 2 && dy.dim() >= 1 && dy.size(-1) == weight.size(0),
               "[linear backward] expected dy [..., O] and weight [O, I], got {} and {}",
               dy.shape(), weight.shape());
  Shape shape = dy.shape();
  shape[shape.dim() - 1] = weight.size(1);
  return product(as_rows(dy), weight, dy.dtype()).view(shape);
}

Tensor linear_backward_weight(const Tensor& dy, const Tensor& x) {
  check_linear_rows(dy, x);
  return product(as_rows(dy).transpose(0, 1), as_rows(x), dtype_beside(dy.dtype()));
}

void add_linear_backward_weight(const Tensor& into, const Tensor& dy, const Tensor& x) {
  check_linear_rows(dy, x);
  check_shape("linear backward", "the sum", into, {dy.size(-1), x.size(-1)});
  check_beside("linear backward", dy, {&into});
  const Tensor left = as_rows(dy).transpose(0, 1), right = as_rows(x);
  dispatch(dy.device(), [&](auto backend) { matmul_add_kernel(backend, into, left, right); });
  count_product(into, left, right, {}, Onto::itself);
  into.bump_version();
}

namespace {

// into += x m, for x [..., M] as rows and m [M, N].
void add_rows_times(const char* op, const Tensor& into, const Tensor& x, const Tensor& m) {
  check_real(op, "x", x);
  check_dim(op, "weight", m, 2);
  check_parameters(op, x, m, {});
  Shape shape = x.shape();
  FRUGAL_CHECK(x.dim() >= 1 && x.size(-1) == m.size(0), "[{}] expected x [..., {}], got {}", op,
               m.size(0), x.shape());
  shape[shape.dim() - 1] = m.size(1);
  check_shape(op, "the sum", into, shape);
  check_same(op, x, {&into});
  FRUGAL_CHECK(into.is_contiguous(), "[{}] expected a contiguous sum, got {}", op, describe(into));
  const Tensor rows = as_rows(x), right = prepared(m);
  const Tensor out = into.view({rows.size(0), m.size(1)});
  dispatch(x.device(), [&](auto backend) { matmul_add_kernel(backend, out, rows, right); });
  count_product(out, rows, right, {}, Onto::itself);
  into.bump_version();
}

}  // namespace

void add_linear(const Tensor& into, const Tensor& x, const Tensor& weight) {
  check_dim("add_linear", "weight", weight, 2);
  add_rows_times("add_linear", into, x, contiguous(weight).transpose(0, 1));
}

void add_linear_backward_input(const Tensor& into, const Tensor& dy, const Tensor& weight) {
  add_rows_times("linear backward", into, dy, weight);
}

Tensor linear_backward_bias(const Tensor& dy) {
  check_real("linear backward", "dy", dy);
  if (dy.dtype() != DType::bf16) return sum_to(dy, {dy.shape().back()});
  const Tensor rows = as_rows(dy);
  Tensor dbias = Tensor::empty({dy.shape().back()}, DType::f32, dy.device());
  if constexpr (kHasCuda) {
    if (dy.device().type == DeviceType::cuda) linear_backward_bias_kernel(Cuda{}, rows, dbias);
  }
  if (dy.device() == kCpu)
    sum_kernel(Cpu{}, rows.view({1, rows.size(0), rows.size(1)}), dbias.view({1, dbias.numel()}),
               1);
  return dbias;
}

}  // namespace frugal::ops
