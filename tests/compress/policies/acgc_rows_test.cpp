// AC-GC's bounds of layer, RMS and group norm: the formulas against worked cases, what errors can
// do at worst and do on average, and what the policy makes of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/transformer_functions.h"
#include "compress/policies/acgc_policy.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/image/group_norm.h"
#include "tests/compress/policies/acgc_samples.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;
using acgc::Count;
using acgc::RowSums;

namespace {

// A normalization of rows of x, whose gradients are taken with the moments of x as it was.
struct Norm {
  enum Kind { layer, rms, group } kind = layer;
  Tensor x, dy, weight;
  int64_t groups = 1;
  ops::RowMoments moments = {};

  Norm(Kind of, const Shape& shape, int64_t parts)
      : kind(of), x(noise(shape, 3)), dy(noise(shape, 4)), groups(parts) {
    const int64_t channels = shape.back();
    std::vector<float> w;
    for (int64_t c = 0; c < channels; ++c) w.push_back(0.4f + 0.1f * static_cast<float>(c % 7));
    weight = Tensor::from(w, {channels});
    // Rows of other sizes, and a mean.
    for (int64_t i = 0; i < x.numel(); ++i) {
      float& each = x.mut<float>()[i];
      each = each * (0.5f + static_cast<float>(i / channels % 3)) + 0.3f;
    }
    moments = kind == layer ? ops::layer_norm(x, weight, {}, 1e-5).moments
              : kind == rms ? ops::rms_norm(x, weight, 1e-5).moments
                            : ops::group_norm(x, groups, weight, {}, 1e-5).moments;
  }
  ops::LayerNormGradients gradients(const Tensor& input) const {
    return kind == group ? ops::group_norm_backward(dy, input, moments, weight, {})
                         : ops::layer_norm_backward(dy, input, moments, weight, {});
  }
  RowSums sums() const {
    return acgc::row_sums(x, dy, {moments.mean, moments.invstd, weight, groups});
  }
  Tensor moved(const std::vector<float>& d) const {
    return ops::add(x, Tensor::from(d, x.shape()));
  }
};

}  // namespace

TEST_CASE("bounds of normalized rows, hand-worked") {
  RowSums sums;
  sums.elements = 4;
  sums.rows = {{2, 3, 5, -1}, {1, 2, 2, 6}};
  sums.dw_worst = 8, sums.dw_variance = 2;
  // a^2 = (16 * 4^2 + 8^2) / 4 = 80, c^2 = (64 * 9 + 4) / 4 = 145; e |dx| = 1.
  const double worst = 2 / (std::sqrt(80.0) + std::sqrt(80.0 + 4 * std::sqrt(145.0)));
  CHECK(acgc::normalized_rows_bound2(sums, 1, HUGE_VAL, Count::worst) ==
        doctest::Approx(worst * worst));
  CHECK(acgc::normalized_rows_bound2(sums, HUGE_VAL, 2, Count::worst) == 0.25);
  CHECK(acgc::normalized_rows_bound2(sums, 1, 1e-3, Count::worst) == 1e-3 / 8);
  // a = (16 (5 + 1.5) + 2 + 1.5 * 36) / 4 = 40, c = (64 * 5 + 2) / 4 = 80.5.
  const double variance = 2 / (40 + std::sqrt(1600 + 4 * 80.5));
  CHECK(acgc::normalized_rows_bound2(sums, 1, HUGE_VAL, Count::expected) ==
        doctest::Approx(4 * variance));
  CHECK(acgc::normalized_rows_bound2(sums, HUGE_VAL, 2, Count::expected) == 4);
  sums.rows = {{2, 0, 0, 0}};
  sums.dw_worst = sums.dw_variance = 0;
  CHECK(acgc::normalized_rows_bound2(sums, 1, 1, Count::worst) == HUGE_VAL);
}

TEST_CASE("sums of rows, hand-worked") {
  const auto tensor = [](const std::vector<double>& values, const Shape& shape) {
    return Tensor::from(values, shape);
  };
  const Tensor x = tensor({1, 3, 5, 7, 2, 2, 4, 0}, {2, 4});
  const Tensor dy = tensor({1, -1, 2, 0, 3, 1, 0, -2}, {2, 4});
  const Tensor weight = tensor({1, 2, 1, 2}, {4});
  // g = 1 -2 2 0 and 3 2 0 -4.
  const RowSums layer = acgc::row_sums(x, dy, {tensor({4, 2}, {2}), tensor({0.5, 2}, {2}), weight});
  CHECK(layer.elements == 4);
  REQUIRE(layer.rows.size() == 2);
  CHECK(layer.rows[0].g1 == 5);
  CHECK(layer.rows[0].g2 == 9);
  CHECK(layer.rows[0].t == 0.5 * (-3 + 2 + 2));  // x - mean is x - 4
  CHECK(layer.rows[1].g1 == 9);
  CHECK(layer.rows[1].t == 2 * (-4.0) * (-2.0));  // x - mean is x - 2
  // r |dy|: 0.5 0.5 1 0 and 6 2 0 4.
  CHECK(layer.dw_worst == 6.5 * 6.5 + 2.5 * 2.5 + 1 + 16);
  CHECK(layer.dw_variance == 1.5 + 36 + 4 + 16);
  CHECK(layer.slope == std::vector<double>{4, 16, 4, 16});
  // Two groups of two channels, one sample of two rows; no mean.
  const RowSums group = acgc::row_sums(x, dy, {{}, tensor({1, 2}, {1, 2}), weight, 2});
  CHECK(group.elements == 4);
  REQUIRE(group.rows.size() == 2);
  CHECK(group.rows[0].g1 == 8);  // 1 -2 3 2
  CHECK(group.rows[0].t == 1 - 6 + 6 + 4);
  CHECK(group.rows[1].g1 == 6);  // 2 0 0 -4
  CHECK(group.rows[1].t == 2 * 10);
  CHECK(group.slope == std::vector<double>{1, 4, 4, 16});
  CHECK(group.dw_worst == 4 * 4 + 2 * 2 + 4 * 4 + 4 * 4);
}

TEST_CASE("bounds of rows that are normalized already") {
  // An error of z = s (x - mean) is s times one of x, so a bound of rows of one deviation is s^2
  // times that of x.
  for (const Norm::Kind kind : {Norm::layer, Norm::rms, Norm::group}) {
    CAPTURE(static_cast<int>(kind));
    const bool group = kind == Norm::group;
    const Norm norm(kind, group ? Shape{1, 30, 12} : Shape{1, 48}, 1);
    const double s = norm.moments.invstd.item(0);
    const Tensor z = group               ? ops::group_norm(norm.x, 1, {}, {}, 1e-5).y
                     : kind == Norm::rms ? ops::rms_norm(norm.x, {}, 1e-5).y
                                         : ops::layer_norm(norm.x, {}, {}, 1e-5).y;
    const RowSums of_z =
        acgc::row_sums(z, norm.dy, {{}, norm.moments.invstd, norm.weight, 1, true});
    for (const Count count : {Count::worst, Count::expected})
      for (const double allowed : {1e-3, 10.0})
        for (const bool of_weight : {false, true}) {
          const double dx = of_weight ? HUGE_VAL : allowed, dw = of_weight ? allowed : HUGE_VAL;
          CHECK(acgc::normalized_rows_bound2(of_z, dx, dw, count) ==
                doctest::Approx(s * s * acgc::normalized_rows_bound2(norm.sums(), dx, dw, count))
                    .epsilon(1e-4));
        }
  }
}

TEST_CASE("the bound of normalized rows holds for errors of every kind") {
  for (const auto& norm : {Norm(Norm::layer, {40, 48}, 1), Norm(Norm::rms, {40, 48}, 1),
                           Norm(Norm::group, {6, 5, 4, 12}, 3)}) {
    CAPTURE(static_cast<int>(norm.kind));
    const ops::LayerNormGradients exact = norm.gradients(norm.x);
    const RowSums sums = norm.sums();
    const auto n = static_cast<size_t>(norm.x.numel());
    const auto channels = static_cast<size_t>(norm.x.shape().back());
    for (const double e2 : {0.0004, 0.04, 1.0})
      for (const bool of_weight : {false, true}) {
        CAPTURE(e2);
        CAPTURE(of_weight);
        const double allowed = e2 * squares(of_weight ? exact.dweight : exact.dx);
        const auto bound2 = [&](Count count) {
          return acgc::normalized_rows_bound2(sums, of_weight ? HUGE_VAL : allowed,
                                              of_weight ? allowed : HUGE_VAL, count);
        };
        const auto error = [&](const std::vector<float>& d) {
          const ops::LayerNormGradients g = norm.gradients(norm.moved(d));
          return of_weight ? distance2(g.dweight, exact.dweight) : distance2(g.dx, exact.dx);
        };
        const auto bound = static_cast<float>(std::sqrt(bound2(Count::worst)));
        std::vector<float> with(n), random(n), same(n, bound), by_channel(n);
        for (size_t i = 0; i < n; ++i) {
          with[i] = norm.dy.data<float>()[i] > 0 ? bound : -bound;
          random[i] = bound * (2 * uniform({9, 1}, i) - 1);
          by_channel[i] = i % channels % 2 == 0 ? bound : -bound;
        }
        double worst = 0;
        for (const auto& d : {with, random, same, by_channel}) {
          CHECK(error(d) <= 1.001 * allowed);
          worst = std::max(worst, error(d));
        }
        CHECK(worst > (of_weight ? 0.99 : 0.2) * allowed);

        const auto half = static_cast<float>(std::sqrt(bound2(Count::expected)) / 2);
        double average = 0;
        constexpr int draws = 100;
        std::vector<float> d(n);
        for (uint64_t draw = 0; draw < draws; ++draw) {
          for (size_t i = 0; i < n; ++i) d[i] = uniform({draw, 2}, i) < 0.5f ? -half : half;
          average += error(d) / draws;
        }
        CHECK(average / allowed == doctest::Approx(1).epsilon(0.15));
      }
  }
}

TEST_CASE("normalizations of rows have their own bounds in the policy") {
  const Tensor data = noise({80, 6}, 1), dy = noise({80, 16}, 5);
  std::vector<float> ones;
  for (int c = 0; c < 16; ++c) ones.push_back(0.5f + 0.1f * static_cast<float>(c));
  Variable w = Variable::parameter(noise({16, 6}, 2));
  Variable gamma = Variable::parameter(Tensor::from(ones, {16}));
  Variable beta = Variable::parameter(Tensor::zeros({16}));
  const Tensor h = linear(Variable(data), w).value();
  for (const char* name : {"layer_norm", "rms_norm", "layer_norm_relu", "group_norm"}) {
    CAPTURE(name);
    const std::string op = name;
    AcgcOptions options = small_acgc(16);
    options.e = 0.5;
    AcgcPolicy policy(options);
    for (Variable* each : {&w, &gamma, &beta}) each->zero_grad();
    begin_step(0);
    PolicyScope scope(&policy);
    const Variable x = linear(Variable(data), w);
    const Variable y = op == "layer_norm"   ? layer_norm(x, gamma, beta, 1e-5)
                       : op == "rms_norm"   ? rms_norm(x, gamma, 1e-5)
                       : op == "group_norm" ? group_norm(x, 4, gamma, beta, 1e-5)
                                            : layer_norm_relu(x, gamma, beta, 1e-5);
    backward(y, ops::clone(dy), {}, policy.observer());
    policy.learned();
    // Computes the bound by hand, from exact values.
    const bool grouped = op == "group_norm";
    const ops::LayerNormOutput out = op == "rms_norm" ? ops::rms_norm(h, gamma.value(), 1e-5)
                                     : grouped
                                         ? ops::group_norm(h, 4, gamma.value(), beta.value(), 1e-5)
                                         : ops::layer_norm(h, gamma.value(), beta.value(), 1e-5);
    Tensor g = ops::clone(dy);
    if (op == "layer_norm_relu") g = ops::select_by_mask(g, ops::rectify(out.y, 0, true).mask, 0);
    const ops::LayerNormGradients exact =
        grouped ? ops::group_norm_backward(g, h, out.moments, gamma.value(), {})
                : ops::layer_norm_backward(g, h, out.moments, gamma.value(), {});
    // The norm keeps normalized rows.
    const Tensor rows = op == "rms_norm" ? ops::rms_norm(h, {}, 1e-5).y
                        : grouped        ? ops::group_norm(h, 4, {}, {}, 1e-5).y
                                         : ops::layer_norm(h, {}, {}, 1e-5).y;
    const double bound2 = acgc::normalized_rows_bound2(
        acgc::row_sums(rows, g, {{}, out.moments.invstd, gamma.value(), grouped ? 4 : 1, true}),
        0.25 * squares(exact.dx), 0.25 * squares(exact.dweight), Count::worst);
    const auto items = policy.items();
    const auto norm =
        std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.op == op; });
    REQUIRE(norm != items.end());
    REQUIRE(policy.bounds2(norm->seq).size() == 1);
    CHECK(policy.bounds2(norm->seq)[0] / bound2 == doctest::Approx(1).epsilon(0.01));
  }
}

TEST_CASE("what is rebuilt through a normalization of rows bounds its input by channel") {
  const Variable w = Variable::parameter(noise({16, 6}, 2, 2));
  std::vector<float> gammas(16);
  for (size_t c = 0; c < 16; ++c) gammas[c] = 4 + 0.5f * static_cast<float>(c);
  const Variable gamma = Variable::parameter(Tensor::from(gammas, {16}));
  const Variable beta = Variable::parameter(Tensor::zeros({16}));
  const Variable w2 = Variable::parameter(noise({4, 16}, 3));
  const Tensor data = noise({80, 6}, 1), dy = noise({80, 4}, 5);
  const auto run = [&](AcgcPolicy& policy) {
    begin_step(0);
    PolicyScope scope(&policy);
    const Variable h = layer_norm(linear(Variable(data), w), gamma, beta, 1e-5);
    backward(linear(h, w2), dy, {}, policy.observer());
    policy.learned();
    std::vector<AcgcPolicy::Item> items = policy.items();
    std::erase_if(items, [](const auto& item) { return item.elements != 80 * 16; });
    return items;
  };
  AcgcPolicy plain(small_acgc(16));
  const auto both = run(plain);
  REQUIRE(both.size() == 2);
  AcgcOptions options = small_acgc(16);
  options.keep.recipes = true;
  AcgcPolicy recipes(options);
  const auto alone = run(recipes);
  REQUIRE(alone.size() == 1);
  const auto norm = plain.bounds2(both[0].seq), product = plain.bounds2(both[1].seq);
  const auto bounds = recipes.bounds2(alone[0].seq);
  REQUIRE(bounds.size() == 16);
  for (size_t c = 0; c < 16; ++c) {
    const double slope =
        std::pow(static_cast<double>(gammas[c]), 2);  // y is gamma times normalized rows
    CHECK(bounds[c] / std::min(norm[0], product[0] / slope) == doctest::Approx(1).epsilon(0.02));
  }
  CHECK(bounds[15] < bounds[0]);
}

TEST_CASE("errors of normalized rows stay within what was allowed") {
  const Tensor data = noise({300, 6}, 1), dy = noise({300, 32}, 5);
  Variable w = Variable::parameter(noise({32, 6}, 2));
  Variable gamma = Variable::parameter(Tensor::full({32}, 1.5));
  Variable beta = Variable::parameter(Tensor::zeros({32}));
  const auto run = [&](SavePolicy* policy, uint64_t step) {
    for (Variable* each : {&w, &gamma, &beta}) each->zero_grad();
    begin_step(step);
    PolicyScope scope(policy);
    backward(layer_norm(linear(Variable(data), w), gamma, beta, 1e-5), ops::clone(dy), {},
             policy != nullptr ? policy->observer() : nullptr);
    return ops::clone(gamma.grad());
  };
  const Tensor exact = run(nullptr, 0);
  for (const Count count : {Count::worst, Count::expected}) {
    AcgcOptions options = small_acgc(16);
    options.e = 0.2;
    options.count = count;
    options.rounding = Rounding::stochastic;
    AcgcPolicy policy(options);
    run(&policy, 0);
    double error = 0;
    constexpr int draws = 10;
    for (uint64_t step = 1; step <= draws; ++step)
      error += distance2(run(&policy, step), exact) / draws;
    CHECK(error > 0);
    CHECK(error <= 0.04 * squares(exact));
  }
}
