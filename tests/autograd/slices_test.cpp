// Backward by slices of the batch, in place, and into gradients that are there already.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "tests/autograd/copy_codec.h"
#include "tests/error_bounds.h"

using namespace frugal;

namespace {

// Packs what has no recipe, in slices of `bytes`.
class SlicedPolicy : public SavePolicy {
 public:
  SlicedPolicy(const Codec* codec, bool recipes, int64_t bytes)
      : codec_(codec), recipes_(recipes), bytes_(bytes) {}
  Decision decide(const SaveInfo& info, const Tensor&) override {
    if (recipes_ && info.rebuilt != Rebuilt::none) return {Decision::rebuild, codec_};
    if (codec_ == nullptr) return {};
    return {Decision::pack, codec_};
  }
  int64_t slice_bytes() const override { return bytes_; }

 private:
  const Codec* codec_;
  bool recipes_;
  int64_t bytes_;
};

Tensor wave_noise(const Shape& shape, int seed, DType dtype = DType::f32) {
  Tensor x = Tensor::empty(shape, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<double>()[i] = std::sin(static_cast<double>(i * 7 + seed * 131) * 0.37) +
                         0.3 * std::cos(static_cast<double>(i * i % 97));
  return ops::clone(ops::cast(x, dtype));
}

struct Problem {
  int64_t n = 5, h = 4, w = 4, c = 8;
  int64_t groups = 1, stride = 1;
  bool bias = false;
  DType dtype = DType::f32;
};

// Two residual blocks; gradients of all leaves.
std::vector<Tensor> gradients(const Problem& p, SavePolicy* policy) {
  PolicyScope scope(policy);
  begin_step(3);
  Variables leaves;
  auto leaf = [&](const Shape& shape) {
    leaves.push_back(
        Variable::parameter(wave_noise(shape, static_cast<int>(leaves.size()), p.dtype)));
    return leaves.back();
  };
  leaves.push_back(Variable(wave_noise({p.n, p.h, p.w, p.c}, 40, p.dtype), true));
  Variable x = scale(leaves.front(), 1.5);
  Conv2dOptions options;
  options.padding = {1, 1};
  options.groups = p.groups;
  for (int block = 0; block < 2; ++block) {
    const Shape weight{p.c, 3, 3, p.c / p.groups};
    auto conv = [&](const Variable& in) {
      const Variable w = leaf(weight);
      return conv2d(in, w, p.bias ? leaf({p.c}) : Variable(), options);
    };
    auto norm = [&](const Variable& in) {
      const Variable g = leaf({p.c});
      return batch_norm_relu(in, g, leaf({p.c}), {});
    };
    const Variable a = norm(conv(x));
    const Variable z = conv(a);
    const Variable g = leaf({p.c});
    x = batch_norm_add_relu(z, x, g, leaf({p.c}), {});
  }
  Conv2dOptions last;
  last.stride = {p.stride, p.stride};
  const Variable head = conv2d(x, leaf({3, 1, 1, p.c}), {}, last);
  x = {};
  backward(sum(mul(head, head)));
  std::vector<Tensor> all;
  for (const Variable& each : leaves) all.push_back(each.grad());
  return all;
}

// Two layers of a graph network; gradients of all leaves. With an odd number of nodes, a mask has
// one row.
std::vector<Tensor> graph_gradients(int64_t nodes, int64_t width, SavePolicy* policy) {
  const Tensor edges = Tensor::empty({2, 2 * nodes}, DType::i64);
  for (int64_t e = 0; e < 2 * nodes; ++e) {
    edges.mut<int64_t>()[e] = e % nodes;
    edges.mut<int64_t>()[2 * nodes + e] = (e * 7 + 3) % nodes;
  }
  const auto graph = std::make_shared<ops::Graph>(
      ops::make_graph(edges, nodes, {.self_loops = true, .norm = ops::EdgeNorm::symmetric}));
  PolicyScope scope(policy);
  begin_step(3);
  Variables leaves{Variable(wave_noise({nodes, width}, 40), true)};
  const auto leaf = [&](const Shape& shape) {
    leaves.push_back(Variable::parameter(wave_noise(shape, static_cast<int>(leaves.size()))));
    return leaves.back();
  };
  Variable x = scale(leaves.front(), 1.5);
  for (uint64_t layer = 0; layer < 2; ++layer) {
    const Variable w = leaf({width, width}), bias = leaf({width});
    Variable y = spmm(graph, linear_over(std::move(x), w), {1, bias, {}, 1});
    const Variable g = leaf({width});
    y = batch_norm_relu(std::move(y), g, leaf({width}), {});
    x = dropout_over(std::move(y), 0.25, {5, layer});
  }
  const Variable head = linear(x, leaf({3, width}));
  x = {};
  backward(sum(mul(head, head)));
  std::vector<Tensor> all;
  for (const Variable& each : leaves) all.push_back(each.grad());
  return all;
}

double largest_of(const std::vector<double>& x) {
  double largest = 0;
  for (double value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// The largest difference, relative to the largest element of its tensor, which is at least `size`.
// before_norms: each vector behind a convolution's weight is a bias in front of a norm. Its
// gradient is 0, so what is left of it is the rounding of sums as large as those of the weight.
double difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double size = 1e-30,
                  bool before_norms = false) {
  double worst = 0;
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = a[i].to_vector(), y = b[i].to_vector();
    REQUIRE(x.size() == y.size());
    double largest = std::max(size, largest_of(x)), off = 0;
    if (before_norms && i > 0 && a[i].dim() == 1 && a[i - 1].dim() == 4)
      largest = std::max(largest, largest_of(a[i - 1].to_vector()));
    for (size_t k = 0; k < x.size(); ++k) off = std::max(off, std::abs(x[k] - y[k]));
    worst = std::max(worst, off / largest);
  }
  return worst;
}

}  // namespace

TEST_CASE("slices change gradients by no more than the rounding of weight sums") {
  const CopyCodec copies;
  for (const Problem& p :
       {Problem{}, Problem{1}, Problem{8}, Problem{7, 3, 5, 8}, Problem{6, 4, 4, 8, 2},
        Problem{5, 4, 4, 8, 1, 2, true}, Problem{16, 3, 3, 4, 1, 1, true},
        Problem{5, 4, 4, 8, 2, 1, true, DType::f64}})
    for (bool recipes : {false, true}) {
      CAPTURE(p.n);
      CAPTURE(p.groups);
      CAPTURE(recipes);
      SlicedPolicy whole(&copies, recipes, 0), one(&copies, recipes, 1),
          two(&copies, recipes, 2 * p.h * p.w * p.c * 4);
      const auto expected = gradients(p, nullptr);
      CHECK(difference(gradients(p, &whole), expected) == 0);
      const double bound = p.dtype == DType::f64 ? 1e-12 : 1e-5;
      CHECK(difference(gradients(p, &one), expected, 1e-30, p.bias) < bound);
      CHECK(difference(gradients(p, &two), expected, 1e-30, p.bias) < bound);
      // What does not sum over slices has the same bits.
      CHECK(gradients(p, &one).front().to_vector() == expected.front().to_vector());
    }
}

TEST_CASE("a graph network in slices, over its tensors, has the gradients of whole tensors") {
  const CopyCodec copies;
  for (const auto& [nodes, width] : {std::pair<int64_t, int64_t>{40, 8}, {41, 8}, {16389, 256}})
    for (const bool recipes : {false, true}) {
      const auto& this_nodes = nodes;
      CAPTURE(this_nodes);
      CAPTURE(recipes);
      const int64_t row = width * int64_t{sizeof(float)};
      SlicedPolicy whole(&copies, recipes, 0), some(&copies, recipes, nodes / 5 * row);
      const auto expected = graph_gradients(nodes, width, nullptr);
      CHECK(difference(graph_gradients(nodes, width, &whole), expected) == 0);
      // The sums of two products and two norms follow one another.
      const double bound = 4 * frugal_test::largest_bound(nodes);
      auto sliced = graph_gradients(nodes, width, &some), others = expected;
      // The gradient of a bias before a norm is 0: a sum of terms that cancel, which are as large
      // as those of the other gradients.
      double largest = 0;
      for (const Tensor& each : expected)
        for (const double g : each.to_vector()) largest = std::max(largest, std::abs(g));
      for (const int64_t bias : {6, 2}) {
        CHECK(difference({sliced.at(bias)}, {others.at(bias)}, largest) < bound);
        sliced.erase(sliced.begin() + bias), others.erase(others.begin() + bias);
      }
      CHECK(difference(sliced, others) < bound);
    }
}

TEST_CASE("a chain rebuilt by slices packs each slice once") {
  const CopyCodec copies;
  const Problem p{8};
  SlicedPolicy policy(&copies, true, 1);
  gradients(p, &policy);
  const int sliced = copies.packs;
  copies.packs = 0;
  SlicedPolicy whole(&copies, true, 0);
  gradients(p, &whole);
  const int kept = 6;               // the input, four outputs of convolutions and the head
  CHECK(copies.packs == kept + 1);  // a rebuild passed through one more tensor
  CHECK(sliced == kept + p.n);
}

TEST_CASE("gradients that a caller holds are not written over") {
  const CopyCodec copies;
  SlicedPolicy policy(&copies, true, 1);
  PolicyScope scope(&policy);
  const Tensor dy = wave_noise({4, 4, 4, 8}, 1), before = ops::clone(dy);
  const Variable x(wave_noise({4, 4, 4, 8}, 2), true);
  const Variable y = batch_norm_relu(scale(x, 2), {}, {}, {});
  backward(y, dy);
  CHECK(dy.to_vector() == before.to_vector());
  // Gradients of two consumers of one tensor are not written over, in either order.
  for (bool first : {false, true}) {
    const Variable a(wave_noise({4, 4, 4, 8}, 2), true),
        w = Variable::parameter(wave_noise({8, 1, 1, 8}, 3));
    const Variable b = scale(a, 1), c = conv2d(b, w, {}, {});
    backward(sum(first ? add(mul(c, c), b) : add(b, mul(c, c))));
    const Variable a2(wave_noise({4, 4, 4, 8}, 2), true), b2 = scale(a2, 1);
    PolicyScope raw(nullptr);
    const Variable c2 = conv2d(b2, w, {}, {});
    backward(sum(first ? add(mul(c2, c2), b2) : add(b2, mul(c2, c2))));
    CHECK(a.grad().to_vector() == a2.grad().to_vector());
  }
}
