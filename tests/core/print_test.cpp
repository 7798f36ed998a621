#include "core/print.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <sstream>

using namespace frugal;

namespace {

// What stands before the last line, which describes the tensor.
std::string body(const Tensor& x, const PrintOptions& options = {}) {
  const std::string text = to_string(x, options);
  return text.substr(0, text.rfind('\n'));
}

}  // namespace

// The expected texts are what PyTorch 1.13 prints between "tensor(" and ")", without its indent.
TEST_CASE("tensors print in PyTorch's layout") {
  CHECK(to_string(Tensor::of({{1, 2}, {3, 4}})) == "[[1., 2.],\n [3., 4.]]\n[2, 2] f32 on cpu");
  CHECK(body(Tensor::of({{1, 2.5}, {-3, 4}})) == "[[ 1.0000,  2.5000],\n [-3.0000,  4.0000]]");
  CHECK(body(Tensor::of({0.5, 1000, 2})) == "[5.0000e-01, 1.0000e+03, 2.0000e+00]");
  CHECK(body(Tensor::of({1, 1e9})) == "[1.0000e+00, 1.0000e+09]");
  CHECK(body(Tensor::of({1e-5, 2e-5})) == "[1.0000e-05, 2.0000e-05]");
  CHECK(body(Tensor::of({0, 100})) == "[  0., 100.]");
  CHECK(body(Tensor::of({0, 0})) == "[0., 0.]");
  CHECK(to_string(Tensor::of(1.5)) == "1.5000\n[] f32 on cpu");
  CHECK(body(Tensor::of({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}})) ==
        "[[[1., 2.],\n  [3., 4.]],\n\n [[5., 6.],\n  [7., 8.]]]");
}

TEST_CASE("every dtype prints") {
  CHECK(body(Tensor::of({1, -20, 3}, DType::i64)) == "[  1, -20,   3]");
  CHECK(body(Tensor::of({1, 2}, DType::i32)) == "[1, 2]");
  CHECK(body(Tensor::of({1, 255}, DType::u8)) == "[  1, 255]");
  CHECK(body(Tensor::of({1, 0}, DType::bool_)) == "[ True, False]");
  CHECK(body(Tensor::of({1, 0.5}, DType::bf16)) == "[1.0000, 0.5000]");
  CHECK(body(Tensor::of({1, 0.5}, DType::f16)) == "[1.0000, 0.5000]");
  CHECK(body(Tensor::of({1, 0.5}, DType::f64)) == "[1.0000, 0.5000]");
  // Beyond what a double holds.
  CHECK(body(Tensor::from<int64_t>({INT64_MAX}, {1})) == "[9223372036854775807]");
}

TEST_CASE("values that are not finite print, and do not choose the notation") {
  const double inf = INFINITY;
  CHECK(body(Tensor::of({1, inf, -inf, NAN})) == "[  1.,  inf, -inf,  nan]");
  CHECK(body(Tensor::of({NAN, inf})) == "[nan, inf]");
}

TEST_CASE("large tensors are shortened, long rows are wrapped") {
  CHECK(body(Tensor::arange(0, 1001)) == "[   0.,    1.,    2.,  ...,  998.,  999., 1000.]");
  const std::string wrapped = body(Tensor::arange(0, 30));
  CHECK(wrapped.substr(0, wrapped.find('\n')).size() <= 80);
  CHECK(wrapped.find("15.,\n 16.") != std::string::npos);
  CHECK(wrapped.find(" 0.,  1.,") == 1);
  const Tensor wide = Tensor::zeros({50, 40});
  CHECK(body(wide) ==
        "[[0., 0., 0.,  ..., 0., 0., 0.],\n [0., 0., 0.,  ..., 0., 0., 0.],\n"
        " [0., 0., 0.,  ..., 0., 0., 0.],\n ...,\n [0., 0., 0.,  ..., 0., 0., 0.],\n"
        " [0., 0., 0.,  ..., 0., 0., 0.],\n [0., 0., 0.,  ..., 0., 0., 0.]]");
  CHECK(body(Tensor::arange(0, 5), {.threshold = 4, .edge = 1}) == "[0.,  ..., 4.]");
  CHECK(body(Tensor::of({0.123456}), {.precision = 2}) == "[0.12]");
  CHECK_THROWS_WITH_AS(to_string(wide, {.edge = 0}), doctest::Contains("[print] expected"), Error);
}

TEST_CASE("what has no values has a text, too") {
  CHECK(to_string(Tensor()) == "an undefined tensor");
  CHECK(to_string(Tensor::zeros({0, 3})) == "[]\n[0, 3] f32 on cpu");
  CHECK(to_string(Tensor::zeros({2, 3}, DType::f32, kMeta)) ==
        "a tensor without values, [2, 3] f32 on meta");
}

TEST_CASE("views print their own elements, through streams and fmt") {
  const Tensor t = Tensor::of({{1, 2}, {3, 4}}).transpose(0, 1);
  std::ostringstream out;
  out << t;
  CHECK(out.str() == "[[1., 3.],\n [2., 4.]]\n[2, 2] f32 on cpu");
  CHECK(fmt::format("{}", t) == out.str());
}
