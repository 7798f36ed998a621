// What one layer of a transformer keeps for backward, and what that does to its gradients.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/transformer_functions.h"
#include "compress/policies/fixed_policy.h"
#include "core/rng.h"

using namespace frugal;
using compress::FixedPolicy;
using compress::FixedPolicyOptions;

namespace {

constexpr int64_t kTexts = 4, kT = 32, kHeads = 4, kWidth = 64;
constexpr int64_t kTokens = kTexts * kT;

Tensor normals(const Shape& shape, uint64_t seed, double scale) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(scale) * normal({seed, 0}, static_cast<uint64_t>(i));
  return x;
}

// BERT's layer: norms behind the sums, dropout before them.
struct Layer {
  Variable q, k, v, out, up, down, bias_up, weight1, bias1, weight2, bias2;
  explicit Layer(uint64_t seed) {
    CategoryScope scope(Category::parameter);
    const double scale = 1 / std::sqrt(static_cast<double>(kWidth));
    const auto make = [&](const Shape& shape) {
      return Variable::parameter(normals(shape, ++seed, scale));
    };
    q = make({kWidth, kWidth}), k = make({kWidth, kWidth}), v = make({kWidth, kWidth});
    out = make({kWidth, kWidth}), up = make({4 * kWidth, kWidth}),
    down = make({kWidth, 4 * kWidth});
    bias_up = make({4 * kWidth});
    weight1 = Variable::parameter(Tensor::full({kWidth}, 1)), bias1 = make({kWidth});
    weight2 = Variable::parameter(Tensor::full({kWidth}, 1)), bias2 = make({kWidth});
  }
  Variables parameters() const {
    return {q, k, v, out, up, down, bias_up, weight1, bias1, weight2, bias2};
  }
  Variable forward(const Variable& x, uint64_t key) const {
    const Shape heads{kTexts, kT, kHeads, kWidth / kHeads};
    const Variable y = scaled_dot_product_attention(
        reshape(linear(x, q), heads), reshape(linear(x, k), heads), reshape(linear(x, v), heads));
    const Variable mixed = dropout(linear(reshape(y, x.shape()), out), 0.1, {key, 1});
    const Variable middle = layer_norm(add(mixed, x), weight1, bias1);
    const Variable wide = linear_gelu(middle, up, bias_up);
    const Variable narrow = dropout(linear(wide, down), 0.1, {key, 2});
    return layer_norm(add(narrow, middle), weight2, bias2);
  }
};

struct Model {
  Layer first{100}, second{200};
  Variable words, places;
  Tensor ids, at;
  Model() {
    {
      CategoryScope scope(Category::parameter);
      words = Variable::parameter(normals({50, kWidth}, 1, 1));
      places = Variable::parameter(normals({kT, kWidth}, 2, 1));
    }
    CategoryScope scope(Category::input);
    ids = Tensor::empty({kTexts, kT}, DType::i64);
    at = Tensor::empty({kT}, DType::i64);
    for (int64_t i = 0; i < kTokens; ++i) ids.mut<int64_t>()[i] = i * 7 % 50;
    for (int64_t i = 0; i < kT; ++i) at.mut<int64_t>()[i] = i;
  }
  Variable embed() const {
    return layer_norm(add(embedding(ids, words), embedding(at, places)), first.weight1,
                      first.bias1);
  }
  Variables parameters() const {
    Variables all = first.parameters();
    for (const Variable& x : second.parameters()) all.push_back(x);
    all.push_back(words);
    all.push_back(places);
    return all;
  }
};

int64_t bytes_of(Category category) {
  return allocator(kCpu).report().live[static_cast<size_t>(category)];
}
int64_t kept() { return bytes_of(Category::activation) + bytes_of(Category::packed); }

FixedPolicyOptions options_of(int bits) {
  FixedPolicyOptions options;
  options.bits = bits;
  options.min_elements = 0;
  return options;
}

using Numbers = std::vector<std::vector<double>>;

Numbers gradients(const Model& model, SavePolicy* policy, uint64_t step) {
  PolicyScope scope(policy);
  begin_step(step);
  Variable y = model.second.forward(model.first.forward(model.embed(), 5), 6);
  const Shape shape = y.shape();
  const Variable loss = sum(mul(y, Variable(normals(shape, 77, 0.1))));
  y = Variable();
  backward(loss);
  Numbers all;
  for (Variable x : model.parameters()) {
    all.push_back(x.grad().to_vector());
    x.zero_grad();
  }
  return all;
}

}  // namespace

TEST_CASE("a transformer's layer keeps ten widths a token, and its embeddings nothing") {
  const Model model;
  const int64_t width = kTokens * kWidth * 4;  // bytes
  const auto layer = [&](SavePolicy* policy) {
    PolicyScope scope(policy);
    begin_step(0);
    const Variable x = model.embed();
    const Variable y = model.first.forward(x, 5);
    const int64_t one = kept() - y.value().nbytes();
    const Variable z = model.second.forward(y, 6);
    // Held here as a variable, not for backward.
    return kept() - one - z.value().nbytes() - y.value().nbytes();
  };
  FixedPolicy exact(options_of(0)), four(options_of(4));
  // Statistics of the norms and sums of attention, a number a row each. The sums are not kept
  // beside codes of what they are made of.
  const int64_t rows = kTokens * 4 * 4, sums = kTokens * kHeads * 4;
  CHECK(layer(&exact) == 10 * width + rows + sums);
  // Four bits and the metadata of groups of at most 256 elements; the keys of dropout are free.
  const int64_t packed = layer(&four);
  CHECK(packed > 10 * width / 8 + rows);
  CHECK(packed < 10 * width / 6 + rows);
}

TEST_CASE("two layers: recipes alone change no bit, at 4 bits errors average out") {
  const Model model;
  FixedPolicy recipes(options_of(0)), four(options_of(4));
  const Numbers exact = gradients(model, nullptr, 0);
  CHECK(gradients(model, &recipes, 0) == exact);
  constexpr int kDraws = 32;
  Numbers mean = exact;
  for (auto& grad : mean) std::fill(grad.begin(), grad.end(), 0.0);
  double single = 0, averaged = 0, size = 0;  // squared
  for (int draw = 0; draw < kDraws; ++draw) {
    const Numbers lossy = gradients(model, &four, static_cast<uint64_t>(draw));
    for (size_t i = 0; i < exact.size(); ++i)
      for (size_t j = 0; j < exact[i].size(); ++j) {
        const double error = lossy[i][j] - exact[i][j];
        mean[i][j] += error / kDraws;
        single += error * error / kDraws;
      }
  }
  for (size_t i = 0; i < exact.size(); ++i)
    for (size_t j = 0; j < exact[i].size(); ++j) {
      averaged += mean[i][j] * mean[i][j];
      size += exact[i][j] * exact[i][j];
    }
  CHECK(single < 0.08 * size);
  CHECK(averaged < 2.5 * single / kDraws);
}
