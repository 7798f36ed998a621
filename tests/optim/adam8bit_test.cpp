
#include <algorithm>
#include <limits>

#include "ops/optimizer/adam8bit.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

using ops::StateMap;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Half a part of the decade that holds a: what rounding to the nearest number may cost.
double bound(double a, StateMap map) {
  double high = 1, parts = map == StateMap::with_sign ? 64 : 128;
  for (int decade = 0; decade < 6 && a <= high / 10; ++decade) {
    high /= 10;
    parts /= 2;
  }
  // Below the last decade, the way to its first middle.
  return a <= high / 10 ? high / 10 + 0.45 * high / parts : 0.45 * high / parts;
}

// One block with values over eight decades and a largest magnitude of 1.
std::vector<double> samples(uint64_t seed, bool with_sign) {
  std::vector<double> x{1};
  for (uint64_t i = 1; i < 256; ++i) {
    const double a = std::pow(10.0, -8 * static_cast<double>(uniform({seed, 0}, i)));
    x.push_back(with_sign && uniform({seed, 1}, i) < 0.5f ? -a : a);
  }
  return x;
}

}  // namespace

TEST_CASE("8-bit maps: 256 increasing numbers by the rule, with 0 and 1") {
  for (const StateMap map : {StateMap::with_sign, StateMap::positive}) {
    const auto& values = ops::state_map_values(map);
    CHECK(std::is_sorted(values.begin(), values.end(), std::less_equal<>()));
    CHECK(std::count(values.begin(), values.end(), 0.0f) == 1);
    CHECK(values[255] == 1);
    for (int e = 0; e < 7; ++e) {
      const double high = std::pow(10.0, e - 6), low = high / 10;
      CHECK(std::count_if(values.begin(), values.end(), [&](float v) {
              return static_cast<double>(v) > low && static_cast<double>(v) < high;
            }) == (map == StateMap::with_sign ? 1 << e : 2 << e));
    }
  }
  const auto& both = ops::state_map_values(StateMap::with_sign);
  for (size_t k = 1; k <= 127; ++k) CHECK(both[127 - k] == -both[127 + k]);
  CHECK(both[128] == doctest::Approx(5.5e-7).scale(0));
  CHECK(both[254] == doctest::Approx(1 - 0.45 / 64));
  CHECK(ops::state_map_values(StateMap::positive)[1] == doctest::Approx(3.25e-7).scale(0));
}

TEST_CASE("8-bit codes: the nearest number of the map, within the bound") {
  for (const StateMap map : {StateMap::with_sign, StateMap::positive})
    for (const DType dtype : {DType::f32, DType::f64})
      for (uint64_t seed = 0; seed < 20; ++seed) {
        const bool with_sign = map == StateMap::with_sign;
        const double scale = seed % 2 == 0 ? 1 : 3e-5;
        const std::vector<double> x = samples(seed, with_sign);
        Tensor values = Tensor::from<double>(x, {256});
        for (int64_t i = 0; i < 256; ++i) values.mut<double>()[i] *= scale;
        const auto state = ops::quantize_blockwise(ops::cast(values, dtype), map);
        CHECK(state.scales.item() == doctest::Approx(scale));
        const Tensor got = ops::dequantize_blockwise(state, dtype);
        for (int64_t i = 0; i < 256; ++i) {
          const double wanted = x[static_cast<size_t>(i)], a = got.item(i) / scale;
          double nearest = kInf;
          for (const float v : ops::state_map_values(map))
            if (with_sign || v > 0)
              nearest = std::min(nearest, std::abs(static_cast<double>(v) - wanted));
          CAPTURE(wanted);
          REQUIRE(std::abs(a - wanted) <= nearest + 1e-6 * std::abs(wanted));
          REQUIRE(std::abs(a - wanted) <= bound(std::abs(wanted), map) * 1.0001);
          REQUIRE((a > 0) == (with_sign && a == 0 ? false : wanted > 0));
        }
      }
}

TEST_CASE("8-bit codes: stochastic rounding takes a neighbour, and is right on average") {
  const int draws = 4000;
  for (const StateMap map : {StateMap::with_sign, StateMap::positive}) {
    const auto& values = ops::state_map_values(map);
    const std::vector<double> x = samples(3, map == StateMap::with_sign);
    const Tensor exact = Tensor::from<double>(x, {256});
    std::vector<double> sum(256);
    for (uint64_t draw = 0; draw < draws; ++draw) {
      const auto state = ops::quantize_blockwise(exact, map, RngKey{5, draw});
      for (int64_t i = 0; i < 256; ++i)
        sum[static_cast<size_t>(i)] +=
            static_cast<double>(values[state.codes.data<uint8_t>()[i]]) / draws;
    }
    for (size_t i = 0; i < 256; ++i) {
      const auto above = std::upper_bound(values.begin(), values.end(), x[i]);
      const double low = static_cast<double>(above == values.begin() ? values[0] : *(above - 1));
      const double high = static_cast<double>(above == values.end() ? values[255] : *above);
      CAPTURE(x[i]);
      REQUIRE(sum[i] >= low - 1e-12);
      REQUIRE(sum[i] <= high + 1e-12);
      // What is below the smallest number of the positive map becomes it; nothing is below the
      // least.
      if ((map == StateMap::positive && x[i] < 3.25e-7) || x[i] < static_cast<double>(values[0]))
        continue;
      REQUIRE(std::abs(sum[i] - x[i]) < 5 * 0.5 * (high - low) / std::sqrt(draws) + 1e-9);
    }
  }
  const Tensor x = normals({3000}, 1, DType::f32);
  const auto a = ops::quantize_blockwise(x, StateMap::positive, RngKey{1, 1});
  const auto b = ops::quantize_blockwise(x, StateMap::positive, RngKey{1, 2});
  CHECK(a.codes.to_vector() != b.codes.to_vector());
}

TEST_CASE("8-bit codes: blocks do not affect one another; zeros, tiny and non-finite values") {
  const int64_t n = 3 * 256 + 10;
  Tensor x = normals({n}, 3, DType::f32);
  for (int64_t i = 0; i < 256; ++i) x.mut<float>()[i] = 0;
  for (int64_t i = 256; i < 512; ++i) x.mut<float>()[i] *= 1e-42f;
  const Tensor plain = ops::dequantize_blockwise(ops::quantize_blockwise(x, StateMap::with_sign));
  for (int64_t i = 0; i < 256; ++i) CHECK(plain.item(i) == 0);
  for (int64_t i = 256; i < 512; ++i) CHECK(std::isfinite(plain.item(i)));
  for (const double bad : {kNan, kInf, -kInf}) {
    x.mut<float>()[600] = static_cast<float>(bad);
    const Tensor got = ops::dequantize_blockwise(ops::quantize_blockwise(x, StateMap::with_sign));
    for (int64_t i = 0; i < n; ++i) {
      if (i / 256 == 2)
        CHECK(std::isnan(got.item(i)));
      else
        CHECK(got.item(i) == plain.item(i));
    }
  }
  const auto zeros = ops::blockwise_zeros(300, StateMap::with_sign);
  CHECK(ops::dequantize_blockwise(zeros).to_vector() == std::vector<double>(300));
  CHECK(ops::quantize_blockwise(Tensor::zeros({0}), StateMap::positive).scales.numel() == 0);
  const Tensor signs = Tensor::from<float>({-1, 1e-30f, 0, 1}, {4});
  const Tensor got = ops::dequantize_blockwise(ops::quantize_blockwise(signs, StateMap::positive));
  CHECK(got.item(0) == 0);
  CHECK(got.item(1) == doctest::Approx(3.25e-7).scale(0));
  CHECK(got.item(2) == 0);
  CHECK(got.item(3) == 1);
}

TEST_CASE("8-bit AdamW: the first step is AdamW's, bit for bit") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Variable p = Variable::parameter(normals({5000}, 1, dtype));
    Variable q = Variable::parameter(normals({5000}, 1, dtype));
    Adam8bit packed(group(p, 0.01), {});
    Adam plain(group(q, 0.01), {});
    CHECK(run_steps(packed, p, 0, 1, 0.01) == run_steps(plain, q, 0, 1, 0.01));
    CHECK(run_steps(packed, p, 1, 2, 0.01) != run_steps(plain, q, 1, 2, 0.01));
    // After 20 steps of 0.01 they are still near each other.
    run_steps(packed, p, 2, 20, 0.01);
    const std::vector<double> wanted = run_steps(plain, q, 2, 20, 0.01);
    CHECK(relative_error(p.value(), wanted) < 0.01);
  }
}

TEST_CASE("8-bit AdamW converges as AdamW does") {
  const Shape shape{4352};
  Variable p = Variable::parameter(Tensor::zeros(shape)),
           q = Variable::parameter(Tensor::zeros(shape));
  Adam8bit packed(group(p), {});
  Adam plain(group(q), {});
  const double got = noisy_quadratic(packed, p, 0.02), wanted = noisy_quadratic(plain, q, 0.02);
  MESSAGE("mean loss with 8 bits ", got, ", with 32 ", wanted);
  CHECK(wanted < 0.02);
  CHECK(got < 1.08 * wanted);  // 1.15 with rounding to the nearest
}

TEST_CASE("8-bit AdamW: a second moment falls where one step changes it by less than a code") {
  // The first element of each block has a second moment of 1 in every step, so the scale stays.
  // The others have 1/2 at first. Rounding to the nearest would leave them there: a step takes
  // 0.0005, and neighbours lie 0.9/128 apart.
  const int64_t n = 4096;
  const int steps = 1000;
  Variable p = Variable::parameter(Tensor::zeros({n}));
  Adam8bit adam(group(p), {});
  const auto set_gradient = [&](double of_firsts, double of_others) {
    Tensor g = Tensor::full({n}, of_others);
    for (int64_t i = 0; i < n; i += ops::kStateBlock) g.mut<float>()[i] = float(of_firsts);
    p.set_grad(g);
  };
  set_gradient(std::sqrt(1000.0), std::sqrt(500.0));
  adam.step(0.01);
  for (int t = 0; t < steps; ++t) {
    set_gradient(1, 0);
    adam.step(0.01);
  }
  ops::BlockwiseState v{{}, {}, StateMap::positive};
  for (const auto& [name, tensor] : adam.state())
    if (name.starts_with("v")) (tensor.dtype() == DType::u8 ? v.codes : v.scales) = tensor;
  REQUIRE(v.codes.defined());
  double sum = 0, squares = 0;
  int64_t count = 0;
  const std::vector<double> found = ops::dequantize_blockwise(v).to_vector();
  for (int64_t i = 0; i < n; ++i) {
    if (i % ops::kStateBlock == 0) continue;
    sum += found[static_cast<size_t>(i)];
    squares += found[static_cast<size_t>(i)] * found[static_cast<size_t>(i)];
    ++count;
  }
  const double mean = sum / double(count);
  const double deviation = std::sqrt((squares / double(count) - mean * mean) / double(count));
  CHECK(std::abs(mean - 0.5 * std::pow(0.999, steps)) < 5 * deviation);
}

TEST_CASE("8-bit AdamW: a gradient that stops does not let the step explode") {
  // Element 1 is far below its block's largest: its second moment rounds to less than the smallest
  // number, and would be 0.
  Variable p = Variable::parameter(Tensor::zeros({4096}));
  Adam8bit adam(group(p), {});
  Tensor g = Tensor::zeros({4096});
  g.mut<float>()[0] = 1;
  g.mut<float>()[1] = 1e-4f;
  p.set_grad(g);
  adam.step(0.01);
  g = ops::clone(g);
  g.mut<float>()[1] = 0;
  p.set_grad(g);
  for (int t = 0; t < 10; ++t) adam.step(0.01);
  CHECK(std::abs(p.value().item(1)) < 0.1);
}

TEST_CASE("8-bit AdamW: state takes 2.03 bytes an element, and less than 4096 stay as they were") {
  const int64_t n = 10000, before = optimizer_bytes();
  Variable big = Variable::parameter(normals({n}, 1, DType::f32));
  Variable small = Variable::parameter(normals({4095}, 1, DType::f32));
  Variable named = Variable::parameter(normals({n}, 1, DType::f32));
  Adam8bitOptions options;
  Adam8bit adam({{{{"w", big}, {"b", small}, {"model.embed_tokens.weight", named}}, 1, 0}},
                options);
  for (Variable* p : {&big, &small, &named}) p->set_grad(normals(p->shape(), 5, DType::f32));
  const auto step_leaf = [&](const Variable& p) {
    const int64_t had = optimizer_bytes();
    CHECK(adam.step_leaf(*p.accumulator(), 0.1));
    return optimizer_bytes() - had;
  };
  // Two of 10000 u8 and two of 40 f32, each rounded up to 64.
  CHECK(step_leaf(big) == 2 * (10048 + 192));
  CHECK(step_leaf(small) == 2 * 16384);
  CHECK(step_leaf(named) == 2 * 40000);
  CHECK(optimizer_bytes() - before == 2 * (10048 + 192 + 16384 + 40000));
  int bytes = 0;
  for (const auto& [name, tensor] : adam.state()) {
    CHECK(tensor.storage()->category() == Category::optimizer);
    bytes += tensor.dtype() == DType::u8 ? 1 : 0;
  }
  CHECK(bytes == 2);
  options.state.least_elements = 0;
  options.state.full_precision = {};
  Adam8bit all({{{{"b", small}}, 1, 0}}, options);
  all.step(0.1);
  CHECK(all.state()[1].first == "m8/b");
}

TEST_CASE("8-bit AdamW: the same bits for every thread count, and after a restart") {
  const int64_t n = 70001;
  std::vector<double> expected;
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    Variable p = Variable::parameter(normals({n}, 1, DType::f32));
    Adam8bit adam(group(p, 0.01), {});
    run_steps(adam, p, 0, 2, 0.01);
    Variable q = Variable::parameter(ops::clone(p.value()));
    Adam8bit resumed(group(q, 0.01), {});
    resumed.load_state(adam.state());
    const std::vector<double> got = run_steps(adam, p, 2, 4, 0.01);
    CHECK(run_steps(resumed, q, 2, 4, 0.01) == got);
    if (threads == 1) expected = got;
    CHECK(got == expected);
  }
}

TEST_CASE("8-bit AdamW refuses impossible options and tensors") {
  Adam8bitOptions options;
  options.state.least_elements = -1;
  CHECK_THROWS_WITH_AS(Adam8bit({}, options),
                       doctest::Contains("[adam8bit] expected least_elements of at least 0"),
                       Error);
  options = {};
  options.adam.beta1 = 1;
  CHECK_THROWS_WITH_AS(Adam8bit({}, options), doctest::Contains("[adam8bit] expected betas"),
                       Error);
  // A state in full precision is not one in 8 bits.
  Variable p = Variable::parameter(normals({5000}, 1, DType::f32));
  Adam plain(group(p), {});
  run_steps(plain, p, 0, 1, 0.1);
  Adam8bit packed(group(p), {});
  CHECK_THROWS_WITH_AS(packed.load_state(plain.state()), doctest::Contains("'m8/p', got none"),
                       Error);
  const Tensor x = Tensor::zeros({300});
  const auto m = ops::blockwise_zeros(300, StateMap::with_sign);
  const auto v = ops::blockwise_zeros(300, StateMap::positive);
  CHECK_THROWS_WITH_AS(ops::adam8bit_steps({{x, Tensor::zeros({1}), m, v, {}, {}}}),
                       doctest::Contains("the gradient of shape [300]"), Error);
  CHECK_THROWS_WITH_AS(ops::adam8bit_steps({{x, x, v, m, {}, {}}}),
                       doctest::Contains("of its own map"), Error);
  CHECK_THROWS_WITH_AS(
      ops::adam8bit_steps({{x, x, ops::blockwise_zeros(10, StateMap::with_sign), v, {}, {}}}),
      doctest::Contains("the first moment of shape [300]"), Error);
  CHECK_THROWS_WITH_AS(ops::dequantize_blockwise(m, DType::i64),
                       doctest::Contains("dtype f32 or f64"), Error);
  CHECK_THROWS_WITH_AS(
      ops::quantize_blockwise(m.codes, StateMap::positive),
      doctest::Contains("[quantize_blockwise] expected x of dtype f32, f64 or bf16"), Error);
}

}  // namespace frugal::optim
