#include "ops/graph/spmm.h"

#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

// May A x be written over this x? For a small x that saves nothing worth a copy.
bool may_write_over(const Tensor& x) {
  constexpr int64_t kLeastBytes = int64_t{16} << 20;
  return runs_as_cpu(x.device()) && x.nbytes() >= kLeastBytes && is_sole_owner(x);
}

// A x with these terms, over x where that is possible.
Tensor spmm_of(const ops::Csr& a, Tensor x, const ops::SpmmOptions& options) {
  if (a.rows != a.cols || !may_write_over(x)) return ops::spmm(a, x, options);
  ops::spmm_over(a, x, options);
  return x;
}

// y = factor A x + addend_factor addend + bias, where A takes the sums or the means over the edges
// into a node.
Variable aggregate(const char* op, bool mean, const GraphPtr& graph, const Variable& x, bool moved,
                   const SpmmTerms& terms) {
  ops::SpmmOptions options;
  options.mean = mean;
  options.factor = terms.factor;
  options.addend_factor = terms.addend_factor;
  if (terms.bias.defined()) options.bias = terms.bias.value();
  if (terms.addend.defined()) options.addend = terms.addend.value();
  const auto describe = [&](TracedOp& t) {
    t.graph = graph.get();
    t.set("factor", terms.factor);
    t.set("addend_factor", terms.addend_factor);
  };
  const ops::Csr& a = graph->edges.by_row;
  const bool over =
      moved && active_trace() == nullptr && may_write_over(x.value()) && a.rows == a.cols;
  Tensor y = over ? x.value() : ops::spmm(a, x.value(), options);
  if (over) ops::spmm_over(a, y, options);
  return record(
      {op, describe}, {x, terms.bias, terms.addend}, std::move(y), {},
      [graph, mean, factor = terms.factor, addend_factor = terms.addend_factor](const Backward& b) {
        Grads grads(3);
        Tensor dy = b.take_dy();
        if (b.needs(1)) grads[1] = ops::linear_backward_bias(dy);
        if (b.needs(2)) grads[2] = addend_factor == 1 ? dy : ops::affine(dy, addend_factor, 0);
        if (b.needs(0)) {
          // The transpose of row means divides each entry by the number of entries of its row.
          ops::SpmmOptions transposed;
          transposed.factor = factor;
          if (mean) transposed.entry_counts = graph->edges.by_row.row_ptr;
          grads[0] = spmm_of(graph->edges.by_col, std::move(dy), transposed);
        }
        return grads;
      });
}

void check_graph(const char* op, const GraphPtr& graph) {
  FRUGAL_CHECK(graph != nullptr, "[{}] expected a graph, got none", op);
}

}  // namespace

Variable spmm(const GraphPtr& graph, Variable x) { return spmm(graph, std::move(x), {}); }
Variable spmm(const GraphPtr& graph, Variable x, const SpmmTerms& terms) {
  check_graph("spmm", graph);
  return aggregate("spmm", false, graph, x, x.is_sole_handle(), terms);
}

Variable neighbour_mean(const GraphPtr& graph, Variable x) {
  return neighbour_mean(graph, std::move(x), {});
}
Variable neighbour_mean(const GraphPtr& graph, Variable x, const SpmmTerms& terms) {
  check_graph("neighbour_mean", graph);
  return aggregate("neighbour_mean", true, graph, x, x.is_sole_handle(), terms);
}

Variable neighbour_max(const GraphPtr& graph, const Variable& x) {
  check_graph("neighbour_max", graph);
  const ops::RowMax out = ops::spmm_max(graph->edges.by_row, x.value());
  return record({"neighbour_max", [&](TracedOp& t) { t.graph = graph.get(); }}, {x}, out.y,
                {save_exact(out.index)}, [graph](const Backward& b) {
                  return Grads{ops::spmm_max_backward(graph->edges, b.dy(), b.saved(0))};
                });
}

// Recipe: the op itself, exact, if rows have few entries.
Variable sparse_linear(const SparsePtr& x, const Variable& weight, const Variable& bias,
                       double dropout, RngKey key) {
  FRUGAL_CHECK(x != nullptr, "[sparse_linear] expected a sparse matrix, got none");
  // The backward pass draws again which entries are kept.
  const auto entries = [x, dropout, key] {
    return dropout > 0 ? ops::dropout_entries(x->by_row, dropout, key) : Tensor();
  };
  const Tensor y =
      ops::sparse_linear(*x, weight.value(), bias.defined() ? bias.value() : Tensor(), entries());
  constexpr int64_t kFew = 64;
  std::vector<Save> sources{for_recipe(weight)};
  if (bias.defined()) sources.push_back(for_recipe(bias));
  const auto again = [x, entries](const Slots& s) {
    return ops::sparse_linear(*x, s.unpack(0), s.size() > 1 ? s.unpack(1) : Tensor(), entries());
  };
  return record(
      "sparse_linear", {weight, bias}, y, sources,
      [x, entries](const Backward& b) {
        Grads grads(2);
        if (b.needs(0)) grads[0] = ops::sparse_linear_backward_weight(*x, b.dy(), entries());
        if (b.needs(1)) grads[1] = ops::linear_backward_bias(b.dy());
        return grads;
      },
      x->by_row.entries() <= kFew * x->rows() ? linear_recipe(again) : RecipeSpec{});
}

}  // namespace frugal
