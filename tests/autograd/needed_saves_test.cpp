// An op keeps what the gradients that are wanted need, and no more; and views of parameters are
// kept as parameters are.
#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/node.h"
#include "autograd/transformer_functions.h"

using namespace frugal;

namespace {

Tensor values(const Shape& shape, uint64_t stream) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = normal({3, stream}, static_cast<uint64_t>(i));
  return x;
}

Variable parameter(const Shape& shape, uint64_t stream, bool trained = true) {
  Variable p = Variable::parameter(values(shape, stream));
  p.set_requires_grad(trained);
  return p;
}

// The bytes that a node keeps beside parameters.
int64_t kept_bytes(const Variable& y) {
  if (y.producer() == nullptr) return 0;
  int64_t bytes = 0;
  const Slots& slots = y.producer()->slots;
  for (int i = 0; i < slots.size(); ++i)
    if (slots[i].defined() && slots[i].role() != Role::weight) bytes += slots.unpack(i).nbytes();
  return bytes;
}

using Product = std::function<Variable(const Variable& x, const Variable& w, const Variable& b)>;
struct Layer {
  const char* name;
  Shape x, weight, bias;
  Product run;
  int64_t beside = 0;  // bytes of masks, kept in any case
};

std::vector<Layer> products() {
  return {
      {"linear", {8, 4}, {5, 4}, {5}, [](auto& x, auto& w, auto& b) { return linear(x, w, b); }},
      {"linear_relu",
       {8, 4},
       {5, 4},
       {5},
       [](auto& x, auto& w, auto& b) { return linear_relu(x, w, b); },
       5},
      {"conv2d",
       {2, 4, 4, 3},
       {5, 3, 3, 3},
       {5},
       [](auto& x, auto& w, auto& b) { return conv2d(x, w, b); }},
      {"conv_transpose2d",
       {2, 4, 4, 3},
       {3, 3, 3, 5},
       {5},
       [](auto& x, auto& w, auto& b) { return conv_transpose2d(x, w, b); }},
      {"conv1d",
       {2, 6, 3},
       {5, 3, 3},
       {5},
       [](auto& x, auto& w, auto& b) { return conv1d(x, w, b); }},
      {"identity_linear",
       {8, 4},
       {4, 4},
       {},
       [](auto& x, auto& w, auto&) { return identity_linear(x, w, 0.5); }},
      {"head_scores",
       {8, 2, 3},
       {1, 2, 3},
       {},
       [](auto& x, auto& w, auto&) { return head_scores(x, w); }},
  };
}

}  // namespace

TEST_CASE("a product saves x only for the weight's gradient, and gives the same gradients") {
  for (const Layer& layer : products()) {
    CAPTURE(layer.name);
    std::vector<double> expected;
    for (const bool trained : {true, false}) {
      const Variable x(values(layer.x, 1), true), w = parameter(layer.weight, 2, trained);
      const Variable b = layer.bias.dim() > 0 ? parameter(layer.bias, 3) : Variable();
      const Variable y = layer.run(x, w, b);
      CHECK(kept_bytes(y) == layer.beside + (trained ? x.value().nbytes() : 0));
      backward(y, values(y.shape(), 4));
      CHECK(w.has_grad() == trained);
      if (trained)
        expected = x.grad().to_vector();
      else
        CHECK(x.grad().to_vector() == expected);
    }
    // The weight is for x's gradient alone.
    const Variable x(values(layer.x, 1)), w = parameter(layer.weight, 2);
    const Variable y = layer.run(x, w, {});
    CHECK(!y.producer()->slots[1].defined());
    backward(y, values(y.shape(), 4));
    CHECK(w.has_grad());
  }
}

TEST_CASE("linear_gelu's product saves x only for the weight's gradient") {
  const Variable x(values({8, 4}, 1), true), w = parameter({5, 4}, 2, false);
  const int64_t before = allocator(kCpu).report().of(Category::activation);
  const Variable y = linear_gelu(x, w, parameter({5}, 3));
  // y and h, which gelu keeps.
  CHECK(allocator(kCpu).report().of(Category::activation) - before == 2 * 192);
  backward(y, values(y.shape(), 4));
  CHECK(x.has_grad());
}

TEST_CASE("norms keep x where a gradient reads it") {
  struct Norm {
    const char* name;
    bool statistics;  // it takes statistics of x, so x's gradient needs x
    std::function<Variable(const Variable&, const Variable&, const Variable&)> run;
  };
  const auto batch = [](bool training, bool relu) {
    return [=](const Variable& x, const Variable& w, const Variable& b) {
      BatchNormOptions options;
      options.training = training;
      const BatchNormStats stats{Tensor::full({6}, 0.1), Tensor::full({6}, 0.8)};
      return relu ? batch_norm_relu(x, w, b, stats, options) : batch_norm(x, w, b, stats, options);
    };
  };
  const std::vector<Norm> norms = {
      {"batch_norm", true, batch(true, false)},
      {"batch_norm_relu", true, batch(true, true)},
      {"batch_norm, running", false, batch(false, false)},
      {"batch_norm_relu, running", false, batch(false, true)},
      {"layer_norm", true, [](auto& x, auto& w, auto& b) { return layer_norm(x, w, b); }},
      {"layer_norm_relu", true, [](auto& x, auto& w, auto& b) { return layer_norm_relu(x, w, b); }},
      {"group_norm", true, [](auto& x, auto& w, auto& b) { return group_norm(x, 2, w, b); }},
  };
  for (const Norm& norm : norms) {
    CAPTURE(norm.name);
    std::vector<std::vector<double>> expected;
    for (const bool of_x : {true, false})
      for (const bool of_weight : {true, false}) {
        CAPTURE(of_x);
        CAPTURE(of_weight);
        const Variable x(values({8, 6}, 1), of_x), w = parameter({6}, 2, of_weight);
        const Variable b = parameter({6}, 3), y = norm.run(x, w, b);
        const bool needed = of_weight || (of_x && norm.statistics);
        CHECK(y.producer()->slots[0].defined() == needed);
        backward(y, values(y.shape(), 4));
        if (of_x && of_weight)
          expected = {x.grad().to_vector(), w.grad().to_vector(), b.grad().to_vector()};
        const auto same = [&](const Variable& v, bool wanted, size_t i) {
          REQUIRE(v.has_grad() == wanted);
          if (!wanted) return;
          const std::vector<double> g = v.grad().to_vector();
          for (size_t k = 0; k < g.size(); ++k)
            CHECK(g[k] == doctest::Approx(expected[i][k]).epsilon(1e-5).scale(1));
        };
        same(x, of_x, 0);
        same(w, of_weight, 1);
        same(b, true, 2);
      }
  }
}

TEST_CASE("views of a parameter are saved as the parameter is: without loss and at no cost") {
  class PackAll final : public SavePolicy {
   public:
    Decision decide(const SaveInfo&, const Tensor&) override {
      ++asked;
      return {};
    }
    int asked = 0;
  };
  for (const bool trained : {true, false}) {
    PackAll policy;
    const PolicyScope scope(&policy);
    const Variable p = parameter({6, 4}, 5, trained);
    CHECK(slice(p, 0, 1, 3).is_held());
    CHECK(reshape(p, {4, 6}).is_held());
    CHECK(transpose(p, 0, 1).is_held());
    CHECK(p.detach().is_held());
    CHECK(!pad(p, {{1, 0}, {0, 0}}).is_held());
    CHECK(!reshape(transpose(p, 0, 1), {24}).is_held());  // a copy
    const Variable x(values({3, 4}, 6), true);
    const Variable y = linear(x, slice(p, 0, 1, 3));
    CHECK(y.producer()->slots[1].role() == Role::weight);
    CHECK(policy.asked == (trained ? 1 : 0));  // about x
    backward(y, values(y.shape(), 7));
    CHECK(p.has_grad() == trained);
  }
}
