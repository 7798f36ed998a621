
#include "ops/optimizer/sgd8bit.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {

TEST_CASE("8-bit SGD: the first step is SGD's, bit for bit, and later ones stay near") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool nesterov : {false, true}) {
      Variable p = Variable::parameter(normals({5000}, 1, dtype));
      Variable q = Variable::parameter(normals({5000}, 1, dtype));
      const SgdOptions options{0.9, nesterov};
      Sgd8bit packed(group(p, 0.01), {options});
      Sgd plain(group(q, 0.01), options);
      CHECK(run_steps(packed, p, 0, 1, 0.01) == run_steps(plain, q, 0, 1, 0.01));
      CHECK(run_steps(packed, p, 1, 2, 0.01) != run_steps(plain, q, 1, 2, 0.01));
      run_steps(packed, p, 2, 20, 0.01);
      const std::vector<double> wanted = run_steps(plain, q, 2, 20, 0.01);
      CHECK(relative_error(p.value(), wanted) < 0.01);
    }
}

TEST_CASE("8-bit SGD: the state is what the plain update and the codes make, literally") {
  const int64_t n = 700;
  const double momentum = 0.8, decay = 0.1, lr = 0.2;
  Variable p = Variable::parameter(normals({n}, 1, DType::f32));
  const BlockwiseOptions state{.least_elements = 0, .seed = 5};
  Sgd8bit packed(group(p, decay), {{momentum, true}, state});
  Tensor velocity = Tensor::zeros({n});
  for (int t = 0; t < 4; ++t) {
    CAPTURE(t);
    const Tensor value = ops::clone(p.value());
    const Tensor g = normals({n}, 100 + static_cast<uint64_t>(t), DType::f32);
    for (int64_t i = 0; i < n; ++i) {
      const float total = g.data<float>()[i] + static_cast<float>(decay) * value.data<float>()[i];
      float& v = velocity.mut<float>()[i];
      v = static_cast<float>(momentum) * v + total;
      value.mut<float>()[i] -= static_cast<float>(lr) * (total + static_cast<float>(momentum) * v);
    }
    p.set_grad(g);
    packed.step(lr);
    CHECK(p.value().to_vector() == value.to_vector());
    const ops::BlockwiseState codes = ops::quantize_blockwise(velocity, ops::StateMap::with_sign,
                                                              rounding_key(state, "p", t + 1));
    velocity = ops::dequantize_blockwise(codes);
    const auto saved = packed.state();
    REQUIRE(saved.size() == 3);
    CHECK(saved[0].first == "steps/p");
    CHECK(saved[1].first == "momentum8/p");
    CHECK(saved[2].first == "momentum_scales/p");
    CHECK(saved[1].second.to_vector() == codes.codes.to_vector());
    CHECK(saved[2].second.to_vector() == codes.scales.to_vector());
  }
}

TEST_CASE("8-bit SGD converges as SGD does") {
  const Shape shape{4352};
  Variable p = Variable::parameter(Tensor::zeros(shape)),
           q = Variable::parameter(Tensor::zeros(shape));
  Sgd8bit packed(group(p), {});
  Sgd plain(group(q), {});
  const double got = noisy_quadratic(packed, p, 0.05), wanted = noisy_quadratic(plain, q, 0.05);
  MESSAGE("mean loss with 8 bits ", got, ", with 32 ", wanted);
  CHECK(wanted < 0.02);
  CHECK(got < 1.02 * wanted);
}

TEST_CASE("8-bit SGD: a small velocity fades beside a large one when its gradient stops") {
  // The step from 0.9 v to v is less than half the distance of two numbers of the map here, so
  // rounding to the nearest would keep v for ever.
  const int64_t n = 4096;
  Variable p = Variable::parameter(Tensor::zeros({n}));
  Sgd8bit sgd(group(p), {});
  for (int t = 0; t < 60; ++t) {
    Tensor g = Tensor::full({n}, t == 0 ? 0.0115 : 0.0);
    for (int64_t block = 0; block < n / 256; ++block)
      g.mut<float>()[block * 256] = t == 0 ? 1 : 0.1f;
    p.set_grad(g);
    sgd.step(1);
  }
  // The sum of the velocities of an element is -p: 0.0115 / (1 - 0.9).
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum -= i % 256 == 0 ? 0 : p.value().item(i);
  CHECK(sum / static_cast<double>(n - n / 256) == doctest::Approx(0.115).epsilon(0.03));
}

TEST_CASE("8-bit SGD: state takes 1.02 bytes an element, and less than 4096 stay as they were") {
  const int64_t n = 10000, before = optimizer_bytes();
  Variable big = Variable::parameter(normals({n}, 1, DType::f32));
  Variable small = Variable::parameter(normals({4095}, 1, DType::f32));
  Variable named = Variable::parameter(normals({n}, 1, DType::f32));
  Sgd8bit sgd({{{{"w", big}, {"b", small}, {"wte.weight", named}}, 1, 0}},
              {.state = {.full_precision = {"wte."}}});
  for (Variable* p : {&big, &small, &named}) p->set_grad(normals(p->shape(), 5, DType::f32));
  const auto step_leaf = [&](const Variable& p) {
    const int64_t had = optimizer_bytes();
    CHECK(sgd.step_leaf(*p.accumulator(), 0.1));
    return optimizer_bytes() - had;
  };
  // 10000 u8 and 40 f32, each rounded up to 64.
  CHECK(step_leaf(big) == 10048 + 192);
  CHECK(step_leaf(small) == 16384);
  CHECK(step_leaf(named) == 40000);
  CHECK(optimizer_bytes() - before == 10048 + 192 + 16384 + 40000);
}

TEST_CASE("8-bit SGD: the same bits for every thread count, and after a restart") {
  const int64_t n = 70001;
  std::vector<double> expected;
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    Variable p = Variable::parameter(normals({n}, 1, DType::f32));
    Sgd8bit sgd(group(p, 0.01), {});
    run_steps(sgd, p, 0, 2, 0.01);
    Variable q = Variable::parameter(ops::clone(p.value()));
    Sgd8bit resumed(group(q, 0.01), {});
    resumed.load_state(sgd.state());
    const std::vector<double> got = run_steps(sgd, p, 2, 4, 0.01);
    CHECK(run_steps(resumed, q, 2, 4, 0.01) == got);
    if (threads == 1) expected = got;
    CHECK(got == expected);
  }
}

TEST_CASE("8-bit SGD refuses impossible options and tensors") {
  CHECK_THROWS_WITH_AS(Sgd8bit({}, {.state = {.least_elements = -1}}),
                       doctest::Contains("[sgd8bit] expected least_elements of at least 0"), Error);
  for (const double momentum : {0.0, 1.0, -0.1})
    CHECK_THROWS_WITH_AS(Sgd8bit({}, {.sgd = {.momentum = momentum}}),
                         doctest::Contains("[sgd8bit] expected a momentum in (0, 1)"), Error);
  // A state in full precision is not one in 8 bits.
  Variable p = Variable::parameter(normals({5000}, 1, DType::f32));
  Sgd8bit whole(group(p), {.state = {.full_precision = {"p"}}});
  run_steps(whole, p, 0, 1, 0.1);
  Sgd8bit packed(group(p), {});
  CHECK_THROWS_WITH_AS(packed.load_state(whole.state()),
                       doctest::Contains("'momentum8/p', got none"), Error);
  const Tensor x = Tensor::zeros({300});
  const auto v = ops::blockwise_zeros(300, ops::StateMap::with_sign);
  CHECK_THROWS_WITH_AS(ops::sgd8bit_steps({{x, Tensor::zeros({1}), v, {}, {}}}),
                       doctest::Contains("[sgd8bit] expected the gradient of shape [300]"), Error);
  CHECK_THROWS_WITH_AS(
      ops::sgd8bit_steps({{x, x, ops::blockwise_zeros(300, ops::StateMap::positive), {}, {}}}),
      doctest::Contains("of its own map"), Error);
  CHECK_THROWS_WITH_AS(
      ops::sgd8bit_steps({{x, x, ops::blockwise_zeros(10, ops::StateMap::with_sign), {}, {}}}),
      doctest::Contains("[sgd8bit] expected the velocity of shape [300]"), Error);
}

}  // namespace frugal::optim
