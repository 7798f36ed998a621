// PackedPass::Sums and Combine over codes on the CPU: the bits of the same work on unpacked values.
#include <doctest/doctest.h>

#include "autograd/packed_pass.h"
#include "compress/quantize/quantize.h"
#include "ops/dense/copy.h"
#include "ops/simd/simd_loops.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

enum class Mask { none, in_codes, apart };

struct Case {
  Shape shape;  // [items, rows of an item, columns]
  QuantizeOptions options;
  Mask mask = Mask::none;
  int64_t chunk_rows = 64;
  bool in_place = false;
  Rows rows = {};
  DType dtype = DType::f32;
};

void check_passes(const Case& c) {
  CAPTURE(c.shape.str());
  CAPTURE(c.options.bits);
  CAPTURE(c.options.group);
  CAPTURE(static_cast<int>(c.options.rounding));
  CAPTURE(static_cast<int>(c.mask));
  CAPTURE(c.rows.begin);
  CAPTURE(name_of(c.dtype));
  const auto tensor = [&](const std::vector<float>& from, const Shape& shape) {
    return ops::cast(Tensor::from(from, shape), c.dtype);
  };
  const int64_t cols = c.shape.back();
  const std::vector<float> values = normals(c.shape.numel(), 7, 3);
  const Tensor bits = c.mask == Mask::none ? Tensor() : mask_of(values, c.shape, Bits::sign);
  const Quantizer codec(c.options);
  const Tensor x = tensor(values, c.shape);
  const std::unique_ptr<Packed> packed =
      c.mask == Mask::in_codes ? std::move(split_pack(codec, x, bits, 0, entry(3, 9)).packed.packed)
                               : codec.pack(x, entry(3, 9));
  const bool part = c.rows.of != 0;
  const int64_t begin = part ? c.rows.begin : 0, end = part ? c.rows.end : c.shape[0];
  Shape shape = c.shape;
  shape[0] = end - begin;
  const int64_t rows = shape.numel() / cols;
  const Tensor unpacked = packed->unpack_rows(begin, end);
  Tensor mask = bits;
  if (part && bits.defined()) mask = packed->unpack_sign_rows(begin, end);
  const uint8_t* m = mask.defined() ? mask.data<uint8_t>() : nullptr;
  const Tensor dy = tensor(normals(shape.numel(), 8), shape);
  const Tensor center = Tensor::from(normals(cols, 9), {cols});

  const int64_t chunks = (rows + c.chunk_rows - 1) / c.chunk_rows;
  const Tensor expected = Tensor::zeros({chunks, 2, cols}, DType::f32);
  const Tensor g = Tensor::zeros(shape, c.dtype);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t row = chunk * c.chunk_rows, n = std::min(c.chunk_rows, rows - row);
    float* sum = expected.mut<float>() + chunk * 2 * cols;
    ops::simd::chunk_gradients(
        ops::simd::input_of(dy, row * cols), m == nullptr ? m : m + row / 8 * cols,
        ops::simd::input_of(unpacked, row * cols), center.data<float>(),
        ops::simd::output_of(g, cols).from(row * cols), sum, sum + cols, n, cols);
  }
  const Tensor y = c.in_place ? tensor(normals(shape.numel(), 8), shape) : dy;
  const Tensor out = c.in_place ? y : Tensor::zeros(shape, c.dtype);
  const Tensor partial = Tensor::full({chunks, 2, cols}, 5, DType::f32);
  PackedPass sums{PackedPass::Sums{y, center, partial, c.chunk_rows}, out, c.rows};
  sums.mask.in_codes = c.mask == Mask::in_codes;
  if (c.mask == Mask::apart) sums.mask.bits = bits;
  REQUIRE(packed->run(sums));
  CHECK(same_bytes(partial, expected));
  CHECK(same_bytes(out, g));

  const Tensor k = Tensor::from(normals(4 * cols, 10), {4, cols});
  const float* a = k.data<float>();
  const Tensor dx = Tensor::zeros(shape, c.dtype);
  ops::simd::input_gradient(ops::simd::input_of(dy, 0), m, ops::simd::input_of(unpacked, 0),
                            {a, a + cols, a + 2 * cols, a + 3 * cols},
                            ops::simd::output_of(dx, cols), rows, cols);
  const Tensor again = c.in_place ? tensor(normals(shape.numel(), 8), shape) : dy;
  PackedPass combine{PackedPass::Combine{again, k}, c.in_place ? again : Tensor(), c.rows};
  combine.mask = sums.mask;
  REQUIRE(packed->run(combine));
  CHECK(same_bytes(combine.out, dx));
}

}  // namespace

TEST_CASE("passes by column give the bits of unpacked values on every instruction set") {
  Targets restore;
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    use_simd_target(target);
    for (const Shape& shape : {Shape{2, 64, 16}, Shape{3, 104, 24}, Shape{4, 72, 64},
                               Shape{2, 40, 91}, Shape{1, 72, 200}})
      for (int bits : {1, 2, 3, 4, 5, 8, 11})
        for (Rounding rounding : {Rounding::stochastic, Rounding::dithered}) {
          const QuantizeOptions options{bits, bits % 2 == 0 ? 256 : 24, GroupAxis::column, rounding,
                                        5};
          for (DType dtype : {DType::f32, DType::bf16}) {
            check_passes({shape, options, Mask::none, 64, false, {}, dtype});
            check_passes({shape, options, Mask::apart, 512, true, {}, dtype});
            if (bits > 1) check_passes({shape, options, Mask::in_codes, 32, true, {}, dtype});
            if (bits == 4) check_passes({shape, options, Mask::in_codes, 8, false, {}, dtype});
          }
        }
  }
}

TEST_CASE("passes by column take a part of the rows, and a last block of fewer than 8") {
  const QuantizeOptions dithered{4, 256, GroupAxis::column, Rounding::dithered, 5};
  for (DType dtype : {DType::f32, DType::bf16}) {
    check_passes({{9, 8, 40}, dithered, Mask::in_codes, 16, false, {2, 7, 9}, dtype});
    check_passes({{9, 40, 33}, dithered, Mask::none, 80, true, {4, 9, 9}, dtype});
    check_passes({{1, 203, 48}, dithered, Mask::none, 64, false, {}, dtype});
    check_passes({{11, 7, 17}, {3, 16}, Mask::none, 8, true, {}, dtype});
  }
}

TEST_CASE("passes by column are left to the caller where rows are narrow or groups are shared") {
  const auto runs = [](const Shape& shape, GroupAxis axis, DType dtype) {
    const Tensor x = Tensor::zeros(shape, dtype);
    const auto packed = Quantizer({4, 64, axis}).pack(x, entry(0));
    const int64_t cols = shape.back();
    PackedPass pass{PackedPass::Combine{x, Tensor::zeros({4, cols}, DType::f32)}};
    return packed->run(pass);
  };
  CHECK(runs({64, 16}, GroupAxis::column, DType::f32));
  CHECK_FALSE(runs({64, 15}, GroupAxis::column, DType::f32));
  CHECK_FALSE(runs({64, 16}, GroupAxis::row, DType::f32));
  CHECK_FALSE(runs({64, 16}, GroupAxis::column, DType::f64));
}
