#include "ops/sequence/embedding.h"

#include <algorithm>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

void check_ids(const char* op, const Tensor& ids, Device device) {
  check_defined(op, "ids", ids);
  FRUGAL_CHECK(ids.dtype() == DType::i64 && ids.device() == device,
               "[{}] expected ids of dtype i64 on {}, got {}", op, device.str(), describe(ids));
}

void check_range(const char* op, const Tensor& ids, int64_t vocabulary) {
  const int64_t* id = ids.data<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i)
    FRUGAL_CHECK(id[i] >= 0 && id[i] < vocabulary,
                 "[{}] expected ids in [0, {}), got {} at position {}", op, vocabulary, id[i], i);
}

// Row v of `to` becomes the sum of the rows order[start[v]..start[v + 1]) of `from`, in that order.
template <class T>
void add_terms(const T* from, const int64_t* order, const int64_t* start, int64_t rows,
               int64_t width, T* to) {
  parallel_for(0, rows, rows_at_once(kArithmeticGrain, width), [=](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      T* row = to + v * width;
      std::fill_n(row, width, T{0});
      for (int64_t i = start[v]; i < start[v + 1]; ++i) {
        const T* term = from + order[i] * width;
        for (int64_t k = 0; k < width; ++k) row[k] += term[k];
      }
    }
  });
}

}  // namespace

void embedding_kernel(Cpu, const Tensor& ids, const Tensor& weight, const Tensor& y) {
  const int64_t width = weight.size(1);
  const int64_t* id = ids.data<int64_t>();
  check_range("embedding", ids, weight.size(0));
  with_dtype(weight.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* table = weight.data<T>();
    T* to = y.mut<T>();
    parallel_for(0, ids.numel(), rows_at_once(kArithmeticGrain, width),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     std::copy_n(table + id[i] * width, width, to + i * width);
                 });
  });
}

void embedding_backward_kernel(Cpu, const Tensor& dy, const Tensor& ids, int64_t padding_idx,
                               const Tensor& dweight) {
  if (dy.dtype() == DType::bf16) {
    InF32 wide;
    embedding_backward_kernel(Cpu{}, wide.read(dy), ids, padding_idx, wide.write(dweight));
    return wide.finish();
  }
  const int64_t vocabulary = dweight.size(0), width = dweight.size(1), n = ids.numel();
  const int64_t* id = ids.data<int64_t>();
  check_range("embedding_backward", ids, vocabulary);
  // Positions are grouped by id, in order, without those of the padding. So one thread writes each
  // row of the result.
  CategoryScope scope(Category::workspace);
  const Tensor starts = Tensor::zeros({vocabulary + 1}, DType::i64);
  const Tensor order = Tensor::empty({n}, DType::i64);
  int64_t* start = starts.mut<int64_t>();
  int64_t* position = order.mut<int64_t>();
  for (int64_t i = 0; i < n; ++i)
    if (id[i] != padding_idx) ++start[id[i]];
  for (int64_t v = 1; v <= vocabulary; ++v) start[v] += start[v - 1];
  for (int64_t i = n - 1; i >= 0; --i)
    if (id[i] != padding_idx) position[--start[id[i]]] = i;
  with_real(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_terms(dy.data<T>(), position, start, vocabulary, width, dweight.mut<T>());
  });
}

Tensor embedding(const Tensor& ids, const Tensor& weight) {
  check_dim("embedding", "weight", weight, 2);
  check_real("embedding", "weight", weight);
  check_ids("embedding", ids, weight.device());
  Shape shape = ids.shape();
  shape.push_back(weight.size(1));
  Tensor y = Tensor::empty(shape, weight.dtype(), weight.device());
  const Tensor at = contiguous(ids), table = contiguous(weight);
  dispatch(weight.device(), [&](auto backend) { embedding_kernel(backend, at, table, y); });
  return y;
}

namespace {
void check_embedding_backward(const Tensor& dy, const Tensor& ids, int64_t vocabulary) {
  check_real("embedding_backward", "dy", dy);
  check_ids("embedding_backward", ids, dy.device());
  FRUGAL_CHECK(vocabulary >= 0, "[embedding_backward] expected a vocabulary of at least 0, got {}",
               vocabulary);
  Shape shape = ids.shape();
  shape.push_back(dy.dim() > 0 ? dy.size(-1) : 0);
  check_shape("embedding_backward", "dy", dy, shape);
}
}  // namespace

Tensor embedding_backward(const Tensor& dy, const Tensor& ids, int64_t vocabulary,
                          int64_t padding_idx) {
  check_embedding_backward(dy, ids, vocabulary);
  Tensor dweight = Tensor::empty({vocabulary, dy.size(-1)}, dy.dtype(), dy.device());
  const Tensor gradient = contiguous(dy), at = contiguous(ids);
  dispatch(dy.device(), [&](auto backend) {
    embedding_backward_kernel(backend, gradient, at, padding_idx, dweight);
  });
  return dweight;
}

SparseRows embedding_backward_rows(const Tensor& dy, const Tensor& ids, int64_t vocabulary,
                                   int64_t padding_idx) {
  check_embedding_backward(dy, ids, vocabulary);
  FRUGAL_CHECK(dy.device().type != DeviceType::cuda,
               "[embedding_backward_rows] expected dy on cpu or meta, got {}", describe(dy));
  const int64_t count = ids.numel(), width = dy.size(-1);
  if (dy.device() == kMeta) {
    const int64_t n = std::min(count, vocabulary);
    return {Tensor::empty({n}, DType::i64, kMeta), Tensor::empty({n, width}, dy.dtype(), kMeta),
            vocabulary};
  }
  const Tensor gradient = contiguous(dy), at = contiguous(ids);
  check_range("embedding_backward", at, vocabulary);
  // Positions ordered by id; equal ids keep their order.
  const int64_t* id = at.data<int64_t>();
  std::vector<int64_t> order, starts, found;
  for (int64_t i = 0; i < count; ++i)
    if (id[i] != padding_idx) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return id[a] < id[b]; });
  for (size_t k = 0; k < order.size(); ++k) {
    if (k > 0 && id[order[k]] == id[order[k - 1]]) continue;
    starts.push_back(static_cast<int64_t>(k));
    found.push_back(id[order[k]]);
  }
  const auto n = static_cast<int64_t>(found.size());
  starts.push_back(static_cast<int64_t>(order.size()));
  SparseRows out{Tensor::from<int64_t>(found, {n}), Tensor::empty({n, width}, dy.dtype()),
                 vocabulary};
  InF32 wide;
  const Tensor terms = wide.read(gradient), rows = wide.write(out.rows);
  with_real(terms.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_terms(terms.data<T>(), order.data(), starts.data(), n, width, rows.mut<T>());
  });
  wide.finish();
  return out;
}

}  // namespace frugal::ops
