// Packed weights on CUDA: the CPU's numbers to the bit, and products of several tiles.
#include "ops/dense/packed_matrix.h"

#include "ops/dense/copy.h"
#include "ops/dense/packed_linear.h"
#include "tests/cuda/compare.h"

namespace frugal {
namespace {

using ops::MatrixFormat;

constexpr MatrixFormat kFormats[] = {MatrixFormat::bf16, MatrixFormat::int8, MatrixFormat::nf4};

ops::PackedMatrix matrix_there(ops::PackedMatrix packed) {
  for (const auto& [ending, part] : packed.parts()) *part = gpu::there(*part);
  return packed;
}

}  // namespace

TEST_CASE("CUDA unpacks the CPU's numbers") {
  if (!gpu::available()) return;
  // Rows of the first do not begin with blocks or whole packs.
  for (const Shape& shape : {Shape{37, 45}, Shape{33, 128}}) {
    const Tensor w = Tensor::randn(shape, {5, 1});
    for (const MatrixFormat format : kFormats) {
      const ops::PackedMatrix packed = ops::pack_matrix(w, format), there = matrix_there(packed);
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
  const ops::PackedMatrix packed = ops::pack_matrix(w, MatrixFormat::nf4),
                          there = matrix_there(packed);
  const auto check_close = [](const Tensor& a, const Tensor& b) {
    // Sums of 1100 terms below 32 have 32 * 1100 roundings of 2^-24; the bound is 8 times that.
    CHECK(gpu::distance(a, b) < 2e-2);
  };
  check_close(ops::packed_linear(gpu::there(x), there, gpu::there(bias)),
              ops::packed_linear(x, packed, bias));
  check_close(ops::packed_linear_backward_input(gpu::there(dy), there),
              ops::packed_linear_backward_input(dy, packed));
}

}  // namespace frugal
