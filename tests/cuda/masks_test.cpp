// Where bits are the contract: masks, dropped elements, indices of windows and maxima. Odd extents,
// several blocks, both layouts of masks.
#include <cmath>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/dropout.h"
#include "ops/dense/elu.h"
#include "ops/dense/reduce.h"
#include "ops/image/pool2d.h"
#include "ops/image/window_codes.h"
#include "tests/cuda/compare.h"

namespace frugal {
namespace {

using gpu::there;

// U[-1, 1), in whole sixteenths so that there are ties, and what is not finite if asked for.
Tensor sixteenths(const Shape& shape, bool special = false) {
  const Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    x.mut<float>()[i] = std::floor(32 * uniform({5, 0}, at)) / 16 - 1;
    if (!special) continue;
    const float most = std::numeric_limits<float>::infinity();
    if (i % 13 == 4) x.mut<float>()[i] = i % 2 == 0 ? most : -most;
    if (i % 17 == 3) x.mut<float>()[i] = std::numeric_limits<float>::quiet_NaN();
    if (i % 19 == 2) x.mut<float>()[i] = -0.0f;
  }
  return x;
}

// Checks that all numbers are equal, where NaN equals NaN.
void check_same_numbers(const Tensor& expected, const Tensor& got) {
  CHECK(gpu::distance(got, expected) == 0);
}

const std::vector<Shape> kMaskShapes{{1},     {0, 2},   {3, 5},     {8, 3},    {16, 8}, {4, 6},
                                     {7, 40}, {40, 24}, {1000, 16}, {2, 4, 5}, {24, 40}};

}  // namespace

TEST_CASE("masks on CUDA have the CPU's bits") {
  if (!gpu::available()) return;
  for (const Shape& shape : kMaskShapes)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(shape);
      CAPTURE(name_of(dtype));
      const Tensor x = sixteenths(shape, true), on = there(x, dtype);
      const auto same = [&](const ops::Rectified& a, const ops::Rectified& b) {
        check_same_numbers(a.y, b.y);
        check_same_numbers(a.mask, b.mask);
        check_same_numbers(ops::select_by_mask(x, a.mask, 0.25),
                           ops::select_by_mask(on, b.mask, 0.25));
      };
      same(ops::rectify(x, 0.5, true), ops::rectify(on, 0.5, true));
      same(ops::clamp(x, -0.5, 0.25, true), ops::clamp(on, -0.5, 0.25, true));
      check_same_numbers(ops::rectify(x, 0, false).y, ops::rectify(on, 0, false).y);
      check_same_numbers(ops::elu(x, true).mask, ops::elu(on, true).mask);
    }
}

TEST_CASE("dropout on CUDA drops what the CPU drops") {
  if (!gpu::available()) return;
  for (const int64_t n : {1, 7, 64, 1003, 40000}) {
    const Tensor x = Tensor::full({n}, 0.5);
    const RngKey key{77, 5};
    check_same_numbers(ops::dropout(x, 0.5, key), ops::dropout(there(x), 0.5, key));
    check_same_numbers(ops::dropout(x, 0.5, key), ops::dropout(there(x, DType::bf16), 0.5, key));
    const Tensor inplace = there(x);
    ops::dropout_inplace(inplace, 0.3, key);
    check_same_numbers(ops::dropout(x, 0.3, key), inplace);
    CHECK(ops::dropout(there(x), 1, key).to_vector() ==
          std::vector<double>(static_cast<size_t>(n), 0));
  }
}

TEST_CASE("windows' and maxima's positions on CUDA are the CPU's") {
  if (!gpu::available()) return;
  for (const int64_t c : {3, 16})
    for (const auto& [height, width] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {2, 2}, {3, 3}, {17, 17}}) {
      CAPTURE(c);
      CAPTURE(height);
      CAPTURE(width);
      const Tensor x = sixteenths({2, 19, 18, c}, true);
      const Pool2dOptions options{{height, width}, {2, 1}, {height / 2, 0}, true};
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const auto a = ops::max_pool2d(x, options), b = ops::max_pool2d(there(x, dtype), options);
        check_same_numbers(a.y, b.y);
        check_same_numbers(a.index, b.index);
        if (const int bits = ops::window_index_bits(std::min<int64_t>(a.cells, 256)); bits < 8) {
          const Tensor packed = ops::pack_window_index(b.index, bits);
          check_same_numbers(ops::pack_window_index(a.index, bits), packed);
          check_same_numbers(a.index, ops::unpack_window_index(packed, bits, a.index.shape()));
        }
        const Tensor dy = sixteenths(a.y.shape());
        if (dtype == DType::f32)
          check_same_numbers(ops::max_pool2d_backward(dy, a.index, x.shape(), options),
                             ops::max_pool2d_backward(there(dy), b.index, x.shape(), options));
      }
    }
  for (const Shape& shape : {Shape{3, 5}, Shape{2, 600, 3}, Shape{700, 33}, Shape{1, 3000}})
    for (int axis = 0; axis < shape.dim(); ++axis)
      for (const bool special : {false, true}) {
        CAPTURE(shape);
        CAPTURE(axis);
        const Tensor x = sixteenths(shape, special);
        const auto a = ops::max(x, axis), b = ops::max(there(x), axis);
        check_same_numbers(a.values, b.values);
        check_same_numbers(a.indices, b.indices);
        check_same_numbers(ops::argmax(x, axis), ops::argmax(there(x, DType::bf16), axis));
        const Tensor dy = sixteenths(a.values.shape());
        check_same_numbers(ops::max_backward(dy, a.indices, shape, axis),
                           ops::max_backward(there(dy), b.indices, shape, axis));
      }
}

}  // namespace frugal
