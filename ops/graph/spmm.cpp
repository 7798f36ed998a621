#include "ops/graph/spmm.h"

#include "core/dtype_switch.h"
#include "core/finite.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/graph/graph_tasks.h"
#include "ops/graph/spmm_loops.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

constexpr const char* kSpmm = "spmm";
// Bytes of a row that spmm_over() takes at once: whole cache lines, and few enough that the rows
// which the edges name stay in a cache.
constexpr int64_t kStripBytes = 256;

void check_matrix(const char* op, const Csr& a, const Tensor& x) {
  check_real(op, "x", x);
  FRUGAL_CHECK(x.dim() == 2 && x.size(0) == a.cols, "[{}] expected x [{}, F], got {}", op, a.cols,
               describe(x));
  // On meta nothing runs, so any matrix is accepted.
  FRUGAL_CHECK(x.device().type == DeviceType::meta || a.col.device() == x.device(),
               "[{}] expected the matrix on {}, got one on {}", op, x.device().str(),
               a.col.device().str());
}

void spmm_reference(const Csr& a, const Tensor& x, const SpmmOptions& o, const Tensor& y) {
  const int64_t width = x.size(1);
  const auto* ptr = a.row_ptr.data<int64_t>();
  const auto* col = a.col.data<int32_t>();
  const auto* value = data_or_null<float>(o.value.defined() ? o.value : a.value);
  const auto* counts = data_or_null<int64_t>(o.entry_counts);
  const auto* addend = data_or_null<double>(o.addend);
  const auto* bias = data_or_null<double>(o.bias);
  const Tensor partial = workspace({a.split.pieces, width}, DType::f64);
  const auto sum_into = [&](int64_t begin, int64_t end, double* out) {
    std::fill_n(out, width, 0.0);
    for (int64_t e = begin; e < end; ++e) {
      double w = value != nullptr ? static_cast<double>(value[e]) : 1;
      if (counts != nullptr) w /= static_cast<double>(counts[col[e] + 1] - counts[col[e]]);
      const double* from = x.data<double>() + col[e] * width;
      for (int64_t f = 0; f < width; ++f) out[f] += w * from[f];
    }
  };
  const auto finish = [&](int64_t row) {
    const int64_t entries = ptr[row + 1] - ptr[row];
    const double scale =
        !o.mean ? o.factor : (entries > 0 ? o.factor / static_cast<double>(entries) : 0);
    double* out = y.mut<double>() + row * width;
    for (int64_t f = 0; f < width; ++f) {
      out[f] *= scale;
      if (addend != nullptr) out[f] += o.addend_factor * addend[row * width + f];
      if (bias != nullptr) out[f] += bias[f];
    }
  };
  for_tasks(
      a.split, width,
      [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) {
          sum_into(ptr[row], ptr[row + 1], y.mut<double>() + row * width);
          finish(row);
        }
      },
      [&](int64_t, int64_t begin, int64_t end, int64_t piece) {
        sum_into(begin, end, partial.mut<double>() + piece * width);
      },
      [&](int64_t row, int64_t first, int64_t pieces) {
        double* out = y.mut<double>() + row * width;
        std::fill_n(out, width, 0.0);
        for (int64_t p = first; p < first + pieces; ++p)
          for (int64_t f = 0; f < width; ++f) out[f] += partial.data<double>()[p * width + f];
        finish(row);
      });
}

// Checks the operands and makes them contiguous.
SpmmOptions checked(const Csr& a, const Tensor& x, SpmmOptions o) {
  check_matrix(kSpmm, a, x);
  check_same(kSpmm, x, {&o.addend});
  check_beside(kSpmm, x, {&o.bias});
  const int64_t width = x.size(1);
  if (o.bias.defined()) {
    check_shape(kSpmm, "bias", o.bias, {width});
    o.bias = contiguous(o.bias);
  }
  if (o.addend.defined()) {
    check_shape(kSpmm, "the addend", o.addend, {a.rows, width});
    o.addend = contiguous(o.addend);
  }
  if (o.value.defined()) check_shape(kSpmm, "value", o.value, {a.entries()});
  return o;
}

template <class T>
bool exceeds(T v, T than) {
  return v > than || (is_nan(v) && !is_nan(than));
}

template <class T, class I>
void max_rows(const Csr& a, const Tensor& x, const Tensor& y, const Tensor& index) {
  const int64_t width = x.size(1);
  const auto* ptr = a.row_ptr.data<int64_t>();
  const auto* col = a.col.data<int32_t>();
  const Tensor values = workspace({a.split.pieces, width}, y.dtype());
  const Tensor indices = workspace({a.split.pieces, width}, index.dtype());
  const auto max_of = [&](int64_t row, int64_t begin, int64_t end, T* out, I* at) {
    std::fill_n(at, width, I{0});
    if (begin == end) return std::fill_n(out, width, T{0}), void();
    std::copy_n(x.data<T>() + col[begin] * width, width, out);
    std::fill_n(at, width, static_cast<I>(begin - ptr[row]));
    for (int64_t e = begin + 1; e < end; ++e) {
      const T* from = x.data<T>() + col[e] * width;
      const I here = static_cast<I>(e - ptr[row]);
      for (int64_t f = 0; f < width; ++f) {
        const bool better = exceeds(from[f], out[f]);
        out[f] = better ? from[f] : out[f];
        at[f] = better ? here : at[f];
      }
    }
  };
  for_tasks(
      a.split, width,
      [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
          max_of(row, ptr[row], ptr[row + 1], y.mut<T>() + row * width,
                 index.mut<I>() + row * width);
      },
      [&](int64_t row, int64_t begin, int64_t end, int64_t piece) {
        max_of(row, begin, end, values.mut<T>() + piece * width, indices.mut<I>() + piece * width);
      },
      [&](int64_t row, int64_t first, int64_t pieces) {
        T* out = y.mut<T>() + row * width;
        I* at = index.mut<I>() + row * width;
        for (int64_t p = first; p < first + pieces; ++p)
          for (int64_t f = 0; f < width; ++f) {
            const T v = values.data<T>()[p * width + f];
            if (p > first && !exceeds(v, out[f])) continue;
            out[f] = v;
            at[f] = indices.data<I>()[p * width + f];
          }
      });
}

// The gradient of each source is gathered from the rows in which it has an entry.
template <class T, class I>
void max_rows_backward(const SparseMatrix& a, const Tensor& dy, const Tensor& index,
                       const Tensor& dx) {
  const int64_t width = dy.size(1);
  const Csr& t = a.by_col;
  const auto* ptr = t.row_ptr.data<int64_t>();
  const auto* row_of = t.col.data<int32_t>();
  const auto* position = a.position.data<int32_t>();
  const auto* row_ptr = a.by_row.row_ptr.data<int64_t>();
  const Tensor partial = workspace({t.split.pieces, width}, dy.dtype());
  const auto gather = [&](int64_t begin, int64_t end, T* out) {
    std::fill_n(out, width, T{0});
    for (int64_t e = begin; e < end; ++e) {
      const int64_t row = row_of[e];
      const auto here = static_cast<I>(position[e] - row_ptr[row]);
      const T* from = dy.data<T>() + row * width;
      const I* at = index.data<I>() + row * width;
      for (int64_t f = 0; f < width; ++f) out[f] += at[f] == here ? from[f] : T{0};
    }
  };
  for_tasks(
      t.split, width,
      [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r) gather(ptr[r], ptr[r + 1], dx.mut<T>() + r * width);
      },
      [&](int64_t, int64_t begin, int64_t end, int64_t piece) {
        gather(begin, end, partial.mut<T>() + piece * width);
      },
      [&](int64_t row, int64_t first, int64_t pieces) {
        T* out = dx.mut<T>() + row * width;
        std::fill_n(out, width, T{0});
        for (int64_t p = first; p < first + pieces; ++p)
          for (int64_t f = 0; f < width; ++f) out[f] += partial.data<T>()[p * width + f];
      });
}

DType entry_index_dtype(const Csr& a) { return a.split.longest <= 256 ? DType::u8 : DType::i32; }

// Calls f(T{}, I{}) with the types of the values and of the index.
template <class F>
void with_value_and_index(DType dtype, DType index, F f) {
  with_real(dtype, [&](auto t) { index == DType::u8 ? f(t, uint8_t{}) : f(t, int32_t{}); });
}

}  // namespace

void spmm_kernel(Cpu, const Csr& a, const Tensor& x, const SpmmOptions& o, const Tensor& y) {
  if (y.numel() == 0) return;
  if (x.dtype() == DType::f64) return spmm_reference(a, x, o, y);
  const simd::Spmm args{a.row_ptr.data<int64_t>(),
                        a.col.data<int32_t>(),
                        data_or_null<float>(o.value.defined() ? o.value : a.value),
                        data_or_null<int64_t>(o.entry_counts),
                        simd::input_of(x, 0),
                        x.size(1),
                        y.strides()[0],
                        o.mean,
                        static_cast<float>(o.factor),
                        data_or_null<float>(o.bias),
                        simd::input_of(o.addend, 0),
                        static_cast<float>(o.addend_factor),
                        simd::output_of(y, x.size(1))};
  const Tensor partial = workspace({a.split.pieces, args.width}, DType::f32);
  for_tasks(
      a.split, args.width, [&](int64_t first, int64_t last) { simd::spmm_rows(args, first, last); },
      [&](int64_t, int64_t begin, int64_t end, int64_t piece) {
        simd::spmm_piece(args, begin, end, partial.mut<float>() + piece * args.width);
      },
      [&](int64_t row, int64_t first, int64_t pieces) {
        simd::spmm_merge(args, row, partial.data<float>() + first * args.width, pieces);
      });
}

Tensor spmm(const Csr& a, const Tensor& x, const SpmmOptions& options) {
  const SpmmOptions o = checked(a, x, options);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty({a.rows, x.size(1)}, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { spmm_kernel(backend, a, in, o, y); });
  return y;
}

void spmm_over(const Csr& a, const Tensor& x, const SpmmOptions& options) {
  const SpmmOptions o = checked(a, x, options);
  const int64_t width = x.size(1);
  FRUGAL_CHECK(a.rows == a.cols && x.is_contiguous(),
               "[{}] expected a square matrix and a contiguous x to write over, got {} rows, {} "
               "columns and {}",
               kSpmm, a.rows, a.cols, describe(x));
  const bool whole = x.dtype() == DType::f64 || x.device().type == DeviceType::cuda;
  const int64_t strip =
      whole ? std::max<int64_t>(width, 1) : kStripBytes / static_cast<int64_t>(size_of(x.dtype()));
  for (int64_t begin = 0; begin < width; begin += strip) {
    const int64_t end = std::min(width, begin + strip);
    const Tensor out = x.slice(1, begin, end);
    const Tensor in = workspace({x.size(0), end - begin}, x.dtype(), x.device());
    copy_into(in, out);
    SpmmOptions part = o;
    if (o.bias.defined()) part.bias = o.bias.slice(0, begin, end);
    if (o.addend.defined()) part.addend = o.addend.slice(1, begin, end);
    dispatch(x.device(), [&](auto backend) { spmm_kernel(backend, a, in, part, out); });
  }
  x.bump_version();
}

void spmm_max_kernel(Cpu, const Csr& a, const Tensor& x, const Tensor& y, const Tensor& index) {
  if (y.numel() == 0) return;
  if (x.dtype() == DType::bf16) {
    InF32 wide;
    spmm_max_kernel(Cpu{}, a, wide.read(x), wide.write(y), index);
    return wide.finish();
  }
  with_value_and_index(x.dtype(), index.dtype(),
                       [&](auto t, auto i) { max_rows<decltype(t), decltype(i)>(a, x, y, index); });
}

RowMax spmm_max(const Csr& a, const Tensor& x) {
  check_matrix("spmm_max", a, x);
  const Tensor in = contiguous(x);
  const Shape shape{a.rows, x.size(1)};
  RowMax out{Tensor::empty(shape, x.dtype(), x.device()),
             Tensor::empty(shape, entry_index_dtype(a), x.device())};
  count_in_f32(x, {&in}, {&out.y});
  dispatch(x.device(), [&](auto backend) { spmm_max_kernel(backend, a, in, out.y, out.index); });
  return out;
}

void spmm_max_backward_kernel(Cpu, const SparseMatrix& a, const Tensor& dy, const Tensor& index,
                              const Tensor& dx) {
  if (dx.numel() == 0) return;
  if (dx.dtype() == DType::bf16) {
    InF32 wide;
    spmm_max_backward_kernel(Cpu{}, a, wide.read(dy), index, wide.write(dx));
    return wide.finish();
  }
  with_value_and_index(dy.dtype(), index.dtype(), [&](auto t, auto i) {
    max_rows_backward<decltype(t), decltype(i)>(a, dy, index, dx);
  });
}

Tensor spmm_max_backward(const SparseMatrix& a, const Tensor& dy, const Tensor& index) {
  check_real("spmm_max backward", "dy", dy);
  check_shape("spmm_max backward", "the index", index, dy.shape());
  FRUGAL_CHECK(dy.dim() == 2 && dy.size(0) == a.rows(),
               "[spmm_max backward] expected dy [{}, F], got {}", a.rows(), describe(dy));
  const Tensor in = contiguous(dy);
  Tensor dx = Tensor::empty({a.cols(), dy.size(1)}, dy.dtype(), dy.device());
  count_in_f32(dy, {&in}, {&dx});
  dispatch(dy.device(), [&](auto backend) { spmm_max_backward_kernel(backend, a, in, index, dx); });
  return dx;
}

Tensor sparse_linear(const SparseMatrix& x, const Tensor& weight, const Tensor& bias,
                     const Tensor& value) {
  check_real("sparse_linear", "weight", weight);
  FRUGAL_CHECK(weight.dim() == 2 && weight.size(1) == x.cols(),
               "[sparse_linear] expected a weight [O, {}], got {}", x.cols(), describe(weight));
  if (bias.defined()) check_shape("sparse_linear", "bias", bias, {weight.size(0)});
  SpmmOptions options;
  options.value = value;
  options.bias = bias;
  Tensor columns;
  {
    CategoryScope scope(Category::workspace);
    columns = contiguous(weight.transpose(0, 1));
  }
  return spmm(x.by_row, columns, options);
}

Tensor sparse_linear_backward_weight(const SparseMatrix& x, const Tensor& dy, const Tensor& value) {
  SpmmOptions options;
  if (value.defined()) {
    // The values in the order of the transpose.
    CategoryScope scope(Category::workspace);
    options.value = Tensor::empty(value.shape(), DType::f32, value.device());
    dispatch(value.device(), [&](auto backend) {
      transpose_entries_kernel(backend, value, x.position, options.value);
    });
  }
  Tensor columns;
  {
    CategoryScope scope(Category::workspace);
    columns = spmm(x.by_col, dy, options);
  }
  return contiguous(columns.transpose(0, 1));
}

void transpose_entries_kernel(Cpu, const Tensor& value, const Tensor& position, const Tensor& out) {
  const auto* from = position.data<int32_t>();
  for (int64_t e = 0; e < value.numel(); ++e) out.mut<float>()[e] = value.data<float>()[from[e]];
}

void dropout_entries_kernel(Cpu, const Tensor& value, double p, RngKey key, const Tensor& out) {
  const auto scale = static_cast<float>(p < 1 ? 1 / (1 - p) : 0);
  const auto* from = data_or_null<float>(value);
  parallel_for(0, out.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      const bool kept = static_cast<double>(uniform(key, static_cast<uint64_t>(e))) >= p;
      out.mut<float>()[e] = kept ? scale * (from != nullptr ? from[e] : 1.0F) : 0.0F;
    }
  });
}

Tensor dropout_entries(const Csr& a, double p, RngKey key) {
  FRUGAL_CHECK(p >= 0 && p <= 1, "[sparse dropout] expected a probability in [0, 1], got {}", p);
  CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty({a.entries()}, DType::f32, a.col.device());
  dispatch(out.device(),
           [&](auto backend) { dropout_entries_kernel(backend, a.value, p, key, out); });
  return out;
}

}  // namespace frugal::ops
