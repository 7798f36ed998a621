// Packed weights on CUDA: the CPU's numbers to the bit, and products of several tiles.
#include "ops/dense/packed_matrix.h"

#include <cmath>

#include "ops/dense/copy.h"
#include "ops/dense/packed_linear.h"
#include "tests/cuda/gpu.h"

using namespace frugal;
using ops::MatrixFormat;

namespace {

constexpr MatrixFormat kFormats[] = {MatrixFormat::bf16, MatrixFormat::int8, MatrixFormat::nf4};

ops::PackedMatrix on_cuda(ops::PackedMatrix packed) {
  for (const auto& [ending, part] : packed.parts()) *part = to_device(*part, gpu::kCuda);
  return packed;
}

}  // namespace

TEST_CASE("CUDA unpacks the CPU's numbers") {
  if (!gpu::available()) return;
  // Rows of the first do not begin with blocks or whole packs.
  for (const Shape& shape : {Shape{37, 45}, Shape{33, 128}}) {
    const Tensor w = Tensor::randn(shape, {5, 1});
    for (const MatrixFormat format : kFormats) {
      const ops::PackedMatrix packed = ops::pack_matrix(w, format), there = on_cuda(packed);
      for (const ops::Tile& tile :
           {ops::Tile{0, shape[0], 0, shape[1]}, {3, 5, 7, 30}, {2, 4, 8, 32}, {32, 1, 44, 1}})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          CAPTURE(ops::name_of(format));
          CAPTURE(shape);
          CAPTURE(tile.column);
          CHECK(ops::unpack_tile(there, tile, dtype).to_vector() ==
                ops::unpack_tile(packed, tile, dtype).to_vector());
        }
    }
  }
}

TEST_CASE("CUDA's packed products of several tiles agree with the CPU's") {
  if (!gpu::available()) return;
  const int64_t rows = 3, out = 1100, in = 1030;
  const Tensor w = Tensor::randn({out, in}, {6, 1}), x = Tensor::randn({rows, in}, {6, 2}),
               dy = Tensor::randn({rows, out}, {6, 3}), bias = Tensor::randn({out}, {6, 4});
  const ops::PackedMatrix packed = ops::pack_matrix(w, MatrixFormat::nf4), there = on_cuda(packed);
  const auto moved = [](const Tensor& t) { return to_device(t, gpu::kCuda); };
  const auto check_close = [](const Tensor& a, const Tensor& b) {
    REQUIRE(a.shape() == b.shape());
    const std::vector<double> left = a.to_vector(), right = b.to_vector();
    double most = 0;
    for (size_t i = 0; i < left.size(); ++i) most = std::max(most, std::fabs(left[i] - right[i]));
    CHECK(most < 2e-2);  // sums of 1100 terms below 32: 32 * 1100 roundings of 2^-24, times 8
  };
  check_close(ops::packed_linear(moved(x), there, moved(bias)),
              ops::packed_linear(x, packed, bias));
  check_close(ops::packed_linear_backward_input(moved(dy), there),
              ops::packed_linear_backward_input(dy, packed));
}
