#include "models/zoo/gpt2.h"

#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

Gpt2Options small_gpt2() { return {2, 16, 2, 30, 10}; }

// Hugging Face's state dict, by rule.
std::set<std::string> published_gpt2(int64_t layers, int64_t h) {
  std::set<std::string> lines{fmt::format("transformer.wte.weight [50257, {}]", h),
                              fmt::format("transformer.wpe.weight [1024, {}]", h)};
  const auto norm = [&](const std::string& name) {
    lines.insert(fmt::format("{}.weight [{}]", name, h));
    lines.insert(fmt::format("{}.bias [{}]", name, h));
  };
  const auto conv = [&](const std::string& name, int64_t in, int64_t out) {
    lines.insert(fmt::format("{}.weight [{}, {}]", name, in, out));
    lines.insert(fmt::format("{}.bias [{}]", name, out));
  };
  for (int64_t i = 0; i < layers; ++i) {
    const std::string at = fmt::format("transformer.h.{}.", i);
    norm(at + "ln_1");
    norm(at + "ln_2");
    conv(at + "attn.c_attn", h, 3 * h);
    conv(at + "attn.c_proj", h, h);
    conv(at + "mlp.c_fc", h, 4 * h);
    conv(at + "mlp.c_proj", 4 * h, h);
  }
  norm("transformer.ln_f");
  return lines;
}

}  // namespace

TEST_CASE("gpt2: parameter counts, names and shapes are the published ones") {
  const struct {
    const char* name;
    int64_t parameters, layers, width;
  } expected[] = {{"gpt2", 124439808, 12, 768},
                  {"gpt2_medium", 354823168, 24, 1024},
                  {"gpt2_large", 774030080, 36, 1280},
                  {"gpt2_xl", 1557611200, 48, 1600}};
  for (const auto& row : expected) {
    CAPTURE(row.name);
    Init init = meta_init();
    Gpt2 net(init, gpt2_options(row.name));
    CHECK(parameter_count(net) == row.parameters);
    CHECK(lines_of(net) == published_gpt2(row.layers, row.width));
  }
  CHECK_THROWS_WITH_AS(gpt2_options("gpt3"), doctest::Contains("gpt2_xl"), Error);
}

TEST_CASE("gpt2: the second branch is as wide as it is told") {
  Init init = meta_init();
  Gpt2Options options = small_gpt2();
  options.inner = 24;
  Gpt2 net(init, options);
  const auto lines = lines_of(net);
  CHECK(lines.count(fmt::format("transformer.h.1.mlp.c_fc.weight [{}, 24]", options.hidden)) == 1);
  CHECK(lines.count(fmt::format("transformer.h.1.mlp.c_proj.weight [24, {}]", options.hidden)) ==
        1);
}

TEST_CASE("gpt2: linear weights lie transposed in files") {
  Init init;
  Gpt2 net(init, small_gpt2());
  const auto parameters = net.parameters();
  const NamedTensors state = state_dict(net);
  int transposed = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].layout != Module::Layout::transposed_linear) continue;
    ++transposed;
    const Tensor& here = parameters[i].parameter->value();
    const Tensor& file = state[i].second;
    CHECK(state[i].first == parameters[i].name);
    REQUIRE(file.shape() == Shape{here.size(1), here.size(0)});
    CHECK(file.item(1) == here.item(here.size(1)));  // [0, 1] is [1, 0]
    CHECK(largest_difference(from_file_layout(file, parameters[i].layout), here) == 0);
  }
  CHECK(transposed == 8);
}

TEST_CASE("gpt2: batches of a wrong form are refused") {
  Init init;
  Gpt2 net(init, small_gpt2());
  Context context;
  context.training = false;
  const auto run = [&](const Variable& x) { return net.forward(x, context); };
  CHECK(run(Variable(ids({3, 10}, 30, 1))).shape() == Shape{3, 10, 30});
  CHECK_THROWS_WITH_AS(run(Variable(ids({3, 11}, 30, 1))), doctest::Contains("1 to 10 tokens"),
                       Error);
  CHECK_THROWS_WITH_AS(run(randn({2, 3}, 1)), doctest::Contains("[N, T] i64"), Error);
  CHECK_THROWS_AS(run(Variable(ids({2, 3}, 3000, 1))), Error);
  context.extras = {{"attention_mask", ids({2, 3}, 2, 1)}};
  CHECK_THROWS_WITH_AS(run(Variable(ids({3, 3}, 30, 1))), doctest::Contains("attention_mask"),
                       Error);
  CHECK_THROWS_WITH_AS(Gpt2(init, {2, 16, 5}), doctest::Contains("heads"), Error);
}

TEST_CASE("gpt2: logits do not depend on later tokens") {
  Init init;
  Gpt2 net(init, small_gpt2());
  Context context;
  context.training = false;
  NoGrad no_grad;
  const Tensor a = ids({2, 8}, 30, 1), b = ops::clone(a);
  b.mut<int64_t>()[5] = 29 - b.data<int64_t>()[5];
  b.mut<int64_t>()[8 + 5] = 29 - b.data<int64_t>()[8 + 5];
  const Tensor ya = net.forward(Variable(a), context).value();
  const Tensor yb = net.forward(Variable(b), context).value();
  const auto part = [](const Tensor& y, int64_t from, int64_t to) {
    return ops::contiguous(y.slice(1, from, to));
  };
  CHECK(largest_difference(part(ya, 0, 5), part(yb, 0, 5)) == 0);
  for (int64_t t = 5; t < 8; ++t)
    CHECK(largest_difference(part(ya, t, t + 1), part(yb, t, t + 1)) > 1e-6);
}

TEST_CASE("gpt2: steps learn, weights go out and in, checkpointing gives the same gradients") {
  Init init, other;
  other.rng = Rng(5);
  Gpt2 net(init, small_gpt2()), copy(other, small_gpt2());
  const Variable x(ids({3, 8}, 30, 1));
  const Tensor target = ids({24}, 30, 2);
  const auto loss = [&](const Variable& y) {
    return cross_entropy(reshape(y, {24, y.size(2)}), target);
  };
  check_trains(net, copy, x, {}, loss, 0.1);
}

TEST_CASE("gpt2: xl is planned on meta") {
  Init init = meta_init();
  Gpt2 net(init, gpt2_options("gpt2_xl"));
  check_runs_on_meta(net, Variable(ids({1, 1024}, 50257, 1, kMeta)), {1, 1024, 50257});
}
