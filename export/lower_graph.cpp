// Graphs. Edges are inputs of the network; what the graph layers make of them (loops, degrees,
// coefficients) is made by nodes, too.
#include <limits>

#include "export/lowering.h"
#include "ops/graph/graph.h"

namespace frugal::exports {
namespace {

using Op = Lowering::Op;

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
const Lowering::Attributes kAxis0 = {{"axis", int64_t{0}}};

std::string gather(Lowering& l, const std::string& x, const std::string& index) {
  return l.emit("Gather", {x, index}, kAxis0);
}
std::string unsqueeze(Lowering& l, const std::string& x, int64_t axis) {
  return l.emit("Unsqueeze", {x, l.ints({axis})});
}
std::string joined(Lowering& l, const std::string& a, const std::string& b) {
  return l.emit("Concat", {a, b}, kAxis0);
}
std::string range(Lowering& l, const std::string& end) {
  return l.emit("Range", {l.scalar(0, DType::i64), end, l.scalar(1, DType::i64)});
}
// The positions of the true elements of x [E].
std::string positions(Lowering& l, const std::string& x) {
  return l.emit("Reshape", {l.emit("NonZero", {x}), l.ints({-1})});
}
std::string first_extent(Lowering& l, const std::string& x) {  // [1]
  return l.slice(l.emit("Shape", {x}), {0}, {1}, {0});
}
std::string scalar_of(Lowering& l, const std::string& x) {  // [1] -> []
  return l.emit("Squeeze", {x, l.ints({0})});
}
// Values and positions of x, ascending along the first axis.
std::vector<std::string> sorted(Lowering& l, const std::string& x) {
  return l.emit_many("TopK", {x, first_extent(l, x)}, 2,
                     {{"axis", int64_t{0}}, {"largest", int64_t{0}}, {"sorted", int64_t{1}}});
}

std::vector<int64_t> tail_of(const Lowering& l, int value) {
  std::vector<int64_t> tail;
  for (int axis = 1; axis < l.dim(value); ++axis) tail.push_back(l.fixed(value, axis));
  return tail;
}

}  // namespace

Lowering::Runs Lowering::runs_of(const std::string& index) {
  const std::string count = scalar_of(*this, first_extent(*this, index));
  const std::string key =
      emit("Add", {emit("Mul", {index, count}), range(*this, count)});  // all different
  Runs runs;
  runs.order = sorted(*this, key)[1];
  runs.sorted = gather(*this, index, runs.order);
  const std::string next = joined(*this, slice(runs.sorted, {1}, {kEnd}, {0}), ints({-1}));
  runs.last = positions(*this, emit("Not", {emit("Equal", {runs.sorted, next})}));
  runs.rows = gather(*this, runs.sorted, runs.last);
  return runs;
}

std::string Lowering::sums(const std::string& values, const Runs& runs,
                           const std::vector<int64_t>& tail) {
  const std::string up_to =
      gather(*this, emit("CumSum", {to(values, DType::f64), scalar(0, DType::i64)}), runs.last);
  Shape none{1};
  for (const int64_t extent : tail) none.push_back(extent);
  const std::string before = joined(*this, initializer("zeros", Tensor::zeros(none, DType::f64)),
                                    slice(up_to, {0}, {-1}, {0}));
  return to(emit("Sub", {up_to, before}), DType::f32);
}

// Sorts each column by value, and then stably by run: the last of a run is its largest.
std::string Lowering::maxima(const std::string& values, const Runs& runs) {
  const std::vector<std::string> by_value = sorted(*this, values);
  const std::string run = gather(*this, runs.sorted, by_value[1]);  // [E, F]
  const std::string count = scalar_of(*this, first_extent(*this, values));
  const std::string rank = unsqueeze(*this, range(*this, count), 1);
  const std::string key = emit("Add", {emit("Mul", {run, count}), rank});
  return gather(*this, emit("GatherElements", {by_value[0], sorted(*this, key)[1]}, kAxis0),
                runs.last);
}

std::string Lowering::counts(const Runs& runs) {
  const std::string before = joined(*this, ints({-1}), slice(runs.last, {0}, {-1}, {0}));
  return to(emit("Sub", {runs.last, before}), DType::f32);
}

std::string Lowering::spread(const std::string& rows, const Runs& runs, const std::string& nodes,
                             const std::vector<int64_t>& tail) {
  std::string shape = unsqueeze(*this, nodes, 0);
  if (!tail.empty()) shape = joined(*this, shape, ints(tail));
  const std::string zeros = emit("Expand", {scalar(0), shape});
  return emit("ScatterND", {zeros, unsqueeze(*this, runs.rows, 1), rows});
}

const Lowering::Edges& Lowering::edges(const Op& op, int x) {
  const int graph = op.recorded.graph;
  const auto known = edges_.find(graph);
  if (known != edges_.end()) return known->second;
  const Op made{*graphs_.at(graph), {graphs_.at(graph)}};
  const std::string index = plain(made.input(0)), nodes = extent(x, 0);
  std::string source = gather(*this, index, scalar(0, DType::i64));
  std::string target = gather(*this, index, scalar(1, DType::i64));
  std::string weight = plain_or_none(made, 1);
  if (made.integer("self_loops") != 0) {
    const std::string is_loop = emit("Equal", {source, target});
    const std::string others = positions(*this, emit("Not", {is_loop}));
    const std::string all = range(*this, nodes);
    if (!weight.empty()) {
      const std::string loops = positions(*this, is_loop);
      const std::string ones = emit("Expand", {scalar(1), unsqueeze(*this, nodes, 0)});
      const std::string own =
          emit("ScatterElements",
               {ones, gather(*this, source, loops), gather(*this, weight, loops)}, kAxis0);
      weight = joined(*this, gather(*this, weight, others), own);
    }
    source = joined(*this, gather(*this, source, others), all);
    target = joined(*this, gather(*this, target, others), all);
  }
  Edges edges;
  edges.runs = runs_of(target);
  edges.source = gather(*this, source, edges.runs.order);
  if (!weight.empty()) edges.weight = gather(*this, weight, edges.runs.order);
  bool normalizes = true, symmetric = false;
  switch (static_cast<ops::EdgeNorm>(made.integer("norm"))) {
    case ops::EdgeNorm::none:
      normalizes = false;
      break;
    case ops::EdgeNorm::symmetric:
      symmetric = true;
      break;
    case ops::EdgeNorm::mean:
      break;
  }
  if (normalizes) {
    const std::string degree =
        spread(weight.empty() ? counts(edges.runs) : sums(edges.weight, edges.runs, {}), edges.runs,
               nodes, {});
    const std::string root = symmetric ? emit("Sqrt", {degree}) : degree;
    const std::string scale = emit(
        "Where", {emit("Greater", {degree, scalar(0)}), emit("Div", {scalar(1), root}), scalar(0)});
    std::string value = gather(*this, scale, edges.runs.sorted);
    if (symmetric) value = emit("Mul", {value, gather(*this, scale, edges.source)});
    edges.weight = weight.empty() ? value : emit("Mul", {edges.weight, value});
  }
  return edges_[graph] = edges;
}

namespace {

// factor A x + addend_factor addend + bias
void aggregate(Lowering& l, const Op& op, bool mean) {
  const int x = op.input(0);
  const Lowering::Edges& edges = l.edges(op, x);
  std::string values = gather(l, l.plain(x), edges.source);
  if (!edges.weight.empty()) values = l.emit("Mul", {values, unsqueeze(l, edges.weight, 1)});
  std::string rows = l.sums(values, edges.runs, tail_of(l, x));
  if (mean) rows = l.emit("Div", {rows, unsqueeze(l, l.counts(edges.runs), 1)});
  std::string y = l.spread(rows, edges.runs, l.extent(x, 0), tail_of(l, x));
  const auto scaled = [&](const std::string& of, double factor) {
    return factor == 1 ? of : l.emit("Mul", {of, l.scalar(factor)});
  };
  y = scaled(y, op.number("factor"));
  if (op.has(2)) y = l.emit("Add", {y, scaled(l.plain(op.input(2)), op.number("addend_factor"))});
  if (op.has(1)) y = l.emit("Add", {y, l.plain(op.input(1))});
  l.set(op.output(), y);
}
void spmm(Lowering& l, const Op& op) { aggregate(l, op, false); }
void neighbour_mean(Lowering& l, const Op& op) { aggregate(l, op, true); }

void neighbour_max(Lowering& l, const Op& op) {
  const int x = op.input(0);
  const Lowering::Edges& edges = l.edges(op, x);
  const std::string rows = l.maxima(gather(l, l.plain(x), edges.source), edges.runs);
  l.set(op.output(), l.spread(rows, edges.runs, l.extent(x, 0), tail_of(l, x)));
}

// h [V, heads, F], a_src and a_dst [V, heads]
void graph_attention(Lowering& l, const Op& op) {
  if (op.number("dropout") != 0) l.fail("expected evaluation, got dropout");
  const int h = op.input(0);
  const Lowering::Edges& edges = l.edges(op, h);
  const Lowering::Runs& runs = edges.runs;
  const std::string nodes = l.extent(h, 0);
  const int64_t heads = l.fixed(h, 1);
  const std::string scores = l.emit("LeakyRelu",
                                    {l.emit("Add", {gather(l, l.plain(op.input(1)), edges.source),
                                                    gather(l, l.plain(op.input(2)), runs.sorted)})},
                                    {{"alpha", op.number("slope")}});
  const std::string most = l.spread(l.maxima(scores, runs), runs, nodes, {heads});
  const std::string shares =
      l.emit("Exp", {l.emit("Sub", {scores, gather(l, most, runs.sorted)})});  // [E, heads]
  const std::string values =
      l.emit("Mul", {unsqueeze(l, shares, 2), gather(l, l.plain(h), edges.source)});
  const std::string rows = l.emit(
      "Div", {l.sums(values, runs, tail_of(l, h)), unsqueeze(l, l.sums(shares, runs, {heads}), 2)});
  l.set(op.output(), l.spread(rows, runs, nodes, tail_of(l, h)));
}

void head_scores(Lowering& l, const Op& op) {
  const std::string product = l.emit("Mul", {l.plain(op.input(0)), l.plain(op.input(1))});
  l.set(op.output(), l.emit("ReduceSum", {product, l.ints({-1})}, {{"keepdims", int64_t{0}}}));
}

// ---- rows by index: x [E, F], index [E]

void gather_rows(Lowering& l, const Op& op) {
  l.set(op.output(), gather(l, l.plain(op.input(0)), l.plain(op.input(1))));
}

std::string node_count(Lowering& l, const Op& op) {
  return l.scalar(static_cast<double>(op.integer("rows")), DType::i64);
}

void segments(Lowering& l, const Op& op, const char* kind) {
  const int x = op.input(0);
  const Lowering::Runs runs = l.runs_of(l.plain(op.input(1)));
  const std::string values = gather(l, l.plain(x), runs.order);
  const std::string of = kind;
  std::string rows = of == "max" ? l.maxima(values, runs) : l.sums(values, runs, tail_of(l, x));
  if (of == "mean") rows = l.emit("Div", {rows, unsqueeze(l, l.counts(runs), 1)});
  l.set(op.output(), l.spread(rows, runs, node_count(l, op), tail_of(l, x)));
}
void segment_sum(Lowering& l, const Op& op) { segments(l, op, "sum"); }
void segment_mean(Lowering& l, const Op& op) { segments(l, op, "mean"); }
void segment_max(Lowering& l, const Op& op) { segments(l, op, "max"); }

void segment_softmax(Lowering& l, const Op& op) {
  const std::string x = l.plain(op.input(0)), index = l.plain(op.input(1));
  const Lowering::Runs runs = l.runs_of(index);
  const std::vector<int64_t> tail = tail_of(l, op.input(0));
  const std::string nodes = node_count(l, op);
  const std::string most = l.spread(l.maxima(gather(l, x, runs.order), runs), runs, nodes, tail);
  const std::string shares = l.emit("Exp", {l.emit("Sub", {x, gather(l, most, index)})});
  const std::string total =
      l.spread(l.sums(gather(l, shares, runs.order), runs, tail), runs, nodes, tail);
  l.set(op.output(), l.emit("Div", {shares, gather(l, total, index)}));
}

}  // namespace

const LowerTable& graph_lowerings() {
  static const LowerTable table = {
      {"spmm", spmm},
      {"neighbour_mean", neighbour_mean},
      {"neighbour_max", neighbour_max},
      {"graph_attention", graph_attention},
      {"head_scores", head_scores},
      {"gather_rows", gather_rows},
      {"segment_sum", segment_sum},
      {"segment_mean", segment_mean},
      {"segment_max", segment_max},
      {"segment_softmax", segment_softmax},
  };
  return table;
}

}  // namespace frugal::exports
