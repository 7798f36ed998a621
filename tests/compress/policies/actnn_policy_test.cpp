// ActNN as a policy, on small networks.
#include "compress/policies/actnn_policy.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/adapter_functions.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "compress/policies/levels.h"
#include "compress/policies/offload_policy.h"
#include "compress/policies/policy_kind.h"
#include "core/parallel.h"
#include "ops/dense/matmul.h"
#include "ops/optimizer/sgd.h"
#include "tests/compress/offload/offload_samples.h"
#include "tests/compress/quantize/samples.h"
#include "tests/integration/bias.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

// Samples of very different spread.
Tensor uneven(const Shape& shape, uint64_t seed) {
  std::vector<float> x = normals(shape.numel(), seed);
  const int64_t stride = shape.numel() / shape[0];
  for (size_t i = 0; i < x.size(); ++i)
    x[i] *= std::exp(normal({seed, 9}, static_cast<uint64_t>(static_cast<int64_t>(i) / stride)));
  return Tensor::from(x, shape);
}

ActnnOptions actnn_options(double average, bool recipes = false, Signs signs = Signs::masks) {
  ActnnOptions options;
  options.average = average;
  options.mixed = true;
  options.keep.min_elements = 100;
  options.keep.recipes = recipes;
  options.keep.signs = signs;
  options.interval = 1;
  return options;
}

// Two blocks of convolution, norm and relu, one shortcut, and a dense layer of every pixel.
struct ConvNet {
  Variable w1 = Variable::parameter(noise({8, 3, 3, 4}, 1, 0.3f));
  Variable w2 = Variable::parameter(noise({8, 3, 3, 8}, 2, 0.2f));
  Variable w3 = Variable::parameter(noise({8, 3, 3, 8}, 3, 0.2f));
  Variable w4 = Variable::parameter(noise({6, 8}, 4));
  Variable gamma = Variable::parameter(noise({8}, 5)), beta = Variable::parameter(noise({8}, 6));
  Tensor x, dy;
  explicit ConvNet(int64_t batch = 16)
      : x(uneven({batch, 8, 8, 4}, 7)), dy(uneven({batch, 8, 8, 6}, 8)) {}

  // Keeps the shapes, and drops the values.
  void move_to_meta() {
    const auto there = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype(), kMeta); };
    for (Variable* p : {&w1, &w2, &w3, &w4, &gamma, &beta})
      *p = Variable::parameter(there(p->value()));
    x = there(x);
    dy = there(dy);
  }

  std::vector<double> gradient(SavePolicy* policy, uint64_t step) {
    for (const Variable& p : {w1, w2, w3, w4, gamma, beta}) Variable(p).zero_grad();
    begin_step(step);
    Variable y;
    {
      PolicyScope scope(policy);
      Conv2dOptions same;
      same.padding = {1, 1};
      const Variable a = batch_norm_relu(conv2d(Variable(x), w1, {}, same), gamma, beta, {}, {});
      const Variable b = batch_norm_relu(conv2d(a, w2, {}, same), gamma, beta, {}, {});
      const Variable c = batch_norm_add_relu(conv2d(b, w3, {}, same), a, gamma, beta, {}, {});
      y = linear(c, w4, {});
    }
    saved = allocator(x.device()).report().of(Category::packed);
    backward(y, dy, {}, policy == nullptr ? nullptr : policy->observer());
    std::vector<double> all;
    if (x.device() == kMeta) return all;
    for (const Variable& p : {w1, w2, w3, w4, gamma, beta})
      for (const double g : p.grad().to_vector()) all.push_back(g);
    return all;
  }
  int64_t saved = 0;
};

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

double variance(ConvNet& net, ActnnPolicy& policy, int draws) {
  const std::vector<double> exact = net.gradient(nullptr, 0);
  for (uint64_t step = 0; step < 6; ++step) net.gradient(&policy, step);
  double sum = 0;
  for (int i = 0; i < draws; ++i)
    sum += squared_distance(net.gradient(&policy, 6 + static_cast<uint64_t>(i)), exact);
  return sum / draws;
}

}  // namespace

TEST_CASE("the sensitivity of a dense layer is fan times the gradient's squared norm") {
  ActnnPolicy policy(actnn_options(2));
  const Variable h = Variable(noise({64, 32}, 1));
  Variable w1 = Variable::parameter(noise({32, 32}, 2)),
           w2 = Variable::parameter(noise({5, 32}, 3));
  const Tensor dy = noise({64, 5}, 4);
  auto step = [&](uint64_t number, double factor) {
    begin_step(number);
    Variable y;
    {
      PolicyScope scope(&policy);
      y = linear(linear(h, w1, {}), w2, {});
    }
    std::vector<float> scaled;
    for (const double v : dy.to_vector()) scaled.push_back(static_cast<float>(factor * v));
    backward(y, Tensor::from(scaled, dy.shape()), {}, policy.observer());
  };
  step(0, 1);
  const auto items = policy.items();
  REQUIRE(items.size() == 2);
  CHECK(items[1].op == "linear");
  const double norm = ops::sum_of_squares(dy);
  REQUIRE(items[1].sensitivity.has_value());
  CHECK(*items[1].sensitivity == doctest::Approx(32 * norm));
  CHECK(items[1].bits + items[0].bits == doctest::Approx(4).epsilon(0.02));
  // The moving average over steps.
  step(1, 2);
  CHECK(*policy.items()[1].sensitivity == doctest::Approx(32 * norm * (1 + 4) / 2));
  // What is not finite is not learned.
  step(2, NAN);
  CHECK(*policy.items()[1].sensitivity == doctest::Approx(32 * norm * (1 + 4) / 2));
  // The variance: fan / 6 sum_n |dy_n|^2 R_n^2 S(b_n), all samples taken alike.
  const auto now = policy.items();
  double predicted = 0;
  for (const auto& item : now) {
    std::vector<double> w = item.ranges.samples;
    // The 64 rows are 4 samples of 16 rows.
    REQUIRE(w.size() == 4);
    const auto extra = static_cast<int64_t>(std::lround((item.bits - 1) * 4));
    const std::vector<int> bits =
        spread_bits(w, extra, 1, 8, [](int b) { return 1 / std::pow((1 << b) - 1, 2); });
    for (size_t n = 0; n < w.size(); ++n)
      predicted += *item.sensitivity / 6 * w[n] / 4 / std::pow((1 << bits[n]) - 1, 2);
  }
  CHECK(policy.predicted_variance() == doctest::Approx(predicted));
}

TEST_CASE("the sensitivity of what an adapter reads is that of its first matrix") {
  ActnnPolicy policy(actnn_options(2));
  const Variable x(noise({64, 32}, 1)), y(noise({64, 16}, 2));
  const Variable a = Variable::parameter(noise({4, 32}, 3)),
                 b = Variable::parameter(noise({16, 4}, 4));
  const Tensor dy = noise({64, 16}, 5);
  LowRankOptions low;
  low.scale = 1.5;
  begin_step(0);
  {
    PolicyScope scope(&policy);
    const Variable out = add_low_rank(y, x, a, b, low);
    backward(out, dy, {}, policy.observer());
  }
  const auto items = policy.items();
  REQUIRE(items.size() == 2);
  const double scale = low.scale * low.scale,
               norm = ops::sum_of_squares(ops::linear_backward_input(dy, b.value()));
  CHECK(items[0].sensitivity.value() == doctest::Approx(scale * 32 * norm));
  CHECK(items[1].sensitivity.value() == doctest::Approx(scale * 4 * ops::sum_of_squares(dy)));
}

TEST_CASE("dither and rounding to nearest add half of what stochastic rounding adds") {
  const auto predicted = [](Rounding rounding) {
    ActnnOptions options = actnn_options(2);
    options.keep.rounding = rounding;
    ActnnPolicy policy(options);
    const Variable h = Variable(noise({64, 32}, 1)), w = Variable::parameter(noise({5, 32}, 2));
    begin_step(0);
    Variable y;
    {
      PolicyScope scope(&policy);
      y = linear(h, w, {});
    }
    backward(y, noise({64, 5}, 3), {}, policy.observer());
    return policy.predicted_variance();
  };
  const double stochastic = predicted(Rounding::stochastic);
  CHECK(stochastic > 0);
  CHECK(predicted(Rounding::dithered) == doctest::Approx(stochastic / 2));
  CHECK(predicted(Rounding::nearest) == doctest::Approx(stochastic / 2));
}

TEST_CASE("a rebuilt operand counts for what it is rebuilt from, scaled by the norm") {
  ActnnPolicy policy(actnn_options(2, true, Signs::codes));
  Variable w = Variable::parameter(noise({8, 3, 3, 8}, 2));
  Variable gamma = Variable::parameter(Tensor::full({8}, 3.0));
  Variable beta = Variable::parameter(Tensor::full({8}, 0.5));
  const Variable x = Variable(noise({16, 8, 8, 8}, 1, 2));
  const Tensor dy = noise({16, 8, 8, 8}, 4);
  begin_step(0);
  Variable y;
  {
    PolicyScope scope(&policy);
    Conv2dOptions same;
    same.padding = {1, 1};
    y = conv2d(batch_norm_relu(x, gamma, beta, {}, {}), w, {}, same);
  }
  backward(y, dy, {}, policy.observer());
  const auto items = policy.items();
  REQUIRE(items.size() == 1);  // the norm's input
  CHECK(items[0].has_sign);
  CHECK(items[0].bits == 2);
  // fan 9 * 8; (weight * invstd)^2 = (3 / 2)^2 about.
  CHECK(*items[0].sensitivity ==
        doctest::Approx(72 * ops::sum_of_squares(dy) * 9 / 4).epsilon(0.05));
}

TEST_CASE("sources of a chain of residuals have all that reads what is rebuilt from them") {
  ConvNet net;
  ActnnPolicy policy(actnn_options(3, true, Signs::codes));
  net.gradient(&policy, 0);
  const auto items = policy.items();
  REQUIRE(items.size() == 4);  // the batch, which is no `input` here, and three norms'
  for (const auto& item : items) CHECK(item.sensitivity.has_value());
  CHECK(items[0].use.kind == Use::Kind::product);
  CHECK(items[0].through == 0);
  for (size_t i = 1; i < 4; ++i) {
    CHECK(items[i].use.kind == Use::Kind::normalized);
    CHECK(items[i].direct == 0);
  }
  // The first norm's is read by the second convolution and, through the shortcut, by the dense
  // layer; the second's by the third; the third's by the dense layer alone.
  const double dense = 8 * ops::sum_of_squares(net.dy);
  CHECK(items[3].through == doctest::Approx(dense));
  CHECK(items[1].through > dense);
  CHECK(policy.average_bits() == doctest::Approx(3).epsilon(0.02));
}

TEST_CASE("a normalized tensor has the bits of the product before it") {
  ConvNet net;
  ActnnPolicy policy(actnn_options(2));
  net.gradient(&policy, 0);
  const auto items = policy.items();
  REQUIRE(items.size() == 7);  // four operands of products, three of norms
  for (size_t i = 0; i + 1 < items.size(); ++i) {
    const bool norm = items[i].use.kind == Use::Kind::normalized;
    CHECK(items[i].sensitivity.has_value() == !norm);
    if (norm) CHECK(items[i].bits == items[i - 1].bits);
  }
  CHECK(policy.average_bits() == doctest::Approx(2).epsilon(0.01));
}

TEST_CASE("outside of the average, normalized tensors follow the products and do not count") {
  ActnnOptions options = actnn_options(2);
  options.norms_outside = true;
  ActnnPolicy policy(options);
  ConvNet net;
  net.gradient(&policy, 0);
  const auto items = policy.items();
  double bits = 0, elements = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    CHECK(!items[i].first_norm);
    if (items[i].use.kind == Use::Kind::normalized) {
      CHECK(items[i].bits == items[i - 1].bits);
      continue;
    }
    const auto numel = static_cast<double>(items[i].shape.numel());
    bits += items[i].bits * numel;
    elements += numel;
  }
  CHECK(bits / elements == doctest::Approx(2).epsilon(0.02));
}

TEST_CASE("a normalization before all products takes 8 bits outside of the average") {
  const Variable gamma = Variable::parameter(noise({8}, 1)),
                 beta = Variable::parameter(noise({8}, 2)),
                 w = Variable::parameter(noise({6, 8}, 3));
  const Tensor x = noise({16, 8, 8, 8}, 4), dy = noise({16, 8, 8, 6}, 5);
  const auto bits_of = [&](bool outside, ActnnPolicy& policy) {
    const Variable y = [&] {
      begin_step(0);
      PolicyScope scope(&policy);
      return linear(batch_norm_relu(Variable(x), gamma, beta, {}, {}), w, {});
    }();
    backward(y, dy, {}, policy.observer());
    std::vector<double> bits;
    for (const auto& item : policy.items()) bits.push_back(item.bits);
    CHECK(policy.items().front().first_norm == outside);
    return bits;
  };
  for (const bool outside : {false, true}) {
    ActnnOptions options = actnn_options(2);
    options.norms_outside = outside;
    ActnnPolicy policy(options);
    CHECK((bits_of(outside, policy) == std::vector<double>{outside ? 8.0 : 2.0, 2}));
    ActnnPolicy other(options);
    other.restore(policy.state());
    CHECK((other.learned() == policy.learned()));
    other.set_average(3);
    CHECK(other.items().front().bits == (outside ? 8 : 3));
  }
}

TEST_CASE("sensitivities are averaged over the steps that look, or those of the last one") {
  const auto sensitivity = [](double momentum, double second) {
    ActnnOptions options = actnn_options(2);
    options.momentum = momentum;
    ActnnPolicy policy(options);
    const Variable w = Variable::parameter(noise({5, 32}, 1));
    const Tensor x = noise({64, 32}, 2), dy = noise({64, 5}, 3);
    for (uint64_t step = 0; step < 2; ++step) {
      begin_step(step);
      Variable y;
      {
        PolicyScope scope(&policy);
        y = linear(Variable(x), w, {});
      }
      std::vector<float> scaled;
      for (const double g : dy.to_vector())
        scaled.push_back(static_cast<float>(g * (step == 0 ? 1 : second)));
      backward(y, Tensor::from(scaled, dy.shape()), {}, policy.observer());
    }
    return policy.items().front().sensitivity.value();
  };
  const double once = sensitivity(0, 1);
  CHECK(sensitivity(0.5, 2) == doctest::Approx(2.5 * once).epsilon(1e-4));
  CHECK(sensitivity(0, 2) == doctest::Approx(4 * once).epsilon(1e-4));
}

TEST_CASE("other ops have the relative error that they pass on") {
  ActnnPolicy policy(actnn_options(2));
  Variable w = Variable::parameter(noise({16, 16}, 2));
  const Variable x = Variable(noise({64, 16}, 1));
  begin_step(0);
  Variable h, y;
  {
    PolicyScope scope(&policy);
    h = linear(x, w, {});
    y = gelu(h);
  }
  const Tensor dy = noise({64, 16}, 4);
  backward(y, dy, {}, policy.observer());
  const auto items = policy.items();
  REQUIRE(items.size() == 2);
  CHECK(items[1].op == "gelu");
  CHECK(items[1].mean_square == doctest::Approx(ops::sum_of_squares(h.value()) / 1024));
  double norm = 0;  // |dx|^2
  for (int64_t i = 0; i < 1024; ++i) {
    const double v = h.value().item(i), cdf = 0.5 * std::erfc(-v / std::sqrt(2.0));
    const double slope = cdf + v * std::exp(-v * v / 2) / std::sqrt(2 * 3.14159265358979);
    norm += std::pow(slope * dy.item(i), 2);
  }
  // dx is made from the rounded h.
  CHECK(*items[1].sensitivity * items[1].mean_square == doctest::Approx(norm).epsilon(0.5));
}

TEST_CASE("levels") {
  ConvNet net(64);
  auto packed = [&](std::string_view name) {
    auto options = std::get<ActnnOptions>(level(name, PolicyKind::actnn).choice.policy);
    options.keep = actnn_options(2).keep;
    options.interval = 1;
    ActnnPolicy policy(options);
    net.gradient(&policy, 0);
    return net.saved;
  };
  const int64_t elements = 64 * 64 * (4 + 6 * 8), operands = 64 * 64 * (4 + 3 * 8);
  CHECK(packed("L0") == 0);
  CHECK(static_cast<double>(packed("L1")) ==
        doctest::Approx(static_cast<double>(operands) * 4.125 / 8).epsilon(0.02));
  CHECK(static_cast<double>(packed("L2")) ==
        doctest::Approx(static_cast<double>(elements) * 4.125 / 8).epsilon(0.02));
  CHECK(static_cast<double>(packed("L3")) ==
        doctest::Approx(static_cast<double>(elements) * 2.125 / 8).epsilon(0.02));
  CHECK(static_cast<double>(packed("L2.5")) ==
        doctest::Approx(static_cast<double>(elements) * 2.125 / 8).epsilon(0.02));
  CHECK(packed("L4") == packed("L3"));
  CHECK(level("L4", PolicyKind::actnn).offload);
  CHECK(!level("L3", PolicyKind::actnn).offload);
}

TEST_CASE("fractional averages are met in bytes") {
  ConvNet net(64);
  const int64_t elements = 64 * 64 * (4 + 6 * 8);
  for (const double average : {1.25, 1.5, 2.0, 2.5, 3.0}) {
    CAPTURE(average);
    ActnnPolicy policy(actnn_options(average));
    for (uint64_t step = 0; step < 4; ++step) {
      net.gradient(&policy, step);
      CHECK(static_cast<double>(net.saved) ==
            doctest::Approx(static_cast<double>(elements) * (average + 0.125) / 8).epsilon(0.02));
    }
    CHECK(policy.average_bits() == doctest::Approx(average).epsilon(0.01));
  }
}

TEST_CASE("gradients are unbiased, as published and with recipes and signs in codes") {
  for (const bool recipes : {false, true}) {
    CAPTURE(recipes);
    ConvNet net(4);
    ActnnPolicy policy(actnn_options(2.5, recipes, recipes ? Signs::codes : Signs::masks));
    Bias bias(net.gradient(nullptr, 0));
    for (uint64_t step = 0; step < 300; ++step) bias.add(net.gradient(&policy, step));
    CHECK(bias.chi_square() < 1.35);
  }
}

TEST_CASE("bits by sample and by tensor lower the variance at equal bytes") {
  ConvNet net(32);
  auto of = [&](bool by_sample, bool by_tensor) {
    ActnnOptions options = actnn_options(2);
    options.by_sample = by_sample;
    options.by_tensor = by_tensor;
    ActnnPolicy policy(options);
    return variance(net, policy, 24);
  };
  const double uniform = of(false, false), by_sample = of(true, false), both = of(true, true);
  CHECK(by_sample < 0.8 * uniform);
  CHECK(both < by_sample);
}

TEST_CASE("gradients of samples in earlier steps weigh them") {
  constexpr int64_t kRows = 64;
  ActnnOptions options = actnn_options(2);
  options.use_gradient = true;
  ActnnPolicy policy(options);
  Variable w = Variable::parameter(noise({8, 32}, 2));
  const Tensor h = uneven({kRows, 16, 32}, 1), dy = uneven({kRows, 16, 8}, 4);
  const auto step = [&](ActnnPolicy& with, uint64_t number, const Tensor& samples,
                        int64_t rows = 64) {
    with.set_samples(samples);
    begin_step(number);
    Variable y;
    {
      PolicyScope scope(&with);
      y = linear(Variable(h.slice(0, 0, rows)), w, {});
    }
    backward(y, dy.slice(0, 0, rows), {}, with.observer());
    return with.items().at(0).ranges.samples;
  };
  const auto indices = [](int64_t first) {
    return Tensor::arange(static_cast<double>(first), static_cast<double>(first + kRows), 1,
                          DType::i64);
  };
  const std::vector<double> ranges = step(policy, 0, indices(10));
  std::vector<double> norms;
  double mean = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    norms.push_back(32 * ops::sum_of_squares(dy.slice(0, n, n + 1)));  // fan times |dy_n|^2
    mean += norms.back() / kRows;
  }
  const auto gradients = [&] { return policy.state().gradients.at(0); };
  REQUIRE(gradients().size() == 10 + kRows);
  CHECK(gradients()[9] == 0);
  CHECK(gradients()[10] == doctest::Approx(norms[0] / 2));
  // The samples come again: each weighs as its gradient does.
  const std::vector<double> weighed = step(policy, 1, indices(10));
  for (size_t n = 0; n < ranges.size(); ++n)
    REQUIRE(weighed[n] == doctest::Approx(ranges[n] * norms[n] / mean));
  CHECK(gradients()[10] == doctest::Approx(norms[0] * 3 / 4));
  const ActnnState before = policy.state();
  // Half of the samples are new: they count as the mean of those that were seen.
  const std::vector<double> half = step(policy, 2, indices(10 + kRows / 2));
  double seen = 0;
  for (size_t n = kRows / 2; n < kRows; ++n) seen += norms[n] / (kRows / 2.0);
  CHECK(half[0] == doctest::Approx(ranges[0] * norms[kRows / 2] / seen));
  CHECK(half[kRows - 1] == doctest::Approx(ranges[kRows - 1]));
  // Without names, and where rows are no multiple of the samples, ranges alone count.
  policy.restore(before);
  CHECK(step(policy, 2, {}) == ranges);
  CHECK(step(policy, 3, indices(10), 40).size() == 40);
  CHECK((policy.state().gradients == before.gradients));
  // What is read back weighs the same, and a policy without the option refuses it.
  ActnnPolicy other(options);
  other.restore_learned(policy.learned());
  CHECK((other.learned() == policy.learned()));
  CHECK(step(other, 4, indices(10)) == step(policy, 4, indices(10)));
  CHECK((other.learned() == policy.learned()));
  ActnnPolicy without(actnn_options(2));
  CHECK_THROWS_WITH_AS(without.restore_learned(policy.learned()),
                       "[actnn] expected no gradients of samples without use_gradient, got those "
                       "of 1 tensors",
                       Error);
  Learned wrong = policy.learned();
  wrong.arrays.at("gradients.0")[3] = -1;
  CHECK_THROWS_WITH_AS(
      other.restore_learned(wrong),
      doctest::Contains("as number 3 of \"gradients.0\" of what was learned, got -1"), Error);
  wrong = policy.learned();
  wrong.arrays["gradients.7"] = {1};
  CHECK_THROWS_WITH_AS(other.restore_learned(wrong),
                       doctest::Contains("expected no array \"gradients.7\""), Error);
  CHECK_THROWS_WITH_AS(policy.set_samples(Tensor::full({2}, -1, DType::i64)),
                       doctest::Contains("expected indices of samples of at least 0, got -1"),
                       Error);
}

TEST_CASE("samples of a batch that are many rows weigh all of them") {
  ActnnOptions options = actnn_options(2);
  options.use_gradient = true;
  ActnnPolicy policy(options);
  Variable w = Variable::parameter(noise({8, 32}, 2));
  const Tensor h = noise({1560, 32}, 1), dy = uneven({65, 24 * 8}, 4).view({1560, 8});
  std::vector<std::vector<double>> ranges;
  for (uint64_t number = 0; number < 2; ++number) {
    policy.set_samples(Tensor::arange(0, 65, 1, DType::i64));
    begin_step(number);
    Variable y;
    {
      PolicyScope scope(&policy);
      y = linear(Variable(h), w, {});
    }
    backward(y, dy, {}, policy.observer());
    ranges.push_back(policy.items().at(0).ranges.samples);
  }
  REQUIRE(ranges[1].size() == 97);  // runs of 16 rows, the last of 24
  const auto norm = [&](int64_t n) {
    return ops::sum_of_squares(dy.slice(0, 24 * n, 24 * n + 24));
  };
  const double mean = ops::sum_of_squares(dy) / 65;
  const auto weight = [&](size_t run) { return ranges[1][run] / ranges[0][run]; };
  CHECK(weight(0) == doctest::Approx(norm(0) / mean));
  CHECK(weight(1) == doctest::Approx((norm(0) + norm(1)) / 2 / mean));
  CHECK(weight(96) == doctest::Approx(norm(64) / mean));
}

TEST_CASE("gradients of samples lower the variance at equal bytes") {
  ConvNet net(32);
  const std::vector<double> exact = net.gradient(nullptr, 0);
  const auto of = [&](bool use_gradient) {
    ActnnOptions options = actnn_options(2);
    options.by_tensor = false;
    options.products_only = true;  // the tensors that have gradients of samples
    options.keep.group = 64;       // the rows of a sample: none shares a group with another
    options.use_gradient = use_gradient;
    ActnnPolicy policy(options);
    const Tensor samples = Tensor::arange(0, 32, 1, DType::i64);
    double sum = 0;
    for (uint64_t step = 0; step < 26; ++step) {
      policy.set_samples(samples);
      const double distance = squared_distance(net.gradient(&policy, step), exact);
      sum += step < 2 ? 0 : distance / 24;
    }
    CHECK(policy.average_bits() == doctest::Approx(2));  // by_tensor is off
    return sum;
  };
  CHECK(of(true) < 0.9 * of(false));
}

TEST_CASE("it goes on where it was, with any number of threads") {
  const int threads = num_threads();
  for (const bool recipes : {false, true}) {
    CAPTURE(recipes);
    ConvNet net(4);
    const ActnnOptions options = actnn_options(2.5, recipes, recipes ? Signs::codes : Signs::masks);
    ActnnPolicy a(options), b(options);
    for (uint64_t step = 0; step < 3; ++step) net.gradient(&a, step);
    b.restore_learned(a.learned());
    for (const uint64_t step : {3u, 4u}) CHECK(net.gradient(&b, step) == net.gradient(&a, step));
    CHECK((a.learned() == b.learned()));
    // Weight gradients of convolutions depend on threads; sensitivities and bits do not.
    for (const int number : {1, 3}) {
      set_num_threads(number);
      ActnnPolicy again(options);
      for (uint64_t step = 0; step < 5; ++step) net.gradient(&again, step);
      CHECK((again.learned() == a.learned()));
    }
    set_num_threads(threads);
  }
}

TEST_CASE("observations are at the interval, and at powers of two before it") {
  ActnnOptions options = actnn_options(2);
  options.interval = 20;
  ActnnPolicy policy(options);
  std::vector<uint64_t> observed;
  for (uint64_t step = 0; step < 50; ++step) {
    SaveInfo info = entry(0, step);
    policy.decide(info, noise({64, 8}, 1));
    if (policy.observer() != nullptr) observed.push_back(step);
  }
  CHECK(observed == std::vector<uint64_t>{0, 1, 2, 4, 8, 16, 20, 40});
  options.by_tensor = false;
  CHECK(ActnnPolicy(options).observer() == nullptr);
}

TEST_CASE("observations are at steps, and in all batches of a step") {
  ActnnOptions options = actnn_options(2);
  options.interval = 20;
  ActnnPolicy policy(options);
  constexpr uint64_t kBatches = 3;  // in a step
  std::vector<uint64_t> observed;
  for (uint64_t pass = 0; pass < 41 * kBatches; ++pass) {
    policy.set_step(pass / kBatches);
    policy.decide(entry(0, pass), noise({64, 8}, 1));
    if (policy.observer() != nullptr) observed.push_back(pass);
  }
  std::vector<uint64_t> wanted;
  for (const uint64_t step : {0, 1, 2, 4, 8, 16, 20, 40})
    for (uint64_t batch = 0; batch < kBatches; ++batch) wanted.push_back(step * kBatches + batch);
  CHECK(observed == wanted);
}

TEST_CASE("payloads can be moved to a file") {
  ConvNet net(4);
  auto inner = std::make_shared<ActnnPolicy>(actnn_options(2.5));
  ActnnPolicy plain(actnn_options(2.5));
  const TempFolder folder;
  OffloadOptions file;
  file.directory = folder.path();
  OffloadPolicy moved(inner, file, 100);
  for (uint64_t step = 0; step < 3; ++step)
    CHECK(net.gradient(&moved, step) == net.gradient(&plain, step));
}

TEST_CASE("a network is planned on meta") {
  ActnnPolicy policy(actnn_options(1.5));
  begin_step(0);
  Variable w = Variable::parameter(Tensor::empty({32, 32}, DType::f32, kMeta));
  Variable y;
  {
    PolicyScope scope(&policy);
    const Variable x(Tensor::empty({64, 32}, DType::f32, kMeta));
    y = linear(linear(x, w, {}), w, {});
  }
  const int64_t packed = allocator(kMeta).report().of(Category::packed);
  // Half of the rows take 1 bit, the others 2, and both have metadata of 4 bytes a column.
  CHECK(packed == 2 * (2048 * 3 / 2 / 8 + 2 * 4 * 32));
  backward(y, Tensor::empty(y.shape(), DType::f32, kMeta), {}, policy.observer());
  CHECK(policy.items().size() == 2);
}

TEST_CASE("a network with normalizations takes on meta what its first step takes") {
  for (const bool recipes : {false, true}) {
    CAPTURE(recipes);
    const ActnnOptions options = actnn_options(2.5, recipes, recipes ? Signs::codes : Signs::masks);
    ActnnPolicy policy(options), planned(options);
    ConvNet net, plan;
    plan.move_to_meta();
    net.gradient(&policy, 0);
    for (uint64_t step = 0; step < 3; ++step) {  // each is observed
      plan.gradient(&planned, step);
      CHECK(static_cast<double>(plan.saved) ==
            doctest::Approx(static_cast<double>(net.saved)).epsilon(0.05));
    }
    REQUIRE(!planned.items().empty());
    for (const auto& item : planned.items()) CHECK(item.bits == 2.5);
    CHECK(allocator(kMeta).report().of(Category::packed) == 0);
  }
}

TEST_CASE("without bits it is not lossy, and groups along rows are refused") {
  ActnnOptions options;
  options.average = 0;
  options.mixed = false;
  CHECK(!ActnnPolicy(options).lossy());
  options = {};
  CHECK(ActnnPolicy(options).lossy());
  options.keep.axis = GroupAxis::row;
  CHECK_THROWS_WITH_AS(
      ActnnPolicy{options},
      "[actnn] expected groups in a channel, which samples share, got groups along rows", Error);
}

TEST_CASE("errors of the policy") {
  auto make = [](auto change) {
    ActnnOptions options;
    options.average = 2;
    options.mixed = true;
    change(options);
    return ActnnPolicy(options).average_bits();
  };
  for (const double bits : {2.5, -1.0, 17.0})
    CHECK_THROWS_WITH_AS(make([&](auto& o) {
                           o.mixed = false;
                           o.average = bits;
                         }),
                         doctest::Contains("whole bits where widths are not mixed"), Error);
  const char* const widths =
      "[actnn] expected an average and widths of 1 to 16 bits around it, got 0.5 and 1 to 8";
  CHECK_THROWS_WITH_AS(make([](auto& o) { o.average = 0.5; }), widths, Error);
  CHECK_THROWS_AS(make([](auto& o) { o.average = 9; }), Error);
  CHECK_THROWS_AS(make([](auto& o) { o.min_bits = 3; }), Error);
  CHECK_THROWS_WITH_AS(make([](auto& o) { o.interval = 0; }),
                       "[actnn] expected an interval of at least 1 step, got 0", Error);
  CHECK_THROWS_AS(make([](auto& o) { o.keep.group = 12; }), Error);
  CHECK_THROWS_WITH_AS(
      make([](auto& o) { o.keep.pack_recomputed = true; }),
      "[actnn] expected recomputed blocks that keep their inputs whole, got packed ones", Error);
  CHECK_THROWS_WITH_AS(make([](auto& o) { o.use_gradient = true, o.by_sample = false; }),
                       "[actnn] expected widths by sample with use_gradient, got widths by tensor",
                       Error);
  for (const double momentum : {-0.1, 1.0})
    CHECK_THROWS_WITH_AS(make([&](auto& o) { o.momentum = momentum; }),
                         doctest::Contains("expected a momentum of 0 to below 1"), Error);
  ActnnPolicy policy(actnn_options(2));
  const Learned right{"actnn",
                      ActnnState::kVersion,
                      {{"average", {2}},
                       {"tensors", {3}},
                       {"bits", {2}},
                       {"sensitivities", {0.5}},
                       {"in_last_step", {1}},
                       {"has_sign", {0}},
                       {"slopes", {0}},
                       {"first_norm", {0}},
                       {"dims", {2}},
                       {"extents", {4, 8}},
                       {"samples", {2}},
                       {"ranges", {1, 1}}}};
  policy.restore_learned(right);
  CHECK((policy.learned() == right));
  CHECK(policy.state().tensors.at(0).shape == Shape{4, 8});
  const auto with = [&](const char* list, double number, size_t at = 0) {
    Learned wrong = right;
    wrong.lists.at(list).at(at) = number;
    return wrong;
  };
  ActnnOptions by_gradient = actnn_options(2);
  by_gradient.use_gradient = true;
  CHECK_THROWS_WITH_AS(ActnnPolicy(by_gradient).joined({right, right}),
                       doctest::Contains("expected no use_gradient where 2 processes"), Error);
  Learned inner = right;
  inner.inside = {right};
  CHECK_THROWS_WITH_AS(policy.restore_learned(inner),
                       "[actnn] expected nothing that a policy inside it learned, got that of 1",
                       Error);
  Learned missing = right;
  missing.lists.erase("bits");
  CHECK_THROWS_WITH_AS(policy.restore_learned(missing),
                       "[actnn] expected the list \"bits\" in what was learned, got none", Error);
  CHECK_THROWS_WITH_AS(policy.restore_learned(with("tensors", 0.5)),
                       "[actnn] expected whole numbers as \"tensors\" of what was learned, got 0.5",
                       Error);
  CHECK_THROWS_WITH_AS(
      policy.restore_learned(with("bits", 17)),
      "[actnn] expected 1 to 16 as number 0 of \"bits\" of what was learned, got 17", Error);
  CHECK_THROWS_WITH_AS(policy.restore_learned(with("sensitivities", -0.5)),
                       "[actnn] expected a sensitivity of at least 0 for tensor 3, got -0.5",
                       Error);
  for (const auto& [list, number] :
       std::vector<std::pair<const char*, double>>{{"average", 0},
                                                   {"average", std::nan("")},
                                                   {"sensitivities", HUGE_VAL},
                                                   {"sensitivities", -2},
                                                   {"in_last_step", 2},
                                                   {"has_sign", -1},
                                                   {"slopes", -1},
                                                   {"first_norm", 2},
                                                   {"dims", 9},
                                                   {"dims", 1},
                                                   {"extents", -4},
                                                   {"extents", 0.5},
                                                   {"extents", 0x1p53},
                                                   {"samples", 1025},
                                                   {"samples", 3},
                                                   {"samples", 1},
                                                   {"ranges", -1}})
    CHECK_THROWS_AS(policy.restore_learned(with(list, number)), Error);
  CHECK_THROWS_AS(policy.restore_learned(with("ranges", std::nan(""), 1)), Error);
  Learned twice = right;
  for (auto& [name, list] : twice.lists)
    if (name != "average") list.insert(list.end(), list.begin(), list.end());
  CHECK_THROWS_WITH_AS(
      policy.restore_learned(twice),
      "[actnn] expected each tensor once in \"tensors\" of what was learned, got 3 twice", Error);
  CHECK((policy.learned() == right));
}
