#include "models/sequential_parts.h"

#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "models/activations.h"
#include "ops/dense/copy.h"
#include "ops/dense/operators.h"
#include "ops/dense/shape.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;

namespace {

using zoo::parameter_names;
using Modules = std::vector<std::shared_ptr<Module>>;

std::vector<double> values(const Tensor& x) { return x.to_vector(); }

void check_close(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(y[i]).epsilon(1e-4));
}

Tensor noise(const Shape& shape, uint64_t seed) { return Tensor::randn(shape, {seed, 0}); }

Tensor forward(Module& module, const Tensor& x, NamedTensors extras = {}) {
  Rng rng(3);
  Context context{.rng = &rng};
  context.extras = std::move(extras);
  return module.forward(Variable(x), context).value();
}

Modules branch(int64_t channels) {
  Conv2dOptions same;
  same.padding = {1, 1};
  default_init() = {Rng(5)};
  return {std::make_shared<Conv2d>(channels, 4, 3, same), std::make_shared<BatchNorm2d>(4)};
}

Sequential with_blocks(bool norm_last) {
  default_init() = {Rng(7)};
  Sequential net;
  net.append(std::make_shared<Residual>(branch(3), std::make_shared<Sequential>(Conv2d(3, 4, 1))));
  if (norm_last) net.append(Relu());
  net.append(std::make_shared<Residual>(branch(4)));
  net.append(Dropout(0.25));
  net.append(GlobalAvgPool2d());
  net.append(Linear(4, 8));
  net.append(models::Gelu());
  return net;
}

// Gradients of a network's parameters, of the sum of squares of its outputs.
std::vector<std::vector<double>> gradients(Sequential& net, int64_t blocks, int64_t& counted) {
  Rng rng(11);
  Context context{.rng = &rng, .checkpointed_blocks = blocks};
  PolicyScope scope(nullptr);
  const Variable y = net.forward(Variable(noise({2, 6, 6, 3}, 2)), context);
  backward(sum(mul(y, y)));
  counted = context.block;
  std::vector<std::vector<double>> all;
  for (const auto& p : net.parameters()) all.push_back(values(p.parameter->grad()));
  net.zero_grad();
  return all;
}

}  // namespace

TEST_CASE("a residual adds its branch to its input or to its shortcut, and names both") {
  Residual plain(branch(4));
  CHECK(parameter_names(plain) == std::vector<std::string>{"0.weight", "1.weight", "1.bias"});
  const Tensor x = noise({2, 5, 5, 4}, 1);
  Sequential alone(std::make_shared<Residual>(branch(4)));
  const Modules same = branch(4);
  Sequential inner(same[0], same[1]);
  check_close(forward(plain, x), x + forward(inner, x));
  // A relu behind it runs with the norm that ends the branch, and gives the same.
  Sequential fused(std::make_shared<Residual>(branch(4)), Relu());
  const Modules again = branch(4);
  Sequential second(again[0], again[1]);
  check_close(forward(fused, x), relu(Variable(x + forward(second, x))).value());
  Residual beside(branch(3), std::make_shared<Sequential>(Conv2d(3, 4, 1)));
  CHECK(parameter_names(beside) ==
        std::vector<std::string>{"0.weight", "1.weight", "1.bias", "shortcut.0.weight"});
  CHECK(forward(beside, noise({2, 5, 5, 3}, 1)).shape() == Shape{2, 5, 5, 4});
}

TEST_CASE("a relu behind a residual keeps no more bytes than the zoo's blocks") {
  class Counter : public SavePolicy {
   public:
    Decision decide(const SaveInfo& info, const Tensor&) override {
      ops.emplace_back(info.op);
      return {};
    }
    std::vector<std::string> ops;
  };
  Counter counter;
  Sequential net(std::make_shared<Residual>(branch(4)), Relu(), Flatten(), Linear(100, 8),
                 models::Gelu());
  Context context;
  PolicyScope scope(&counter);
  const Variable y = net.forward(Variable(noise({2, 5, 5, 4}, 1)), context);
  const auto& ops = counter.ops;
  CHECK(std::find(ops.begin(), ops.end(), "relu") == ops.end());
  CHECK(std::find(ops.begin(), ops.end(), "gelu") == ops.end());
  CHECK(std::find(ops.begin(), ops.end(), "batch_norm_add_relu") != ops.end());
  CHECK(std::find(ops.begin(), ops.end(), "linear_gelu") != ops.end());
}

TEST_CASE("only the named children of a sequential network are blocks, with the same gradients") {
  Sequential net = with_blocks(true);
  net.set_blocks({{0, 2}, {2, 3}});
  int64_t counted = 0;
  const auto whole = gradients(net, 0, counted);
  CHECK(gradients(net, kAllBlocks, counted) == whole);
  CHECK(counted == 2);
  CHECK(gradients(net, 1, counted) == whole);
  Sequential each = with_blocks(true);  // without set_blocks(): the children, fused ones as one
  CHECK(gradients(each, kAllBlocks, counted) == whole);
  CHECK(counted == 5);
  for (const std::vector<Sequential::Block>& wrong :
       {std::vector<Sequential::Block>{{2, 2}}, {{1, 3}, {2, 4}}, {{0, 9}}})
    CHECK_THROWS_WITH_AS(net.set_blocks(wrong), doctest::Contains("[sequential] expected blocks"),
                         Error);
}

TEST_CASE("patches, tokens, a class token and positions") {
  default_init() = {Rng(1)};
  Init& init = default_init();
  PatchEmbedding patches(init, 3, 5, {2, 3});
  CHECK(forward(patches, noise({2, 4, 6, 3}, 1)).shape() == Shape{2, 4, 5});
  Tokens tokens;
  const Tensor image = noise({2, 2, 3, 4}, 1);
  CHECK(values(forward(tokens, image)) == values(image));
  const Tensor x = noise({2, 3, 4}, 2);
  ClassToken token(init, 4);
  const Tensor y = forward(token, x);
  CHECK(y.shape() == Shape{2, 4, 4});
  CHECK(values(y.slice(1, 1, 4)) == values(x));
  for (int64_t n = 0; n < 2; ++n)
    CHECK(values(y[n].slice(0, 0, 1)) == values(token.parameters()[0].parameter->value()));
  PositionEmbedding places(init, 5, 4);
  const Tensor rows = places.parameters()[0].parameter->value();
  check_close(forward(places, x), x + rows.slice(0, 0, 3));
  CHECK_THROWS_WITH_AS(forward(places, noise({2, 6, 4}, 2)),
                       doctest::Contains("expected at most 5 tokens, got 6"), Error);
  SwapTokens swap;
  CHECK(forward(swap, x).shape() == Shape{2, 4, 3});
  FirstToken first;
  CHECK(values(forward(first, x)[1]) == values(x[1][0]));
  CHECK_THROWS_WITH_AS(forward(first, image), doctest::Contains("expected tokens"), Error);
  CHECK_THROWS_WITH_AS(forward(tokens, x), doctest::Contains("expected images"), Error);
}

TEST_CASE("hidden tokens count neither in a mean nor in attention, and get no gradient") {
  const Tensor x = noise({2, 4, 8}, 2);
  const Tensor mask = Tensor::of({{1, 1, 0, 0}, {1, 1, 1, 1}}, DType::i64);
  MeanPool pool;
  const Tensor mean = forward(pool, x, {{"attention_mask", mask}});
  check_close(mean[0], 0.5 * (x[0][0] + x[0][1]));
  check_close(mean[1], forward(pool, x)[1]);
  // In f64 a third is a third of f64.
  const Tensor three = Tensor::of({{1, 1, 1, 0}, {1, 1, 1, 1}}, DType::i64);
  const Tensor wide = forward(pool, ops::cast(x, DType::f64), {{"attention_mask", three}});
  for (int64_t c = 0; c < 8; ++c) {
    const double third = (x.item(c) + x.item(8 + c) + x.item(16 + c)) / 3;
    CHECK(std::abs(wide.item(c) - third) <= 1e-14);
  }
  CHECK(forward(pool, noise({2, 3, 3, 8}, 1)).shape() == Shape{2, 8});
  default_init() = {Rng(1)};
  SelfAttentionOptions options;
  options.heads = 2;
  MultiheadAttention attention(default_init(), 8, options);
  CHECK(parameter_names(attention) == std::vector<std::string>{"in_proj_weight", "in_proj_bias",
                                                               "out_proj.weight", "out_proj.bias"});
  const Tensor alone = forward(attention, ops::contiguous(x.slice(0, 0, 1).slice(1, 0, 2)));
  const Tensor hidden = forward(attention, x, {{"attention_mask", mask}});
  check_close(hidden[0].slice(0, 0, 2), alone[0]);
  Variable input = Variable::parameter(noise({2, 4, 8}, 2));
  Context context;
  context.extras = {{"attention_mask", mask}};
  PolicyScope scope(nullptr);
  backward(sum(pool.forward(input, context)));
  for (int64_t i = 0; i < 8; ++i) {
    CHECK(values(input.grad()[0][1])[static_cast<size_t>(i)] == doctest::Approx(0.5));
    CHECK(values(input.grad()[0][2])[static_cast<size_t>(i)] == 0);
  }
}

TEST_CASE("a sequential language model sees only what came before") {
  default_init() = {Rng(1)};
  Init& init = default_init();
  SelfAttentionOptions options;
  options.heads = 2;
  options.causal = true;
  const Modules body = {
      std::make_shared<TokenEmbedding>(init, 11, 8),
      std::make_shared<PositionEmbedding>(init, 6, 8),
      std::make_shared<Residual>(Modules{std::make_shared<LayerNorm>(init, 8, 1e-5),
                                         std::make_shared<MultiheadAttention>(init, 8, options)})};
  SequentialLanguageModel model(body, std::make_shared<Linear>(init, 8, 11), {{2, 3}}, 6);
  CHECK(parameter_names(model).front() == "0.weight");
  CHECK(parameter_names(model).back() == "3.bias");
  const Tensor a = Tensor::of({{1, 2, 3, 4}}, DType::i64);
  const Tensor b = Tensor::of({{1, 2, 9, 10}}, DType::i64);
  Context context;
  const NoGrad no_grad;
  const Tensor x = model.forward(Variable(a), context).value();
  const Tensor y = model.forward(Variable(b), context).value();
  CHECK(x.shape() == Shape{1, 4, 11});
  check_close(x[0].slice(0, 0, 2), y[0].slice(0, 0, 2));
  CHECK(generate(model, a, {.tokens = 5, .temperature = 0}).shape() == Shape{1, 5});
  CHECK_THROWS_WITH_AS(model.forward(Variable(Tensor::zeros({1, 7}, DType::i64)), context),
                       doctest::Contains("sequences of 1 to 6 tokens, got 7"), Error);
  CHECK_THROWS_WITH_AS(TokenEmbedding(init, 3, 4, 3), doctest::Contains("padding_idx"), Error);
}
