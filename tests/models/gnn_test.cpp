// Graph networks against PyTorch Geometric's formulas with dense matrices in f64.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "autograd/engine.h"
#include "autograd/record.h"
#include "models/gat.h"
#include "models/gcn.h"
#include "models/gcnii.h"
#include "models/sage.h"
#include "models/state.h"
#include "ops/copy.h"

using namespace frugal;
using namespace frugal::models;

namespace {

struct Matrix {
  int64_t rows, cols;
  std::vector<double> v;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), v(static_cast<size_t>(r * c)) {}
  explicit Matrix(const Tensor& t)
      : rows(t.dim() == 2 ? t.size(0) : 1), cols(t.size(-1)), v(t.to_vector()) {}
  double& operator()(int64_t i, int64_t j) { return v[static_cast<size_t>(i * cols + j)]; }
  double operator()(int64_t i, int64_t j) const { return v[static_cast<size_t>(i * cols + j)]; }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.cols; ++j)
      for (int64_t k = 0; k < a.cols; ++k) c(i, j) += a(i, k) * b(k, j);
  return c;
}
Matrix transposed(const Matrix& a) {
  Matrix c(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j) c(j, i) = a(i, j);
  return c;
}
Matrix map(Matrix a, const std::function<double(double)>& f) {
  for (double& x : a.v) x = f(x);
  return a;
}
Matrix plus(Matrix a, const Matrix& b, double factor = 1) {  // b: of a's shape, or one row
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j) a(i, j) += factor * b(b.rows == 1 ? 0 : i, j);
  return a;
}
Matrix relu_of(const Matrix& a) {
  return map(a, [](double x) { return x > 0 ? x : 0; });
}
Matrix elu_of(const Matrix& a) {
  return map(a, [](double x) { return x > 0 ? x : std::expm1(x); });
}

double distance(const Tensor& a, const Matrix& b) {
  const std::vector<double> x = a.to_vector();
  REQUIRE(x.size() == b.v.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(x[i] - b.v[i]));
  return worst;
}

constexpr int64_t kNodes = 7, kFeatures = 5, kClasses = 3;
// Node 6 has no edges; 1 -> 1 is a loop, 2 -> 3 stands twice.
const std::vector<int64_t> kFrom = {0, 1, 2, 1, 3, 2, 2, 4, 5, 0};
const std::vector<int64_t> kTo = {1, 0, 0, 1, 4, 3, 3, 5, 0, 5};

Tensor edge_index(const std::vector<int64_t>& order = {}) {  // node v becomes order[v]
  CategoryScope scope(Category::input);
  std::vector<int64_t> both;
  for (const auto* ends : {&kFrom, &kTo})
    for (const int64_t v : *ends) both.push_back(order.empty() ? v : order[static_cast<size_t>(v)]);
  return Tensor::from(both, {2, static_cast<int64_t>(kFrom.size())});
}

// a(i, j) edges from j to i.
Matrix adjacency(bool loops) {
  Matrix a(kNodes, kNodes);
  for (size_t e = 0; e < kFrom.size(); ++e)
    if (!loops || kFrom[e] != kTo[e]) a(kTo[e], kFrom[e]) += 1;
  for (int64_t v = 0; loops && v < kNodes; ++v) a(v, v) = 1;
  return a;
}

Matrix gcn_matrix() {
  const Matrix a = adjacency(true);
  Matrix n(kNodes, kNodes);
  std::vector<double> degree(kNodes);
  for (int64_t i = 0; i < kNodes; ++i)
    for (int64_t j = 0; j < kNodes; ++j) degree[static_cast<size_t>(i)] += a(i, j);
  for (int64_t i = 0; i < kNodes; ++i)
    for (int64_t j = 0; j < kNodes; ++j)
      n(i, j) =
          a(i, j) / std::sqrt(degree[static_cast<size_t>(i)] * degree[static_cast<size_t>(j)]);
  return n;
}

Matrix mean_matrix() {
  Matrix a = adjacency(false);
  for (int64_t i = 0; i < kNodes; ++i) {
    double degree = 0;
    for (int64_t j = 0; j < kNodes; ++j) degree += a(i, j);
    for (int64_t j = 0; j < kNodes && degree > 0; ++j) a(i, j) /= degree;
  }
  return a;
}

Tensor features(DType dtype = DType::f64, bool binary = false) {
  CategoryScope scope(Category::input);
  const Tensor x = Tensor::empty({kNodes, kFeatures}, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double v = static_cast<double>(normal({5, 6}, static_cast<uint64_t>(i)));
    x.mut<double>()[i] = binary ? (v > 0.3 ? 1 : 0) : v;
  }
  return ops::cast(x, dtype);
}

template <class Options>
Options options_of(int64_t layers) {
  Options o;
  o.in_features = kFeatures;
  o.hidden = 4;
  o.num_classes = kClasses;
  o.layers = layers;
  o.dropout = 0;
  return o;
}

std::function<Matrix(const std::string&)> parameters_of(Module& m) {
  return [&m](const std::string& name) {
    for (const auto& p : m.parameters())
      if (p.name == name) return Matrix(p.parameter->value());
    FAIL("no parameter " << name);
    return Matrix(0, 0);
  };
}

std::set<std::string> names_of(Module& m) {
  std::set<std::string> names;
  for (const auto& p : m.parameters()) names.insert(p.name);
  for (const auto& b : m.buffers()) names.insert(b.name);
  return names;
}

Context context_of(const Tensor& edges, Rng* rng = nullptr, bool training = true) {
  Context context;
  context.training = training;
  context.rng = rng;
  context.extras = {{"edge_index", edges}};
  return context;
}

Tensor run(Module& m, const Tensor& x, Context context) {
  return m.forward(Variable(x), context).value();
}

// Biases that are not 0.
void shift_biases(Module& m) {
  for (const auto& p : m.parameters())
    if (p.name.ends_with("bias"))
      for (int64_t i = 0; i < p.parameter->value().numel(); ++i)
        p.parameter->value().mut<float>()[i] = 0.1F * static_cast<float>(i + 1);
}

}  // namespace

TEST_CASE("gcn is D^-1/2 (A + I) D^-1/2 X W + b, twice") {
  Init init;
  Gcn net(init, options_of<GnnOptions>(2));
  CHECK(names_of(net) == std::set<std::string>{"convs.0.lin.weight", "convs.0.bias",
                                               "convs.1.lin.weight", "convs.1.bias"});
  shift_biases(net);
  to_dtype(net, DType::f64);
  const auto p = parameters_of(net);
  const Matrix a = gcn_matrix();
  Matrix x{features()};
  for (const char* name : {"convs.0.", "convs.1."}) {
    x = plus(product(a, product(x, transposed(p(name + std::string("lin.weight"))))),
             p(name + std::string("bias")));
    if (name[6] == '0') x = relu_of(x);
  }
  CHECK(distance(run(net, features(), context_of(edge_index())), x) < 1e-6);
}

TEST_CASE("sage adds the mean of the neighbours and the node itself; the maximum is PyG's") {
  for (const bool maxima : {false, true}) {
    CAPTURE(maxima);
    Init init;
    auto options = options_of<SageOptions>(1);
    if (maxima) options.aggregation = SageAggregation::max;
    Sage net(init, options);
    CHECK(names_of(net) == std::set<std::string>{"convs.0.lin_l.weight", "convs.0.lin_l.bias",
                                                 "convs.0.lin_r.weight"});
    shift_biases(net);
    to_dtype(net, DType::f64);
    const auto p = parameters_of(net);
    const Matrix x{features()};
    Matrix joined = product(mean_matrix(), x);
    const Matrix edges = adjacency(false);
    for (int64_t i = 0; maxima && i < kNodes; ++i)
      for (int64_t f = 0; f < kFeatures; ++f) {
        double most = -1e30;
        for (int64_t j = 0; j < kNodes; ++j)
          if (edges(i, j) > 0) most = std::max(most, x(j, f));
        joined(i, f) = most == -1e30 ? 0 : most;
      }
    Matrix y =
        plus(product(joined, transposed(p("convs.0.lin_l.weight"))), p("convs.0.lin_l.bias"));
    y = plus(y, product(x, transposed(p("convs.0.lin_r.weight"))));
    CHECK(distance(run(net, features(), context_of(edge_index())), y) < 1e-9);
  }
}

TEST_CASE("gat is a softmax over the edges into a node, heads side by side, the last averaged") {
  Init init;
  auto options = options_of<GatOptions>(2);
  options.input_dropout = options.attention_dropout = 0;
  options.heads = 2;
  options.out_heads = 3;
  Gat net(init, options);
  CHECK(names_of(net) == std::set<std::string>{"convs.0.lin.weight", "convs.0.att_src",
                                               "convs.0.att_dst", "convs.0.bias",
                                               "convs.1.lin.weight", "convs.1.att_src",
                                               "convs.1.att_dst", "convs.1.bias"});
  shift_biases(net);
  to_dtype(net, DType::f64);
  const auto p = parameters_of(net);
  const Matrix edges = adjacency(true);
  Matrix x{features()};
  for (const std::string conv : {"convs.0.", "convs.1."}) {
    const bool last = conv == "convs.1.";
    const int64_t heads = last ? 3 : 2, width = last ? kClasses : 2;
    const Matrix h = product(x, transposed(p(conv + "lin.weight")));
    const std::vector<double> src = p(conv + "att_src").v, dst = p(conv + "att_dst").v;
    Matrix y(kNodes, last ? width : heads * width);
    for (int64_t k = 0; k < heads; ++k)
      for (int64_t i = 0; i < kNodes; ++i) {
        const auto score = [&](const std::vector<double>& a, int64_t v) {
          double sum = 0;
          for (int64_t f = 0; f < width; ++f)
            sum += a[static_cast<size_t>(k * width + f)] * h(v, k * width + f);
          return sum;
        };
        std::vector<double> e(kNodes);
        double total = 0;
        for (int64_t j = 0; j < kNodes; ++j) {
          const double z = score(src, j) + score(dst, i);
          e[static_cast<size_t>(j)] = edges(i, j) * std::exp(z > 0 ? z : 0.2 * z);
          total += e[static_cast<size_t>(j)];
        }
        for (int64_t j = 0; j < kNodes; ++j)
          for (int64_t f = 0; f < width; ++f)
            y(i, last ? f : k * width + f) += e[static_cast<size_t>(j)] / total *
                                              h(j, k * width + f) /
                                              (last ? static_cast<double>(heads) : 1);
      }
    x = plus(y, p(conv + "bias"));
    if (!last) x = elu_of(x);
  }
  CHECK(distance(run(net, features(), context_of(edge_index())), x) < 1e-9);
}

TEST_CASE("gcnii mixes the first features and the identity into every layer") {
  Init init;
  auto options = options_of<GcniiOptions>(3);
  options.alpha = 0.2;
  Gcnii net(init, options);
  CHECK(names_of(net) == std::set<std::string>{"lins.0.weight", "lins.0.bias", "lins.1.weight",
                                               "lins.1.bias", "convs.0.weight1", "convs.1.weight1",
                                               "convs.2.weight1"});
  to_dtype(net, DType::f64);
  const auto p = parameters_of(net);
  const Matrix first =
      relu_of(plus(product(Matrix{features()}, transposed(p("lins.0.weight"))), p("lins.0.bias")));
  Matrix x = first;
  for (int l = 1; l <= 3; ++l) {
    const double beta = std::log(0.5 / l + 1);
    const Matrix h =
        plus(map(product(gcn_matrix(), x), [](double v) { return 0.8 * v; }), first, 0.2);
    const Matrix mixed = product(h, p("convs." + std::to_string(l - 1) + ".weight1"));
    x = relu_of(plus(map(h, [&](double v) { return (1 - beta) * v; }), mixed, beta));
  }
  x = plus(product(x, transposed(p("lins.1.weight"))), p("lins.1.bias"));
  CHECK(distance(run(net, features(), context_of(edge_index())), x) < 1e-6);
}

namespace {

using Maker = std::function<std::shared_ptr<Module>()>;

// Each network with everything on; dropout as given.
std::vector<std::pair<std::string, Maker>> makers(double p, bool norms = true) {
  const auto common = [=](auto o) {
    o.dropout = o.input_dropout = p;
    o.batch_norm = norms;
    return o;
  };
  return {
      {"gcn",
       [=] {
         Init init;
         auto o = common(options_of<GnnOptions>(3));
         o.residual = true;
         return std::make_shared<Gcn>(init, o);
       }},
      {"gcn, joined",
       [=] {
         Init init;
         auto o = common(options_of<GnnOptions>(3));
         o.jk = JumpingKnowledge::cat;
         return std::make_shared<Gcn>(init, o);
       }},
      {"sage",
       [=] {
         Init init;
         auto o = common(options_of<SageOptions>(2));
         o.jk = JumpingKnowledge::max;
         return std::make_shared<Sage>(init, o);
       }},
      {"gat",
       [=] {
         Init init;
         auto o = common(options_of<GatOptions>(3));
         o.heads = 2;
         o.attention_dropout = p;
         o.residual = true;
         return std::make_shared<Gat>(init, o);
       }},
      {"gcnii",
       [=] {
         Init init;
         auto o = options_of<GcniiOptions>(4);
         o.dropout = p;
         return std::make_shared<Gcnii>(init, o);
       }},
  };
}

}  // namespace

TEST_CASE("nodes in another order give their outputs in that order") {
  const std::vector<int64_t> order = {4, 2, 6, 0, 1, 5, 3};
  const Tensor x = features(DType::f32), moved = Tensor::empty(x.shape());
  for (int64_t v = 0; v < kNodes; ++v)
    ops::copy_into(moved.select(0, order[static_cast<size_t>(v)]), x.select(0, v));
  for (const auto& [name, make] : makers(0)) {
    CAPTURE(name);
    const auto net = make();
    const Tensor y = run(*net, x, context_of(edge_index(), nullptr, false));
    const Tensor z = run(*net, moved, context_of(edge_index(order), nullptr, false));
    for (int64_t v = 0; v < kNodes; ++v)
      for (int64_t c = 0; c < kClasses; ++c)
        CHECK(z.select(0, order[static_cast<size_t>(v)]).item(c) ==
              doctest::Approx(y.select(0, v).item(c)).epsilon(1e-5));
  }
}

TEST_CASE("training lowers the loss, and every parameter takes part") {
  const Tensor target = Tensor::from<int64_t>({0, 1, 2, 0, 1, 2, 0}, {kNodes});
  const Tensor edges = edge_index(), x = features(DType::f32);
  for (const auto& [name, make] : makers(0)) {
    CAPTURE(name);
    const auto net = make();
    Rng rng(1);
    const auto loss_of = [&](bool training) {
      Context context = context_of(edges, &rng, training);
      return cross_entropy(net->forward(Variable(x), context), target);
    };
    std::map<std::string, std::vector<float>> speeds;
    const double before = loss_of(true).value().item();
    for (int step = 0; step < 150; ++step) {
      net->zero_grad();
      backward(loss_of(true));
      for (const auto& p : net->parameters()) {
        REQUIRE_MESSAGE(p.parameter->grad().defined(), p.name);
        const Tensor value = p.parameter->value(), grad = ops::contiguous(p.parameter->grad());
        std::vector<float>& speed = speeds[p.name];
        speed.resize(static_cast<size_t>(value.numel()));
        for (int64_t i = 0; i < value.numel(); ++i) {
          float& v = speed[static_cast<size_t>(i)];
          v = 0.9F * v + grad.data<float>()[i];
          value.mut<float>()[i] -= 0.05F * v;
        }
        value.bump_version();
      }
    }
    CHECK(loss_of(true).value().item() < 0.7 * before);
  }
}

TEST_CASE("sparse features give what the dense ones give") {
  const Tensor x = features(DType::f32, true);
  std::vector<int64_t> row_ptr = {0}, col;
  for (int64_t v = 0; v < kNodes; ++v) {
    for (int64_t f = 0; f < kFeatures; ++f)
      if (x.item(v * kFeatures + f) != 0) col.push_back(f);
    row_ptr.push_back(static_cast<int64_t>(col.size()));
  }
  for (const auto& [name, make] : makers(0)) {
    CAPTURE(name);
    const auto a = make(), b = make();
    Context dense = context_of(edge_index()), sparse = context_of(edge_index());
    sparse.extras.emplace_back("x_row_ptr", Tensor::from(row_ptr, {kNodes + 1}));
    sparse.extras.emplace_back("x_col", Tensor::from(col, {static_cast<int64_t>(col.size())}));
    const Variable y = a->forward(Variable(x), dense);
    const Variable z = b->forward(Variable(Tensor::empty({kNodes, 0})), sparse);
    CHECK(distance(z.value(), Matrix{y.value()}) < 1e-5);
    const Tensor dy = features(DType::f32).slice(1, 0, kClasses);
    backward(y, dy);
    backward(z, dy);
    const auto pa = a->parameters(), pb = b->parameters();
    for (size_t i = 0; i < pa.size(); ++i) {
      const auto ga = pa[i].parameter->grad().to_vector(), gb = pb[i].parameter->grad().to_vector();
      for (size_t k = 0; k < ga.size(); ++k)
        CHECK(ga[k] == doctest::Approx(gb[k]).epsilon(1e-4).scale(1));
    }
  }
}

TEST_CASE("a graph is built once for the same tensors and again when they change") {
  GraphInputs inputs;
  const Tensor first = edge_index(), second = edge_index();
  const auto graph = [&](const Tensor& edges) {
    return inputs.graph(context_of(edges), kNodes, {});
  };
  const GraphPtr a = graph(first), b = graph(second);
  CHECK(a != b);
  CHECK(graph(first) == a);
  CHECK(graph(second) == b);
  const Tensor third = edge_index();
  const GraphPtr c = graph(third);  // takes the place of the first
  CHECK(graph(third) == c);
  CHECK(graph(second) == b);
  CHECK(graph(first) != a);
  third.mut<int64_t>()[0] = 2;
  third.bump_version();
  const GraphPtr changed = graph(third);
  CHECK(changed != c);
  CHECK(changed->edges.by_row.col.to_vector() != c->edges.by_row.col.to_vector());
}

TEST_CASE("a layer keeps one tensor of its width") {
  constexpr int64_t kMany = 512, kWidth = 64;
  CategoryScope scope(Category::input);
  const Tensor x = Tensor::full({kMany, kFeatures}, 0.5);
  const Tensor edges = Tensor::empty({2, 4 * kMany}, DType::i64);
  for (int64_t e = 0; e < edges.numel(); ++e)
    edges.mut<int64_t>()[e] =
        static_cast<int64_t>(uniform_int({1, 2}, static_cast<uint64_t>(e), kMany));
  auto options = options_of<GnnOptions>(4);
  options.hidden = kWidth;
  options.num_classes = 1;
  options.dropout = 0.5;
  Init init;
  Gcn net(init, options);
  Rng rng(2);
  Context context = context_of(edges, &rng);
  CategoryScope activations(Category::activation);
  const int64_t before = allocator(kCpu).report().of(Category::activation);
  const Variable y = net.forward(Variable(x), context);
  const int64_t kept = allocator(kCpu).report().of(Category::activation) - before;
  // Three hidden outputs in f32, their masks of 1 bit, and the output.
  CHECK(kept == 3 * (kMany * kWidth * 4 + kMany * kWidth / 8) + kMany * 4);
}

TEST_CASE("empty graphs, nodes without edges and NaN have defined results") {
  for (const auto& [name, make] : makers(0, false)) {
    CAPTURE(name);
    const auto net = make();
    const Tensor none = Tensor::zeros({2, 0}, DType::i64);
    for (const double v : run(*net, features(DType::f32), context_of(none)).to_vector())
      CHECK(std::isfinite(v));
    CHECK(run(*net, Tensor::zeros({0, kFeatures}), context_of(none)).shape() == Shape{0, kClasses});
    // A NaN reaches its neighbours within the layers' reach, and nobody else: not node 6.
    const Tensor x = features(DType::f32);
    x.mut<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<double> y = run(*net, x, context_of(edge_index())).to_vector();
    CHECK(std::isnan(y[0]));
    CHECK(std::isfinite(y[6 * kClasses]));
  }
}

TEST_CASE("on meta, a step has its shapes") {
  for (const auto& [name, make] : makers(0.5)) {
    CAPTURE(name);
    const auto net = make();
    for (const auto& p : net->parameters())
      p.parameter->set_value(Tensor::empty(p.parameter->shape(), p.parameter->dtype(), kMeta));
    for (const auto& b : net->buffers())
      *b.buffer = Tensor::empty(b.buffer->shape(), b.buffer->dtype(), kMeta);
    Rng rng(0);
    Context context = context_of(Tensor::empty({2, 10}, DType::i64, kMeta), &rng);
    const Variable y =
        net->forward(Variable(Tensor::empty({kNodes, kFeatures}, DType::f32, kMeta)), context);
    CHECK(y.shape() == Shape{kNodes, kClasses});
    backward(y, Tensor::empty(y.shape(), DType::f32, kMeta));
    for (const auto& p : net->parameters())
      CHECK_MESSAGE(p.parameter->grad().shape() == p.parameter->shape(), p.name);
  }
}

TEST_CASE("what does not fit is refused by name") {
  const auto refused = [](const std::string& message, const std::function<void()>& f) {
    CAPTURE(message);
    CHECK_THROWS_WITH_AS(f(), doctest::Contains(message.c_str()), Error);
  };
  Init init;
  Gcn net(init, options_of<GnnOptions>(2));
  const Tensor x = features(DType::f32);
  refused("[graph] expected a batch with edge_index", [&] { run(net, x, Context{}); });
  refused("[gcn] expected 5 features a node", [&] {
    run(net, Tensor::zeros({kNodes, 4}), context_of(edge_index()));
  });
  refused("[gcn] expected x [V, F]", [&] {
    run(net, Tensor::zeros({kNodes, 1, 5}), context_of(edge_index()));
  });
  refused("[graph] expected edges between nodes 0 to 3", [&] {
    run(net, Tensor::zeros({4, 5}), context_of(edge_index()));
  });
  refused("[gcn] expected x_col beside x_row_ptr", [&] {
    Context context = context_of(edge_index());
    context.extras.emplace_back("x_row_ptr", Tensor::zeros({kNodes + 1}, DType::i64));
    run(net, Tensor::zeros({kNodes, 0}), context);
  });
  refused("[gcn] expected sparse features of 7 nodes, got 2", [&] {
    Context context = context_of(edge_index());
    context.extras.emplace_back("x_row_ptr", Tensor::zeros({3}, DType::i64));
    context.extras.emplace_back("x_col", Tensor::zeros({0}, DType::i64));
    run(net, Tensor::zeros({kNodes, 0}), context);
  });
  refused("[gcn] expected no checkpointing", [&] {
    Context context = context_of(edge_index());
    context.checkpointing = true;
    run(net, x, context);
  });
  auto dropping = options_of<GnnOptions>(2);
  dropping.dropout = 0.5;
  Gcn drops(init, dropping);
  refused("[gcn] expected a random stream", [&] { run(drops, x, context_of(edge_index())); });
  dropping.dropout = 1;
  refused("[gcn] expected dropout in [0, 1)", [&] { Gcn(init, dropping); });
  refused("[gcn] expected layers, features, hidden units and classes of at least 1",
          [&] { Gcn(init, options_of<GnnOptions>(0)); });
  auto heads = options_of<GatOptions>(2);
  heads.heads = 3;
  refused("[gat] expected hidden units that divide into heads", [&] { Gat(init, heads); });
  auto maxima = options_of<SageOptions>(2);
  maxima.aggregation = SageAggregation::max;
  Sage sage(init, maxima);
  refused("[sage] expected dense features and no edge weights", [&] {
    Context context = context_of(edge_index());
    context.extras.emplace_back("edge_weight", Tensor::full({10}, 1));
    run(sage, x, context);
  });
  auto theta = options_of<GcniiOptions>(2);
  theta.theta = 0;
  refused("[gcnii] expected alpha in [0, 1] and theta > 0", [&] { Gcnii(init, theta); });
}
