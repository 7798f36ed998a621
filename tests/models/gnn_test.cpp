// What all graph networks do: order, training, sparse features, bytes, meta, mistakes.
#include <cmath>
#include <limits>
#include <map>

#include "autograd/engine.h"
#include "autograd/record.h"
#include "models/graph_inputs.h"
#include "ops/dense/copy.h"
#include "tests/models/gnn_samples.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::models::gnn;

TEST_CASE("nodes in another order give their outputs in that order") {
  const std::vector<int64_t> order = {4, 2, 6, 0, 1, 5, 3};
  const Tensor x = features(DType::f32), moved = Tensor::empty(x.shape());
  for (int64_t v = 0; v < kNodes; ++v)
    ops::copy_into(moved.select(0, order[static_cast<size_t>(v)]), x.select(0, v));
  for (const auto& [name, make] : makers(0)) {
    const auto& this_name = name;
    CAPTURE(this_name);
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
    const auto& this_name = name;
    CAPTURE(this_name);
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
    const auto& this_name = name;
    CAPTURE(this_name);
    const auto a = make(), b = make();
    Context dense = context_of(edge_index()), sparse = context_of(edge_index());
    sparse.extras.emplace_back("x_row_ptr", Tensor::from(row_ptr, {kNodes + 1}));
    sparse.extras.emplace_back("x_col", Tensor::from(col, {static_cast<int64_t>(col.size())}));
    const Variable y = a->forward(Variable(x), dense);
    const Variable z = b->forward(Variable(Tensor::empty({kNodes, 0})), sparse);
    CHECK(distance(z.value(), Matrix{y.value()}) < 1e-5);
    // In bf16 no more than 16 roundings of 2^-8 lie between features and an output.
    Context half = sparse;
    half.dtype = DType::bf16;
    const Tensor w = make()->forward(Variable(Tensor::empty({kNodes, 0})), half).value();
    CHECK(w.dtype() == DType::bf16);
    double most = 0;
    for (const double value : y.value().to_vector()) most = std::max(most, std::abs(value));
    CHECK(distance(ops::cast(w, DType::f32), Matrix{y.value()}) < most / 16);
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

TEST_CASE(
    "what the next step has no use for is dropped: sampled graphs, and those of evaluations") {
  GraphInputs inputs;
  const Tensor held = edge_index(), tested = edge_index();
  const auto graph = [&](const Tensor& edges, bool training) {
    Context context = context_of(edges);
    context.training = training;
    return std::weak_ptr(inputs.graph(context, kNodes, {}));
  };
  const auto whole = graph(held, true), test = graph(tested, false);
  CHECK(graph(held, false).lock() == whole.lock());
  inputs.forget_idle();
  CHECK(!whole.expired());
  CHECK(test.expired());
  CHECK(graph(held, true).lock() == whole.lock());
  const auto sampled = graph(edge_index(), true);  // nobody holds its tensors any more
  CHECK(!sampled.expired());
  inputs.forget_idle();
  CHECK(sampled.expired());
  CHECK(!whole.expired());
}

TEST_CASE("coefficients of edges are used unchanged, also those of loops") {
  const auto with_norms = [](const Matrix& a) {
    std::vector<int64_t> from, to;
    std::vector<float> norm;
    for (int64_t i = 0; i < kNodes; ++i)
      for (int64_t j = 0; j < kNodes; ++j)
        if (a(i, j) != 0) {
          from.push_back(j);
          to.push_back(i);
          norm.push_back(static_cast<float>(a(i, j)));
        }
    const auto edges = static_cast<int64_t>(from.size());
    from.insert(from.end(), to.begin(), to.end());
    CategoryScope scope(Category::input);
    Context context = context_of(Tensor::from(from, {2, edges}), nullptr, false);
    context.extras.emplace_back("edge_norm", Tensor::from(norm, {edges}));
    return context;
  };
  const Tensor x = features(DType::f32);
  const auto same = [&](Module& net, const Matrix& a) {
    const Tensor expected = run(net, x, context_of(edge_index(), nullptr, false));
    CHECK(distance(run(net, x, with_norms(a)), Matrix(expected)) < 1e-5);
    CHECK(distance(run(net, x, with_norms(map(a, [](double v) { return 2 * v; }))),
                   Matrix(expected)) > 1e-3);
    Context both = with_norms(a);
    both.extras.emplace_back("edge_weight", find_tensor(both.extras, "edge_norm"));
    CHECK_THROWS_WITH_AS(run(net, x, both), doctest::Contains("got both"), Error);
  };
  Init init;
  Gcn gcn(init, options_of<GnnOptions>(2));
  same(gcn, gcn_matrix());
  Gcnii gcnii(init, options_of<GcniiOptions>(3));
  same(gcnii, gcn_matrix());
  Sage sage(init, options_of<SageOptions>(2));
  same(sage, mean_matrix());
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
    const auto& this_name = name;
    CAPTURE(this_name);
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
    const auto& this_name = name;
    CAPTURE(this_name);
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
    context.checkpointed_blocks = kAllBlocks;
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
