// Batch, layer and group norm on CUDA beside the CPU's, where the op table does not reach: several
// blocks, wide rows, channels and rows that fill no vector and no byte, bits of masks, slices.
#include "ops/image/batch_norm.h"
#include "ops/image/group_norm.h"
#include "ops/sequence/layer_norm.h"
#include "tests/cuda/compare.h"

namespace frugal::ops {
namespace {

using gpu::here, gpu::near, gpu::rounded, gpu::there, gpu::tolerance;

const std::vector<Shape> kImages{{2, 3, 7, 1}, {9, 3},      {3, 5, 7, 7},   {2, 40, 40, 3},
                                 {1100, 64},   {130, 2048}, {8, 16, 16, 8}, {2100, 512}};

}  // namespace

TEST_CASE("batch norm on CUDA: statistics") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kImages) {
      CAPTURE(shape.str());
      const Tensor x = rounded(shape, 1, 2, 0.5);
      const int64_t c = shape.back();
      const Tensor mean = Tensor::full({c}, 0.25), var = Tensor::full({c}, 0.75);
      const Tensor there_mean = there(mean), there_var = there(var);
      const BatchNormMoments expected = batch_norm_moments(x, mean, var, {});
      const BatchNormMoments got = batch_norm_moments(there(x, dtype), there_mean, there_var, {});
      CHECK(got.mean.dtype() == DType::f32);
      CHECK(near(got.mean, expected.mean, 2e-6));
      CHECK(near(got.invstd, expected.invstd, 2e-6));
      CHECK(near(there_mean, mean, 2e-6));
      CHECK(near(there_var, var, 4e-6));
      const BatchNormMoments running = batch_norm_running(there_mean, there_var, 1e-5);
      CHECK(near(running.invstd, batch_norm_running(mean, var, 1e-5).invstd, 2e-6));
    }
  // A mean far from 0 takes no digits from the variance.
  const Tensor far = normals({900, 5}, 3, DType::f32, 0.01, 100);
  const BatchNormMoments exact = batch_norm_moments(cast(far, DType::f64), {}, {}, {});
  CHECK(near(batch_norm_moments(there(far), {}, {}, {}).invstd, exact.invstd, 1e-5));
}

TEST_CASE("batch norm on CUDA: values, masks and gradients") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kImages)
      for (const bool with_residual : {false, true}) {
        CAPTURE(shape.str());
        const int64_t c = shape.back();
        const Tensor x = rounded(shape, 1), dy = rounded(shape, 2);
        const Tensor residual = with_residual ? rounded(shape, 3) : Tensor();
        const BatchNormParameters p{normals({c}, 4), normals({c}, 5)};
        const BatchNormMoments m = batch_norm_moments(x, {}, {}, {});
        const BatchNormParameters q{there(p.weight), there(p.bias)};
        const BatchNormMoments n{there(m.mean), there(m.invstd)};
        const Tensor u = there(x, dtype), r = there(residual, dtype);
        const BatchNormOutput expected = batch_norm_apply(x, m, p, residual, true, true);
        const BatchNormOutput got = batch_norm_apply(u, n, q, r, true, true);
        CHECK(near(got.y, expected.y, tolerance(dtype)));
        const Tensor again = batch_norm_by_mask(u, n, q, r, got.mask);
        CHECK(same_bits(here(again), here(got.y)));
        const Tensor linear = batch_norm_apply(u, n, q, r, false, false).y;
        CHECK(near(linear, batch_norm_apply(x, m, p, residual, false, false).y, tolerance(dtype)));
        if (dtype == DType::f32) CHECK(error(got.mask, expected.mask.to_vector()) == 0);
        for (const bool training : {true, false}) {
          const Tensor mask = there(expected.mask);
          const BatchNormGradients e =
              batch_norm_backward(dy, x, m, p, expected.mask, training, with_residual);
          const BatchNormGradients g =
              batch_norm_backward(there(dy, dtype), u, n, q, mask, training, with_residual);
          const BatchNormGradients over =
              batch_norm_backward(there(dy, dtype), u, n, q, mask, training, with_residual, true);
          CHECK(g.dweight.dtype() == DType::f32);
          CHECK(near(g.dx, e.dx, tolerance(dtype)));
          CHECK(near(g.dweight, e.dweight, 2e-5));
          CHECK(near(g.dbias, e.dbias, 2e-5));
          if (with_residual) CHECK(near(g.dresidual, e.dresidual, 0));
          CHECK(same_bits(here(over.dx), here(g.dx)));
        }
        if (!with_residual) continue;
        const BatchNormOutput over = batch_norm_apply(u, n, q, r, true, true, true);
        CHECK(same_bits(here(over.y), here(got.y)));
        CHECK(same_bits(here(over.mask), here(got.mask)));
      }
}

TEST_CASE("batch norm on CUDA: gradients from slices have the bits of the whole") {
  if (!gpu::available()) return;
  const Shape shape{40, 8, 8, 16};
  const Tensor x = there(normals(shape, 1)), dy = there(normals(shape, 2));
  const BatchNormMoments m = batch_norm_moments(x, {}, {}, {});
  const Tensor mask = batch_norm_apply(x, m, {}, {}, true, true).mask;
  const int64_t unit = batch_norm_slice_unit(shape, gpu::kCuda);
  const BatchNormSlice xs = [&](int64_t a, int64_t b) { return x.slice(0, a, b); };
  const BatchNormSlice masks = [&](int64_t a, int64_t b) { return mask.slice(0, a * 8, b * 8); };
  const BatchNormGradients whole = batch_norm_backward(dy, x, m, {}, mask, true, false);
  REQUIRE(unit < 40);
  const BatchNormGradients parts =
      batch_norm_backward(dy, xs, m, {}, masks, unit, true, false, false);
  CHECK(same_bits(here(parts.dx), here(whole.dx)));
  CHECK(same_bits(here(parts.dweight), here(whole.dweight)));
}

TEST_CASE("layer and RMS norm on CUDA: rows of every width") {
  if (!gpu::available()) return;
  struct Size {
    int64_t rows, width;
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Size& size : {Size{5, 2}, Size{9000, 3}, Size{37, 8}, Size{21, 300}, Size{19, 1024},
                             Size{6, 1025}, Size{6, 1032}, Size{5, 4104}, Size{3, 5001}})
      for (const bool centred : {true, false}) {
        CAPTURE(size.rows);
        CAPTURE(size.width);
        const Shape shape{size.rows, size.width};
        const Tensor x = rounded(shape, 1, 2, 1), dy = rounded(shape, 2);
        const Tensor weight = normals({size.width}, 3, DType::f32, 1, 1);
        const Tensor bias = centred ? normals({size.width}, 4) : Tensor();
        const Tensor u = there(x, dtype), w = there(weight), b = there(bias);
        const LayerNormOutput e =
            centred ? layer_norm(x, weight, bias, 1e-5) : rms_norm(x, weight, 1e-5);
        const LayerNormOutput got = centred ? layer_norm(u, w, b, 1e-5) : rms_norm(u, w, 1e-5);
        CHECK(near(got.y, e.y, tolerance(dtype)));
        CHECK(near(got.moments.invstd, e.moments.invstd, 1e-5));
        CHECK(same_bits(here(layer_norm_apply(u, got.moments, w, b)), here(got.y)));
        const RowMoments m{there(e.moments.mean), there(e.moments.invstd)};
        const LayerNormWants wants{true, true, centred};
        const Tensor dv = there(dy, dtype);
        const LayerNormGradients g = layer_norm_backward(dy, x, e.moments, weight, wants);
        const LayerNormGradients h = layer_norm_backward(dv, u, m, w, wants);
        CHECK(near(h.dx, g.dx, tolerance(dtype)));
        CHECK(near(h.dweight, g.dweight, 2e-5));
        if (centred) CHECK(near(h.dbias, g.dbias, 2e-5));
        const LayerNormGradients sums = layer_norm_backward(dv, u, m, w, {false, true, false});
        CHECK(same_bits(here(sums.dweight), here(h.dweight)));
        const LayerNormGradients over = layer_norm_backward(dv, u, m, w, wants, true);
        CHECK(same_bits(here(over.dx), here(h.dx)));
        CHECK(same_bits(here(over.dweight), here(h.dweight)));
        RowMoments of_rows = normalized_moments(e.moments.invstd, centred);
        of_rows.gain = normals({size.width}, 5, DType::f32, 0.1f, 1);
        const RowMoments there_too{centred ? there(of_rows.mean) : Tensor(), there(of_rows.invstd),
                                   there(of_rows.scale), there(of_rows.gain)};
        const LayerNormGradients gained =
            layer_norm_backward(there(dy, dtype), u, there_too, w, wants);
        const LayerNormGradients expected = layer_norm_backward(dy, x, of_rows, weight, wants);
        CHECK(near(gained.dx, expected.dx, tolerance(dtype)));
        const Tensor y = layer_norm_apply(u, there_too, w, b), written = there(x, dtype);
        CHECK(same_bits(here(layer_norm_apply(written, there_too, w, b, true)), here(y)));
        CHECK(same_bits(here(written), here(y)));
      }
}

TEST_CASE("layer norm on CUDA: a constant row has its value as mean and no variance") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double value : {12345.678, 1000000.5, -0.1})
      for (const int64_t width : {2, 3, 100, 768, 1025, 5001}) {
        CAPTURE(value);
        CAPTURE(width);
        const Tensor x = there(Tensor::full({5, width}, value), dtype);
        const LayerNormOutput out = layer_norm(x, {}, {}, 1e-5);
        CHECK(out.moments.mean.item(0) == here(x).item(0));
        CHECK(error(out.y, std::vector<double>(static_cast<size_t>(5 * width), 0.0)) == 0);
      }
}

TEST_CASE("group norm on CUDA: groups of any width, several chunks of rows") {
  if (!gpu::available()) return;
  struct Size {
    Shape shape;
    int64_t groups;
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Size& size : {Size{{2, 70, 6}, 3}, Size{{3, 5, 7, 10}, 5}, Size{{1, 9000, 4}, 2},
                             Size{{2, 9, 512}, 8}, Size{{1, 1100, 512}, 8}, Size{{2, 8}, 1}}) {
      CAPTURE(size.shape.str());
      const int64_t c = size.shape.back();
      const Tensor x = rounded(size.shape, 1, 2, 1), dy = rounded(size.shape, 2);
      const Tensor weight = normals({c}, 3), bias = normals({c}, 4);
      const Tensor u = there(x, dtype), w = there(weight), b = there(bias);
      const LayerNormOutput e = group_norm(x, size.groups, weight, bias, 1e-5);
      const LayerNormOutput got = group_norm(u, size.groups, w, b, 1e-5);
      CHECK(near(got.y, e.y, tolerance(dtype)));
      CHECK(near(got.moments.invstd, e.moments.invstd, 1e-5));
      CHECK(same_bits(here(group_norm_apply(u, got.moments, w, b)), here(got.y)));
      const RowMoments m{there(e.moments.mean), there(e.moments.invstd)};
      const LayerNormGradients g = group_norm_backward(dy, x, e.moments, weight, {});
      const LayerNormGradients h = group_norm_backward(there(dy, dtype), u, m, w, {});
      CHECK(near(h.dx, g.dx, tolerance(dtype)));
      CHECK(near(h.dweight, g.dweight, 2e-5));
      CHECK(near(h.dbias, g.dbias, 2e-5));
      RowMoments of_rows = normalized_moments(e.moments.invstd, true);
      of_rows.gain = normals({c}, 5, DType::f32, 0.1f, 1);
      const RowMoments there_too{there(of_rows.mean), there(of_rows.invstd), there(of_rows.scale),
                                 there(of_rows.gain)};
      CHECK(near(group_norm_backward(there(dy, dtype), u, there_too, w, {}).dx,
                 group_norm_backward(dy, x, of_rows, weight, {}).dx, tolerance(dtype)));
      const Tensor y = group_norm_apply(u, there_too, w, b), written = there(x, dtype);
      CHECK(same_bits(here(group_norm_apply(written, there_too, w, b, true)), here(y)));
    }
}

}  // namespace frugal::ops
