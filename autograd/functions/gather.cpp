#include "autograd/functions/saved_square.h"
#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/graph/segment.h"

namespace frugal {
namespace {

auto gather_describer(const Tensor& index, int64_t rows) {
  return [&index, rows](TracedOp& t) {
    t.tensor(index);
    t.set("rows", rows);
  };
}

}  // namespace

Variable gather_rows(const Variable& x, const Tensor& index) {
  const auto describe = [&](TracedOp& t) { t.tensor(index); };
  return record({"gather_rows", describe}, {x}, ops::gather_rows(x.value(), index),
                {save_exact(index)}, [rows = x.size(0)](const Backward& b) {
                  return Grads{ops::segment_sum(b.dy(), b.saved(0), rows)};
                });
}

Variable segment_sum(const Variable& x, const Tensor& index, int64_t rows) {
  const auto describe = gather_describer(index, rows);
  return record({"segment_sum", describe}, {x}, ops::segment_sum(x.value(), index, rows),
                {save_exact(index)},
                [](const Backward& b) { return Grads{ops::gather_rows(b.dy(), b.saved(0))}; });
}

Variable segment_mean(const Variable& x, const Tensor& index, int64_t rows) {
  const auto describe = gather_describer(index, rows);
  return record({"segment_mean", describe}, {x}, ops::segment_mean(x.value(), index, rows),
                {save_exact(index)}, [](const Backward& b) {
                  return Grads{ops::segment_mean_backward(b.dy(), b.saved(0))};
                });
}

Variable segment_max(const Variable& x, const Tensor& index, int64_t rows) {
  const auto describe = gather_describer(index, rows);
  const ops::SegmentMax out = ops::segment_max(x.value(), index, rows);
  return record({"segment_max", describe}, {x}, out.y, {save_exact(out.element)},
                [elements = x.size(0)](const Backward& b) {
                  return Grads{ops::segment_max_backward(b.dy(), b.saved(0), elements)};
                });
}

Variable segment_softmax(const Variable& x, const Tensor& index, int64_t rows) {
  const auto describe = gather_describer(index, rows);
  const Tensor y = ops::segment_softmax(x.value(), index, rows);
  return record({"segment_softmax", describe}, {x}, y,
                {save_output(y), save_exact(index), save_square(x, y)}, [rows](const Backward& b) {
                  const Tensor saved = b.saved(0);
                  return Grads{corrected_by_square(
                      b, saved, 2, ops::segment_softmax_backward(b.dy(), saved, b.saved(1), rows))};
                });
}

}  // namespace frugal
