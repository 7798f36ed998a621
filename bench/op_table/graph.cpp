#include "autograd/graph_functions.h"
#include "bench/op_table/op_table.h"
#include "core/rng.h"

namespace frugal::op_table {
namespace {

using ops::EdgeNorm;

Tensor edges_of(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  std::vector<int64_t> both = from;
  both.insert(both.end(), to.begin(), to.end());
  return Tensor::from(both, {2, static_cast<int64_t>(from.size())});
}

GraphPtr graph_of(const Tensor& edges, int64_t nodes, EdgeNorm norm, bool loops = false) {
  ops::GraphOptions options;
  options.norm = norm;
  options.self_loops = loops;
  return std::make_shared<ops::Graph>(ops::make_graph(edges, nodes, options));
}

// Five nodes: a hub, a repeated edge, a loop, and node 4 without edges.
GraphPtr small(EdgeNorm norm, bool loops = false) {
  return graph_of(edges_of({0, 1, 2, 3, 0, 2, 1, 1}, {1, 0, 1, 1, 2, 2, 3, 3}), 5, norm, loops);
}

GraphPtr random_graph(int64_t nodes, int64_t edges) {
  const Tensor index = Tensor::empty({2, edges}, DType::i64);
  for (int64_t e = 0; e < 2 * edges; ++e)
    index.mut<int64_t>()[e] = static_cast<int64_t>(
        uniform_int({3, 4}, static_cast<uint64_t>(e), static_cast<uint64_t>(nodes)));
  return graph_of(index, nodes, EdgeNorm::symmetric, true);
}

// Built when a benchmark first asks for it.
const GraphPtr& large() {
  static const GraphPtr graph = random_graph(1 << 15, 1 << 18);
  return graph;
}
const Shape kManyNodes{1 << 15, 64};

// The graph or matrix on the device of x.
GraphPtr placed(const Variable& x, const GraphPtr& graph) {
  return x.device().type != DeviceType::cuda
             ? graph
             : std::make_shared<ops::Graph>(ops::to_device(*graph, x.device()));
}
SparsePtr placed(const Variable& x, const SparsePtr& matrix) {
  return x.device().type != DeviceType::cuda
             ? matrix
             : std::make_shared<ops::SparseMatrix>(ops::to_device(*matrix, x.device()));
}
Tensor placed(const Variable& x, const Tensor& index) {
  CategoryScope scope(Category::input);
  return x.device().type != DeviceType::cuda ? index : op_table::beside(x, index);
}

using GraphFn = std::function<Variable(const GraphPtr&, const Variable&)>;

Case on(const std::string& name, const GraphPtr& graph, const Shape& x, const GraphFn& f,
        Saved saved = nothing()) {
  return {.name = name,
          .inputs = {{x}},
          .run = [graph, f](const Variables& v) { return f(placed(v[0], graph), v[0]); },
          .saved = std::move(saved)};
}

Case on_large(const GraphFn& f, Saved saved = nothing()) {
  return {.name = "32k nodes, 256k edges, 64 wide",
          .inputs = {{kManyNodes}},
          .run = [f](const Variables& v) { return f(placed(v[0], large()), v[0]); },
          .saved = std::move(saved)};
}

// y = 1.5 A x + 0.3 addend + bias.
Case all_terms(const std::string& name, const GraphPtr& graph, bool mean) {
  return {.name = name,
          .inputs = {{{5, 3}}, {{3}, true}, {{5, 3}}},
          .run =
              [graph, mean](const Variables& v) {
                const SpmmTerms terms{1.5, v[1], v[2], 0.3};
                const GraphPtr there = placed(v[0], graph);
                return mean ? neighbour_mean(there, v[0], terms) : spmm(there, v[0], terms);
              },
          .saved = nothing()};
}

void add_sums(std::vector<Op>& rows) {
  const GraphPtr plain = small(EdgeNorm::none), gcn = small(EdgeNorm::symmetric, true);
  const GraphPtr none = graph_of(edges_of({}, {}), 3, EdgeNorm::none);
  const GraphFn sum = [](const GraphPtr& g, const Variable& x) { return spmm(g, x); };
  const GraphFn mean = [](const GraphPtr& g, const Variable& x) { return neighbour_mean(g, x); };
  const GraphFn most = [](const GraphPtr& g, const Variable& x) { return neighbour_max(g, x); };
  rows.push_back({.name = "spmm",
                  .cases = {on("gcn", gcn, {5, 19}, sum), on("no weights", plain, {5, 3}, sum),
                            all_terms("all terms", gcn, false), on("no edges", none, {3, 2}, sum),
                            on("no features", gcn, {5, 0}, sum)},
                  .failures = {{[plain] {
                                  spmm(plain, leaf({4, 2}));
                                },
                                "[spmm] expected x [5, F]"},
                               {[plain] {
                                  spmm(plain, leaf({5, 2}), {1, leaf({3}), {}, 1});
                                },
                                "[spmm] expected bias of shape [2]"},
                               {[plain] {
                                  spmm(plain, leaf({5, 2}), {1, {}, leaf({4, 2}), 1});
                                },
                                "[spmm] expected the addend of shape [5, 2]"},
                               {[] {
                                  spmm(nullptr, leaf({5, 2}));
                                },
                                "[spmm] expected a graph, got none"}},
                  .bench = on_large(sum)});
  rows.push_back({.name = "neighbour_mean",
                  .cases = {on("wide", plain, {5, 19}, mean), all_terms("all terms", plain, true),
                            on("no edges", none, {3, 2}, mean)},
                  .failures = {{[plain] {
                                  neighbour_mean(plain, leaf({4, 2}));
                                },
                                "[spmm] expected x [5, F]"}},
                  .bench = on_large(mean)});
  rows.push_back({.name = "neighbour_max",
                  .cases = {on("wide", plain, {5, 19}, most, bytes(5 * 19)),
                            on("no edges", none, {3, 2}, most, bytes(6))},
                  .failures = {{[plain] {
                                  neighbour_max(plain, leaf({4, 2}));
                                },
                                "[spmm_max] expected x [5, F]"}},
                  .bench = on_large(most, bytes(kManyNodes.numel()))});
}

SparsePtr features(bool valued) {
  const Tensor row_ptr = Tensor::from<int64_t>({0, 3, 3, 5, 6}, {5});
  const Tensor col = Tensor::from<int64_t>({0, 2, 6, 1, 2, 6}, {6});
  const Tensor value =
      valued ? Tensor::from<float>({0.5F, -1, 2, 0.25F, 1.5F, -0.75F}, {6}) : Tensor();
  return std::make_shared<ops::SparseMatrix>(ops::make_sparse(row_ptr, col, value, 7));
}

Case sparse(const std::string& name, const SparsePtr& x, bool bias, double dropout = 0) {
  Case c{name, {{{3, x->cols()}, true}}, {}, nothing()};
  if (bias) c.inputs.push_back({{3}, true});
  c.run = [=](const Variables& v) {
    return sparse_linear(placed(v[0], x), v[0], bias ? v[1] : Variable(), dropout, {5, 6});
  };
  return c;
}

void add_sparse(std::vector<Op>& rows) {
  const SparsePtr binary = features(false), valued = features(true);
  const SparsePtr empty = std::make_shared<ops::SparseMatrix>(
      ops::make_sparse(Tensor::zeros({1}, DType::i64), Tensor::zeros({0}, DType::i64), {}, 4));
  Case bench{"32k rows, 4096 wide, to 64", {{{64, 4096}, true}}, {}, nothing()};
  bench.run = [](const Variables& v) {
    static const SparsePtr x = [] {
      const Tensor ptr = Tensor::empty({(1 << 15) + 1}, DType::i64);
      const Tensor col = Tensor::empty({14 << 15}, DType::i64);
      for (int64_t r = 0; r < ptr.numel(); ++r) ptr.mut<int64_t>()[r] = 14 * r;
      for (int64_t e = 0; e < col.numel(); ++e)
        col.mut<int64_t>()[e] =
            static_cast<int64_t>(uniform_int({8, 1}, static_cast<uint64_t>(e), 4096));
      return std::make_shared<ops::SparseMatrix>(ops::make_sparse(ptr, col, {}, 4096));
    }();
    return sparse_linear(placed(v[0], x), v[0]);
  };
  rows.push_back({.name = "sparse_linear",
                  .cases = {sparse("ones", binary, true), sparse("values, no bias", valued, false),
                            sparse("dropout", valued, true, 0.4), sparse("no rows", empty, true)},
                  .failures = {{[binary] {
                                  sparse_linear(binary, leaf({3, 6}));
                                },
                                "[sparse_linear] expected a weight [O, 7]"},
                               {[binary] {
                                  sparse_linear(binary, leaf({3, 7}), leaf({2}));
                                },
                                "[sparse_linear] expected bias of shape [3]"},
                               {[binary] {
                                  sparse_linear(binary, leaf({3, 7}), {}, 1.5);
                                },
                                "[sparse dropout] expected a probability in [0, 1]"},
                               {[] {
                                  sparse_linear(nullptr, leaf({3, 7}));
                                },
                                "[sparse_linear] expected a sparse matrix, got none"}},
                  .bench = bench});
}

Case by_index(const std::string& name, const Shape& x, const Tensor& index,
              std::function<Variable(const Variable&, const Tensor&)> f, Saved saved = nothing()) {
  return {.name = name,
          .inputs = {{x}},
          .run = [=](const Variables& v) { return f(v[0], placed(v[0], index)); },
          .saved = std::move(saved)};
}

void add_identity(std::vector<Op>& rows) {
  const auto mixing = [](const std::string& name, int64_t nodes, int64_t width) {
    return Case{name,
                {{{nodes, width}}, {{width, width}, true}},
                [](const Variables& v) { return identity_linear(v[0], v[1], 0.3); },
                elements({nodes * width})};
  };
  rows.push_back({.name = "identity_linear",
                  .cases = {mixing("narrow", 5, 3), mixing("no nodes", 0, 3)},
                  .failures = {{[] {
                                  identity_linear(leaf({5, 3}), leaf({3, 4}), 0.1);
                                },
                                "[identity_linear] expected weight of shape [3, 3]"}},
                  .bench = mixing("32k nodes, 64 wide", 1 << 15, 64)});
}

void add_segments(std::vector<Op>& rows) {
  // Segment 2 is empty. The indices outlive the nodes that keep them.
  const Tensor index = Tensor::from<int64_t>({3, 0, 3, 1, 0, 3}, {6});
  const Tensor none = Tensor::zeros({0}, DType::i64);
  const auto gather = [](const Variable& x, const Tensor& i) { return gather_rows(x, i); };
  const auto sum = [](const Variable& x, const Tensor& i) { return segment_sum(x, i, 4); };
  const auto mean = [](const Variable& x, const Tensor& i) { return segment_mean(x, i, 4); };
  const auto most = [](const Variable& x, const Tensor& i) { return segment_max(x, i, 4); };
  const auto soft = [](const Variable& x, const Tensor& i) { return segment_softmax(x, i, 4); };
  rows.push_back({.name = "gather_rows",
                  .cases = {by_index("repeated", {4, 3}, index, gather),
                            by_index("none", {4, 3}, none, gather)},
                  .failures = {{[index] {
                                  gather_rows(leaf({3, 2}), index);
                                },
                                "[gather_rows] expected indices 0 to 2, got 3 at 0"},
                               {[] {
                                  gather_rows(leaf({3, 2}), f32({2}));
                                },
                                "[gather_rows] expected index of dtype i64"}}});
  const auto failures = [index](const std::string& op, auto f) {
    return std::vector<Failure>{{[=] {
                                   f(leaf({6, 2}), index, 3);
                                 },
                                 "[" + op + "] expected indices 0 to 2, got 3 at 0"},
                                {[=] {
                                   f(leaf({5, 2}), index, 4);
                                 },
                                 "[" + op + "] expected index of shape [5]"}};
  };
  rows.push_back(
      {.name = "segment_sum",
       .cases = {by_index("unsorted", {6, 3}, index, sum), by_index("none", {0, 3}, none, sum)},
       .failures = failures("segment_sum", segment_sum)});
  rows.push_back(
      {.name = "segment_mean",
       .cases = {by_index("unsorted", {6, 3}, index, mean), by_index("none", {0, 3}, none, mean)},
       .failures = failures("segment_mean", segment_mean)});
  rows.push_back({.name = "segment_max",
                  .cases = {by_index("unsorted", {6, 3}, index, most, bytes(4 * 3 * 4)),
                            by_index("none", {0, 3}, none, most, bytes(4 * 3 * 4))},
                  .failures = failures("segment_max", segment_max)});
  rows.push_back({.name = "segment_softmax",
                  .cases = {by_index("unsorted", {6, 3}, index, soft, elements({18})),
                            by_index("none", {0, 3}, none, soft, elements({0}))},
                  .failures = failures("segment_softmax", segment_softmax)});
}

Case attention(const std::string& name, std::function<const GraphPtr&()> graph, int64_t nodes,
               int64_t heads, int64_t width, double dropout) {
  const Shape scores{nodes, heads};
  return {
      .name = name,
      .inputs = {{{nodes, heads, width}}, {scores}, {scores}},
      .run =
          [=](const Variables& v) {
            return graph_attention(placed(v[0], graph()), v[0], v[1], v[2], {0.2, dropout, {9, 2}});
          },
      .saved = elements({nodes * heads * width, nodes * heads, nodes * heads})};
}

void add_graph_attention(std::vector<Op>& rows) {
  static const GraphPtr loops = small(EdgeNorm::none, true), plain = small(EdgeNorm::none);
  static const GraphPtr none = graph_of(edges_of({}, {}), 3, EdgeNorm::none);
  const auto with_loops = []() -> const GraphPtr& { return loops; };
  const auto without = []() -> const GraphPtr& { return plain; };
  const auto edgeless = []() -> const GraphPtr& { return none; };
  rows.push_back(
      {.name = "graph_attention",
       .cases = {attention("two heads", with_loops, 5, 2, 3, 0),
                 attention("a node without edges", without, 5, 3, 2, 0),
                 attention("dropout", with_loops, 5, 3, 4, 0.4),
                 attention("no edges", edgeless, 3, 2, 2, 0)},
       .failures =
           {{[] {
               graph_attention(plain, leaf({4, 2, 3}), leaf({4, 2}), leaf({4, 2}));
             },
             "[graph_attention] expected h [5, heads, F]"},
            {[] {
               graph_attention(plain, leaf({5, 2, 3}), leaf({5, 1}), leaf({5, 2}));
             },
             "[graph_attention] expected a_src of shape [5, 2]"},
            {[] {
               graph_attention(plain, leaf({5, 200, 1}), leaf({5, 200}), leaf({5, 200}));
             },
             "[graph_attention] expected 1 to 128 heads, got 200"},
            {[] {
               graph_attention(plain, leaf({5, 2, 3}), leaf({5, 2}), leaf({5, 2}), {0.2, 2, {}});
             },
             "[graph_attention] expected a dropout probability in [0, 1]"},
            {[] {
               graph_attention(nullptr, leaf({5, 2, 3}), leaf({5, 2}), leaf({5, 2}));
             },
             "[graph_attention] expected a graph, got none"}},
       .bench = attention(
           "8 heads of 8", []() -> const GraphPtr& { return large(); }, 1 << 15, 8, 8, 0.6)});
  const auto scores = [](const std::string& name, int64_t nodes, int64_t heads, int64_t width) {
    return Case{name,
                {{{nodes, heads, width}}, {{1, heads, width}, true}},
                [](const Variables& v) { return head_scores(v[0], v[1]); },
                elements({nodes * heads * width})};
  };
  rows.push_back({.name = "head_scores",
                  .cases = {scores("two heads", 5, 2, 3), scores("no nodes", 0, 2, 3)},
                  .failures = {{[] {
                                  head_scores(leaf({5, 2, 3}), leaf({2, 3}));
                                },
                                "[head_scores] expected weight of shape [1, 2, 3]"}},
                  .bench = scores("8 heads of 8", 1 << 16, 8, 8)});
}

void add_activations(std::vector<Op>& rows) {
  const auto of = [](const std::string& name, const Shape& x, auto f, Saved saved) {
    return Case{
        name, {{x, false, -2, 2}}, [f](const Variables& v) { return f(v[0]); }, std::move(saved)};
  };
  const auto with_mask = [](int64_t n) {
    return [n](int64_t element) { return std::vector<int64_t>{n * element, mask_bytes(n)}; };
  };
  const auto exponential = [](const Variable& x) { return elu(x); };
  rows.push_back({.name = "elu",
                  .cases = {of("rows by eight", {2, 4, 5}, exponential, with_mask(40)),
                            of("odd", {3, 5}, exponential, with_mask(15)),
                            of("empty", {0, 3}, exponential, with_mask(0))},
                  .bench = of("4 Mi elements", {1 << 16, 64}, exponential, with_mask(1 << 22))});
  const auto dropped = [](const Variable& x) { return relu_dropout(x, 0.4, {7, 3}); };
  rows.push_back(
      {.name = "relu_dropout",
       .cases = {of("rows by eight", {2, 4, 5}, dropped, bytes(mask_bytes(40))),
                 of("odd", {3, 5}, dropped, bytes(mask_bytes(15))),
                 of(
                     "nothing dropped", {3, 5},
                     [](const Variable& x) { return relu_dropout(x, 0, {}); },
                     bytes(mask_bytes(15)))},
       .failures = {{[] { relu_dropout(leaf({2}), 1.5, {}); },
                     "[relu_dropout] expected a probability in [0, 1]"}},
       .bench = of("4 Mi elements", {1 << 16, 64}, dropped, bytes(mask_bytes(1 << 22)))});
}

}  // namespace

void add_graph(std::vector<Op>& rows) {
  add_sums(rows);
  add_sparse(rows);
  add_identity(rows);
  add_segments(rows);
  add_graph_attention(rows);
  add_activations(rows);
}

}  // namespace frugal::op_table
