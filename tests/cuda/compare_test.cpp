// Comparison, arithmetic by operators, and printing of tensors on CUDA.
#include <cmath>
#include <vector>

#include "core/print.h"
#include "ops/dense/copy.h"
#include "ops/dense/operators.h"
#include "tests/cuda/compare.h"

namespace frugal {
namespace {

using gpu::there;

void check_comparisons(const Tensor& a, const Tensor& b) {
  using ops::Compare;
  for (const Compare op :
       {Compare::eq, Compare::ne, Compare::lt, Compare::le, Compare::gt, Compare::ge}) {
    const Tensor got = ops::compare(op, there(a), there(b));
    CHECK(got.dtype() == DType::bool_);
    CHECK(got.to_vector() == ops::compare(op, a, b).to_vector());
  }
}

}  // namespace

TEST_CASE("comparison on CUDA is the CPU's, for every dtype and broadcast") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    CAPTURE(name_of(dtype));
    const auto some = [&](const Shape& shape, uint64_t seed) {
      return ops::cast(Tensor::rand(shape, {seed, 0}) * 4, dtype);
    };
    check_comparisons(some({300, 7}, 1), some({300, 7}, 2));
    check_comparisons(some({300, 7}, 1), some({7}, 2));
    check_comparisons(some({300, 1}, 1), some({1, 7}, 2));
  }
  check_comparisons(Tensor::of({NAN, 1, INFINITY}), Tensor::of({NAN, NAN, INFINITY}));
  CHECK((there(Tensor::of({1, 2, 3})) > 1.5).to_vector() == std::vector<double>{0, 1, 1});
  CHECK((there(Tensor::of({1, 2}, DType::i64)) == 2).to_vector() == std::vector<double>{0, 1});
}

TEST_CASE("operators and printing on CUDA") {
  if (!gpu::available()) return;
  const Tensor x = there(Tensor::of({{1, 2}, {3, 4}}));
  CHECK((1 - x / 2).to_vector() == std::vector<double>{0.5, 0, -0.5, -1});
  CHECK((12 / x).to_vector() == std::vector<double>{12, 6, 4, 3});
  CHECK(to_string(x.transpose(0, 1)) == "[[1., 3.],\n [2., 4.]]\n[2, 2] f32 on cuda:0");
  CHECK(Tensor::rand({5}, {1, 0}, DType::f32, gpu::kCuda).to_vector() ==
        Tensor::rand({5}, {1, 0}).to_vector());
}

}  // namespace frugal
