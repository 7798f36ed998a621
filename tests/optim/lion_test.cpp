
#include "ops/optimizer/lion.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {

TEST_CASE("Lion is program 1 of the paper, literally") {
  const double beta1 = 0.8, beta2 = 0.95, decay = 0.1, lr = 0.03;
  const int64_t n = 300;
  Variable p = Variable::parameter(normals({n}, 1, DType::f64));
  Lion lion(group(p, decay, 0.5), {.beta1 = beta1, .beta2 = beta2});
  std::vector<double> w = p.value().to_vector(), m(static_cast<size_t>(n), 0.0);
  for (int t = 0; t < 5; ++t) {
    Tensor g = normals({n}, 100 + static_cast<uint64_t>(t), DType::f64);
    g.mut<double>()[7] = 0;  // its sign is 0 in the first step
    for (size_t i = 0; i < w.size(); ++i) {
      const double gradient = g.item(static_cast<int64_t>(i));
      const double update = beta1 * m[i] + (1 - beta1) * gradient;
      const double sign = update > 0 ? 1 : update < 0 ? -1 : 0;
      w[i] -= 0.5 * lr * (sign + decay * w[i]);
      m[i] = beta2 * m[i] + (1 - beta2) * gradient;
    }
    p.set_grad(g);
    lion.step(lr);
    CHECK(relative_error(p.value(), w) < 1e-15);
    CHECK(lion.state()[1].first == "m/p");
    CHECK(relative_error(lion.state()[1].second, m) < 1e-15);
  }
}

TEST_CASE("8-bit Lion: the state is what the plain update and the codes make, literally") {
  const int64_t n = 700;
  const BlockwiseOptions state{.least_elements = 0, .seed = 5};
  Variable p = Variable::parameter(normals({n}, 1, DType::f32));
  Lion packed(group(p, 0.1), {.state = state});
  Tensor m = Tensor::zeros({n});
  for (int t = 0; t < 4; ++t) {
    CAPTURE(t);
    const Tensor value = ops::clone(p.value());
    const Tensor g = normals({n}, 100 + static_cast<uint64_t>(t), DType::f32);
    ops::lion_steps({{value, g, m, {0.02, 0.9, 0.99, 0.1}}});
    p.set_grad(g);
    packed.step(0.02);
    CHECK(p.value().to_vector() == value.to_vector());
    const ops::BlockwiseState codes =
        ops::quantize_blockwise(m, ops::StateMap::with_sign, rounding_key(state, "p", t + 1));
    m = ops::dequantize_blockwise(codes);
    const auto saved = packed.state();
    REQUIRE(saved.size() == 3);
    CHECK(saved[1].first == "m8/p");
    CHECK(saved[2].first == "m_scales/p");
    CHECK(saved[1].second.to_vector() == codes.codes.to_vector());
    CHECK(saved[2].second.to_vector() == codes.scales.to_vector());
  }
}

TEST_CASE("Lion: the same bits for every thread count, and after a restart") {
  const int64_t n = 70001;
  for (const bool is_packed : {false, true}) {
    CAPTURE(is_packed);
    LionOptions options;
    if (is_packed) options.state.emplace();
    std::vector<double> expected;
    for (const int threads : {1, 2, 3}) {
      const Threads scope(threads);
      Variable p = Variable::parameter(normals({n}, 1, DType::f32));
      Lion lion(group(p, 0.01), options);
      run_steps(lion, p, 0, 2, 0.01);
      Variable q = Variable::parameter(ops::clone(p.value()));
      Lion resumed(group(q, 0.01), options);
      resumed.load_state(lion.state());
      const std::vector<double> got = run_steps(lion, p, 2, 4, 0.01);
      CHECK(run_steps(resumed, q, 2, 4, 0.01) == got);
      if (expected.empty()) expected = got;
      CHECK(got == expected);
    }
  }
}

TEST_CASE("8-bit Lion: state takes 1.02 bytes an element, and less than 4096 stay as they were") {
  const int64_t n = 10000, before = optimizer_bytes();
  Variable big = Variable::parameter(normals({n}, 1, DType::f32));
  Variable small = Variable::parameter(normals({4095}, 1, DType::f32));
  Lion lion({{{{"w", big}, {"b", small}}, 1, 0}}, {.state = BlockwiseOptions()});
  for (Variable* p : {&big, &small}) p->set_grad(normals(p->shape(), 5, DType::f32));
  lion.step(0.1);
  // 10000 u8 and 40 f32, each rounded up to 64, and 4095 f32.
  CHECK(optimizer_bytes() - before == 10048 + 192 + 16384);
}

TEST_CASE("Lion with 8 bits comes as near to a minimum as with 32") {
  Variable p = Variable::parameter(Tensor::zeros({4352})),
           q = Variable::parameter(Tensor::zeros({4352}));
  Lion packed(group(p), {.state = BlockwiseOptions()}), plain(group(q), {});
  const double got = noisy_quadratic(packed, p, 0.003), wanted = noisy_quadratic(plain, q, 0.003);
  MESSAGE("mean loss with 8 bits ", got, ", with 32 ", wanted);
  CHECK(got < 1.05 * wanted);
}

TEST_CASE("Lion refuses betas outside [0, 1), and tensors that do not fit") {
  Variable p = Variable::parameter(normals({4}, 1, DType::f32));
  CHECK_THROWS_WITH_AS(Lion(group(p), {.beta1 = 1}),
                       doctest::Contains("[lion] expected betas in [0, 1), got 1"), Error);
  CHECK_THROWS_AS(Lion(group(p), {.state = BlockwiseOptions{.least_elements = -1}}), Error);
  const Tensor four = Tensor::zeros({4}), five = Tensor::zeros({5});
  CHECK_THROWS_AS(ops::lion_steps({{four, five, four, {}}}), Error);
  CHECK_THROWS_AS(ops::lion_steps({{four, four, five, {}}}), Error);
  CHECK_THROWS_AS(ops::lion8bit_steps(
                      {{four, four, ops::blockwise_zeros(5, ops::StateMap::with_sign), {}, {}}}),
                  Error);
}

}  // namespace frugal::optim
