// Graph networks against PyTorch Geometric's formulas with dense matrices in f64.
#include "tests/models/gnn_samples.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::models::gnn;

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
