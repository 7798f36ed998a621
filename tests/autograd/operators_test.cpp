#include "autograd/operators.h"

#include <doctest/doctest.h>

#include <sstream>

#include "autograd/engine.h"

using namespace frugal;

namespace {

using V = std::vector<double>;

// The gradient of sum(f(x)) at x.
template <class F>
V gradient(const V& at, F f) {
  const Variable x(Tensor::from<double>(at, {static_cast<int64_t>(at.size())}), true);
  backward(sum(f(x)));
  return x.grad().to_vector();
}

}  // namespace

TEST_CASE("arithmetic of variables is differentiable") {
  const Tensor c = Tensor::of({3, 5}, DType::f64);
  using X = const Variable&;
  CHECK(gradient({2, 4}, [&](X x) { return x + x; }) == V{2, 2});
  CHECK(gradient({2, 4}, [&](X x) { return x - c; }) == V{1, 1});
  CHECK(gradient({2, 4}, [&](X x) { return c - x; }) == V{-1, -1});
  CHECK(gradient({2, 4}, [&](X x) { return x * x; }) == V{4, 8});
  CHECK(gradient({2, 4}, [&](X x) { return c * x; }) == V{3, 5});
  CHECK(gradient({2, 4}, [&](X x) { return x * c + c; }) == V{3, 5});
  CHECK(gradient({2, 4}, [&](X x) { return c / x; }) == V{-0.75, -0.3125});
  CHECK(gradient({2, 4}, [&](X x) { return x / Tensor::of({2, 8}, DType::f64); }) == V{0.5, 0.125});
  CHECK(gradient({2, 4}, [&](X x) { return x / x; }) == V{0, 0});
  CHECK(gradient({2, 4}, [&](X x) { return -x; }) == V{-1, -1});
  CHECK(gradient({2, 4}, [&](X x) { return 2 * x + 1; }) == V{2, 2});
  CHECK(gradient({2, 4}, [&](X x) { return 1 + x * 3 - 1; }) == V{3, 3});
  CHECK(gradient({2, 4}, [&](X x) { return 1 - x / 4; }) == V{-0.25, -0.25});
  CHECK(gradient({2, 4}, [&](X x) { return 8 / x; }) == V{-2, -0.5});
  const Variable x(Tensor::of({1, 2}));
  CHECK((8 / (1 - x / 2)).value().item(0) == 16);
}

TEST_CASE("comparison of variables gives tensors") {
  const Variable a(Tensor::of({1, 2, 3}), true), b(Tensor::of({3, 2, 1}));
  CHECK((a == b).to_vector() == V{0, 1, 0});
  CHECK((a != b.value()).to_vector() == V{1, 0, 1});
  CHECK((a.value() < b).to_vector() == V{1, 0, 0});
  CHECK((a >= 2).to_vector() == V{0, 1, 1});
  CHECK((2 > a).to_vector() == V{1, 0, 0});
  CHECK((a <= b).dtype() == DType::bool_);
}

TEST_CASE("indexing a variable is differentiable") {
  const Variable x(Tensor::of({{1, 2, 3}, {4, 5, 6}}), true);
  CHECK(x[1].shape() == Shape{3});
  CHECK(x[-1][0].value().item() == 4);
  backward(sum(x[1]) + 2 * x[0][-1]);
  CHECK(x.grad().to_vector() == V{0, 0, 2, 1, 1, 1});
  const Variable y(Tensor::of({{1, 2, 3}, {4, 5, 6}}), true);
  CHECK(select(y, 1, -2).value().to_vector() == V{2, 5});
  backward(sum(select(y, 1, -2)));
  CHECK(y.grad().to_vector() == V{0, 1, 0, 0, 1, 0});
  CHECK_THROWS_WITH_AS(x[2], doctest::Contains("[select] expected an index in [-2, 2)"), Error);
}

TEST_CASE("variables print with what made them") {
  const Variable x(Tensor::of({1, 2}), true);
  std::ostringstream out;
  out << x << '\n' << x + 1 << '\n' << Variable(Tensor::of({3}));
  CHECK(out.str() ==
        "[1., 2.]\n[2] f32 on cpu, requires grad\n[2., 3.]\n[2] f32 on cpu, by add_scalar\n"
        "[3.]\n[1] f32 on cpu");
  CHECK(fmt::format("{}", Variable()) == "an undefined variable");
}
