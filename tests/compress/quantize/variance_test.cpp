#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/packed_pass.h"
#include "compress/entropy/entropy.h"
#include "compress/quantize/quantize.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/linear_activation.h"
#include "tests/compress/quantize/samples.h"
#include "tests/unary_ops.h"

using namespace frugal;
using namespace frugal::compress;

TEST_CASE("the variance that a packed tensor tells is the mean squared error over draws") {
  constexpr int kDraws = 100;
  constexpr std::pair<int, Rounding> kCases[] = {
      {3, Rounding::stochastic}, {4, Rounding::stochastic}, {8, Rounding::stochastic},
      {1, Rounding::dithered},   {2, Rounding::dithered},   {4, Rounding::dithered}};
  for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
    for (const auto& each : kCases) {
      const int bits = each.first;
      const Rounding rounding = each.second;
      CAPTURE(static_cast<int>(rounding));
      CAPTURE(static_cast<int>(axis));
      CAPTURE(bits);
      const Shape shape{513, 5};
      const std::vector<float> x = normals(shape.numel(), 3, 2);
      std::vector<double> squares(x.size());
      Tensor told;
      for (uint64_t seed = 0; seed < kDraws; ++seed) {
        QuantizeOptions options;
        options.bits = bits;
        options.axis = axis;
        options.rounding = rounding;
        options.seed = seed;
        const PackedCase result = pack(Quantizer(options), x, shape, {});
        REQUIRE(result.packed->knows_variance());
        told = variance_of(*result.packed);
        const Tensor y = result.packed->unpack();
        for (size_t i = 0; i < x.size(); ++i) {
          const double error = static_cast<double>(y.data<float>()[i]) - static_cast<double>(x[i]);
          squares[i] += error * error / kDraws;
        }
      }
      REQUIRE(told.shape() == shape);
      double measured = 0, expected = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        measured += squares[i];
        expected += static_cast<double>(told.data<float>()[i]);
      }
      // Stochastic: values fall anywhere between two levels, but for the ends of each group's
      // range. Dithered: each of 256500 errors is uniform, whose square has a relative deviation of
      // sqrt(4 / 5).
      const bool dithered = rounding == Rounding::dithered;
      CHECK(measured == doctest::Approx(expected).epsilon(dithered ? 0.01 : 0.05));
    }
}

TEST_CASE("nothing is told where it is not known") {
  const Tensor x = Tensor::full({64, 4}, 1);
  QuantizeOptions nearest;
  nearest.rounding = Rounding::nearest;
  const auto packed = Quantizer(nearest).pack(x, {});
  CHECK(!packed->knows_variance());
  CHECK(!variance_of(*packed).defined());
  CHECK(!Quantizer().pack(Tensor::zeros({64, 4}, DType::f16), {})->knows_variance());
  const Tensor mask = Tensor::zeros({8, 4}, DType::u8);
  const Sign sign{mask, 0};
  SaveInfo info;
  info.sign = &sign;
  CHECK(!Quantizer().pack(x, info)->knows_variance());
  CHECK(variance_of(*Quantizer().pack(Tensor::zeros({0, 4}), {})).numel() == 0);
}

TEST_CASE("of bf16 it is what f32 has, rounded") {
  const Tensor x = ops::cast(Tensor::from(normals(300 * 5, 3, 2), {300, 5}), DType::bf16);
  const Tensor told = variance_of(*Quantizer().pack(x, {})),
               whole = variance_of(*Quantizer().pack(ops::cast(x, DType::f32), {}));
  REQUIRE(told.dtype() == DType::bf16);
  CHECK(told.to_vector() == ops::cast(whole, DType::bf16).to_vector());
}

TEST_CASE("gelu over codes: the bits of unpacking all, without its memory") {
  for (const GroupAxis axis : {GroupAxis::column, GroupAxis::row})
    for (const Rounding rounding : {Rounding::stochastic, Rounding::dithered})
      for (const auto& [kind, dtype] :
           {std::pair{Gelu::exact, DType::f32}, std::pair{Gelu::tanh, DType::f32},
            std::pair{Gelu::exact, DType::bf16}}) {
        const Shape shape{5, 601, 200};  // several slices, the last one short
        QuantizeOptions options;
        options.axis = axis;
        options.rounding = rounding;
        const Tensor values = Tensor::from(normals(shape.numel(), 3, 2), shape);
        const PackedCase c{Quantizer(options).pack(ops::cast(values, dtype), entry(1))};
        const Tensor x = c.packed->unpack(), variance = variance_of(*c.packed);
        const Tensor y = Tensor::empty(shape, dtype), dh = Tensor::empty(shape, dtype);
        const Tensor dy = Tensor::full(shape, 0.75, dtype);
        ops::gelu_into(kind, x, variance, y);
        ops::gelu_backward_into(kind, dy, x, variance, dh);
        const ops::Unary f = kind == Gelu::exact ? ops::Unary::gelu_exact : ops::Unary::gelu_tanh;
        allocator(kCpu).reset_peak();
        const int64_t before = allocator(kCpu).report().live_total;
        PackedPass forward{PackedPass::Map{f}}, backward{PackedPass::Map{f, dy}, dy};
        REQUIRE(c.packed->run(forward));
        REQUIRE(c.packed->run(backward));  // over dy
        CHECK(allocator(kCpu).report().peak_total - before < y.nbytes() + (3 << 19));
        CHECK(forward.out.to_vector() == y.to_vector());
        CHECK(dy.to_vector() == dh.to_vector());
      }
  QuantizeOptions nearest;
  nearest.rounding = Rounding::nearest;
  PackedPass pass{PackedPass::Map{ops::Unary::gelu_exact}};
  CHECK(!Quantizer(nearest).pack(Tensor::full({64, 4}, 1), {})->run(pass));
}

TEST_CASE("silu over codes, entropy-coded or not: the bits of unpacking all") {
  const Shape shape{700, 96};
  const Tensor x = Tensor::from(normals(shape.numel(), 3, 2), shape),
               dy = Tensor::full(shape, 0.75);
  const auto plain = Quantizer().pack(x, entry(1));
  const Entropy coder(std::make_shared<Quantizer>(), {-std::numeric_limits<double>::infinity(), 0});
  const auto coded = coder.pack(x, entry(1));
  REQUIRE(dynamic_cast<const EntropyCoded*>(coded.get()) != nullptr);
  const Tensor variance = variance_of(*plain), wide = plain->unpack();
  const Tensor y = ops::unary_estimate(ops::Unary::silu, wide, variance);
  const Tensor dx = ops::unary_backward_estimate(ops::Unary::silu, dy, wide, variance);
  for (const Packed* packed : {plain.get(), coded.get()}) {
    const Tensor value = run_over(*packed, {PackedPass::Map{ops::Unary::silu}});
    REQUIRE(value.defined());
    CHECK(value.to_vector() == y.to_vector());
    const Tensor gradient = run_over(*packed, {PackedPass::Map{ops::Unary::silu, dy}});
    REQUIRE(gradient.defined());
    CHECK(gradient.to_vector() == dx.to_vector());
    CHECK(!run_over(*packed, {PackedPass::Map{ops::Unary::tanh}}).defined());  // has no estimate
  }
}

TEST_CASE("each op that has an estimate is computed over codes, and no other op is") {
  const Shape shape{700, 96};
  const Tensor x = Tensor::from(normals(shape.numel(), 5), shape), dy = Tensor::full(shape, 0.75);
  const auto packed = Quantizer().pack(x, entry(2));
  const Tensor wide = packed->unpack(), variance = variance_of(*packed);
  for (const ops::Unary op : frugal_test::unary_ops()) {
    CAPTURE(ops::name_of(op));
    const Tensor value = run_over(*packed, {PackedPass::Map{op}}),
                 gradient = run_over(*packed, {PackedPass::Map{op, dy}});
    REQUIRE(value.defined() == ops::has_estimate(op));
    REQUIRE(gradient.defined() == ops::has_estimate(op));
    if (!value.defined()) continue;
    CHECK(value.to_vector() == ops::unary_estimate(op, wide, variance).to_vector());
    CHECK(gradient.to_vector() == ops::unary_backward_estimate(op, dy, wide, variance).to_vector());
  }
}

TEST_CASE("a pass over codes takes on meta what it takes on the CPU") {
  const Shape shape{4096, 256};
  const auto taken = [&](Device device, DType dtype = DType::f32) {
    const Tensor x = Tensor::zeros(shape, dtype, device);
    const auto packed = Quantizer().pack(x, {});
    const Tensor dy = Tensor::zeros(shape, dtype, device);
    Allocator& memory = allocator(device);
    memory.reset_peak();
    const int64_t before = memory.report().live_total;
    PackedPass pass{PackedPass::Map{ops::Unary::gelu_tanh, dy}, dy};
    CHECK(packed->run(pass));
    return memory.report().peak_total - before;
  };
  const int64_t real = taken(kCpu);
  CHECK(real > 0);
  CHECK(real < shape.numel() * 2);  // half of x
  CHECK(taken(kMeta) == real);
  CHECK(taken(kMeta, DType::bf16) == taken(kCpu, DType::bf16));
  const int before = num_threads();
  for (const int threads : {1, 3, 64}) {  // a plan holds on a machine with more of them
    set_num_threads(threads);
    CHECK(taken(kMeta) == real);
    CHECK(taken(kCpu) == real);
  }
  set_num_threads(before);
}

TEST_CASE("a pass over codes gives the same bits for every number of threads") {
  const int before = num_threads();
  for (const Shape& shape : {Shape{4096, 256}, Shape{400, 2100}, Shape{61, 200}, Shape{5, 3}}) {
    CAPTURE(shape);
    const PackedCase c = pack(Quantizer(), normals(shape.numel(), 3, 2), shape, entry(1));
    std::vector<double> first;
    for (const int threads : {1, 3, 64}) {
      set_num_threads(threads);
      PackedPass pass{PackedPass::Map{ops::Unary::gelu_tanh}};
      REQUIRE(c.packed->run(pass));
      const std::vector<double> y = pass.out.to_vector();
      if (first.empty()) first = y;
      CHECK(y == first);
    }
  }
  set_num_threads(before);
}
