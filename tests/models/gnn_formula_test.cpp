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

namespace {

// A network of convolutions with what may follow them: x -> conv(layer, x), then norm, shortcut,
// activation; at the end a linear layer on the joined outputs, or none.
struct Stack {
  std::string name;
  std::function<std::shared_ptr<Module>(const GnnOptions&)> make;
  std::function<Matrix(int64_t layer, const Matrix& x)> conv;  // by `parameters`
  bool elu = false;
  std::function<Matrix(const std::string&)> parameters = {};
};

std::string at(const char* list, int64_t layer, const char* name) {
  return std::string(list) + "." + std::to_string(layer) + "." + name;
}

template <class Options>
Options with(const GnnOptions& common) {
  Options options;
  static_cast<GnnOptions&>(options) = common;
  return options;
}

// Batch norm over the nodes, the variance biased.
Matrix normalized(const Matrix& x, const Matrix& weight, const Matrix& bias) {
  Matrix y = x;
  const auto n = static_cast<double>(x.rows);
  for (int64_t j = 0; j < x.cols; ++j) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < x.rows; ++i) mean += x(i, j) / n;
    for (int64_t i = 0; i < x.rows; ++i) variance += (x(i, j) - mean) * (x(i, j) - mean) / n;
    for (int64_t i = 0; i < x.rows; ++i)
      y(i, j) = (x(i, j) - mean) / std::sqrt(variance + 1e-5) * weight(0, j) + bias(0, j);
  }
  return y;
}

Matrix joined(const std::vector<Matrix>& all, JumpingKnowledge how) {
  Matrix y = all[0];
  if (how == JumpingKnowledge::max) {
    for (const Matrix& x : all)
      for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = std::max(y.v[i], x.v[i]);
    return y;
  }
  y = Matrix(all[0].rows, all[0].cols * static_cast<int64_t>(all.size()));
  for (size_t k = 0; k < all.size(); ++k)
    for (int64_t i = 0; i < y.rows; ++i)
      for (int64_t j = 0; j < all[k].cols; ++j)
        y(i, static_cast<int64_t>(k) * all[k].cols + j) = all[k](i, j);
  return y;
}

Matrix expected(const Stack& net, const GnnOptions& options) {
  Matrix x{features()};
  std::vector<Matrix> outputs;
  const bool joins = options.jk != JumpingKnowledge::none;
  for (int64_t l = 0; l < options.layers; ++l) {
    Matrix y = net.conv(l, x);
    if (!joins && l + 1 == options.layers) return y;
    if (options.batch_norm)
      y = normalized(y, net.parameters(at("norms", l, "module.weight")),
                     net.parameters(at("norms", l, "module.bias")));
    if (options.residual && x.cols == y.cols) y = plus(y, x);
    x = net.elu ? elu_of(y) : relu_of(y);
    outputs.push_back(x);
  }
  return plus(product(joined(outputs, options.jk), transposed(net.parameters("lin.weight"))),
              net.parameters("lin.bias"));
}

}  // namespace

TEST_CASE("norms, shortcuts and jumping knowledge are what the formulas say") {
  Stack gcn{"gcn",
            [](const GnnOptions& o) {
              Init init;
              return std::make_shared<Gcn>(init, o);
            },
            {}};
  gcn.conv = [&](int64_t l, const Matrix& x) {
    return plus(
        product(gcn_matrix(), product(x, transposed(gcn.parameters(at("convs", l, "lin.weight"))))),
        gcn.parameters(at("convs", l, "bias")));
  };
  Stack sage{"sage",
             [](const GnnOptions& o) {
               Init init;
               return std::make_shared<Sage>(init, with<SageOptions>(o));
             },
             {}};
  sage.conv = [&](int64_t l, const Matrix& x) {
    const Matrix left = product(product(mean_matrix(), x),
                                transposed(sage.parameters(at("convs", l, "lin_l.weight"))));
    return plus(plus(left, product(x, transposed(sage.parameters(at("convs", l, "lin_r.weight"))))),
                sage.parameters(at("convs", l, "lin_l.bias")));
  };
  // With one head that attends to all alike, attention is the mean.
  Stack gat{"gat",
            [](const GnnOptions& o) {
              Init init;
              GatOptions options = with<GatOptions>(o);
              options.heads = 1;
              options.attention_dropout = 0;
              options.activation = GnnActivation::elu;
              auto net = std::make_shared<Gat>(init, options);
              for (const auto& p : net->parameters())
                if (p.name.find(".att_") != std::string::npos)
                  p.parameter->set_value(Tensor::full(p.parameter->shape(), 0));
              return net;
            },
            {},
            true};
  gat.conv = [&](int64_t l, const Matrix& x) {
    Matrix mean = adjacency(true);
    for (int64_t i = 0; i < kNodes; ++i) {
      double degree = 0;
      for (int64_t j = 0; j < kNodes; ++j) degree += mean(i, j);
      for (int64_t j = 0; j < kNodes; ++j) mean(i, j) /= degree;
    }
    const Matrix h = product(x, transposed(gat.parameters(at("convs", l, "lin.weight"))));
    return plus(product(mean, h), gat.parameters(at("convs", l, "bias")));
  };
  for (Stack* net : {&gcn, &sage, &gat})
    for (const JumpingKnowledge jk :
         {JumpingKnowledge::none, JumpingKnowledge::cat, JumpingKnowledge::max})
      for (const bool norms : {false, true})
        for (const bool residual : {false, true}) {
          CAPTURE(net->name);
          CAPTURE(static_cast<int>(jk));
          CAPTURE(norms);
          CAPTURE(residual);
          auto options = options_of<GnnOptions>(3);
          options.hidden = kFeatures;  // so that the first layer has a shortcut too
          options.jk = jk;
          options.batch_norm = norms;
          options.residual = residual;
          const std::shared_ptr<Module> module = net->make(options);
          shift_biases(*module);
          for (const auto& p : module->parameters())  // norms that scale, some down below 0
            for (int64_t i = 0; p.name.ends_with("module.weight") && i < kFeatures; ++i)
              p.parameter->value().mut<float>()[i] = 1.5F - 0.7F * static_cast<float>(i);
          to_dtype(*module, DType::f64);
          net->parameters = parameters_of(*module);
          CHECK(distance(run(*module, features(), context_of(edge_index())),
                         expected(*net, options)) < 1e-6);
        }
}

TEST_CASE("in evaluation, norms go by the statistics of training") {
  Init init;
  auto options = options_of<GnnOptions>(2);
  options.batch_norm = true;
  Gcn net(init, options);
  shift_biases(net);
  to_dtype(net, DType::f64);
  const auto p = parameters_of(net);
  run(net, features(), context_of(edge_index()));  // one step: 0.9 of (0, 1), 0.1 of its own
  const Matrix a = gcn_matrix();
  const auto conv = [&](int64_t l, const Matrix& x) {
    return plus(product(a, product(x, transposed(p(at("convs", l, "lin.weight"))))),
                p(at("convs", l, "bias")));
  };
  Matrix x = conv(0, Matrix{features()});
  for (int64_t j = 0; j < x.cols; ++j) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < kNodes; ++i) mean += x(i, j) / kNodes;
    for (int64_t i = 0; i < kNodes; ++i) variance += std::pow(x(i, j) - mean, 2) / (kNodes - 1);
    const double scale = 1 / std::sqrt(0.9 + 0.1 * variance + 1e-5);
    for (int64_t i = 0; i < kNodes; ++i)
      x(i, j) = (x(i, j) - 0.1 * mean) * scale * p("norms.0.module.weight")(0, j) +
                p("norms.0.module.bias")(0, j);
  }
  CHECK(distance(run(net, features(), context_of(edge_index(), nullptr, false)),
                 conv(1, relu_of(x))) < 1e-6);
}
