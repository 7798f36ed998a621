#include "ops/image/pool2d.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "autograd/volume_functions.h"
#include "ops/image/adaptive_max_pool2d.h"
#include "ops/image/window_codes.h"

namespace frugal {
namespace {

auto pool_describer(const Pool2dOptions& options) {
  return [&options](TracedOp& t) {
    t.set("kernel", options.kernel);
    t.set("stride", options.stride);
    t.set("padding", options.padding);
    t.set("count_include_pad", options.count_include_pad);
  };
}

// Bits that the backward pass keeps of each element of the index; 0: the index as it is.
int bits_of(const Tensor& index, const Pool2dOptions& options) {
  if (index.dtype() != DType::u8) return 0;
  const int bits = ops::window_index_bits(options.kernel[0] * options.kernel[1]);
  return bits < 8 ? bits : 0;
}

}  // namespace

Variable max_pool2d(const Variable& x, const Pool2dOptions& options) {
  ops::MaxPooled out = ops::max_pool2d(x.value(), options);
  if (const int bits = bits_of(out.index, options); bits != 0 && recording({x})) {
    const Shape shape = out.index.shape();
    out.index = ops::pack_window_index(out.index, bits);
    return record({"max_pool2d", pool_describer(options)}, {x}, out.y, {save_whole(out.index)},
                  [x_shape = x.shape(), shape, bits, options](const Backward& b) {
                    Tensor index;
                    {
                      CategoryScope scope(Category::workspace);
                      index = ops::unpack_window_index(b.saved(0), bits, shape);
                    }
                    return Grads{ops::max_pool2d_backward(b.dy(), index, x_shape, options)};
                  });
  }
  return record({"max_pool2d", pool_describer(options)}, {x}, out.y, {save_exact(out.index)},
                [x_shape = x.shape(), options](const Backward& b) {
                  return Grads{ops::max_pool2d_backward(b.dy(), b.saved(0), x_shape, options)};
                });
}

Variable avg_pool2d(const Variable& x, const Pool2dOptions& options) {
  return record({"avg_pool2d", pool_describer(options)}, {x}, ops::avg_pool2d(x.value(), options),
                {}, [x_shape = x.shape(), options](const Backward& b) {
                  return Grads{ops::avg_pool2d_backward(b.dy(), x_shape, options)};
                });
}

Variable adaptive_avg_pool2d(const Variable& x, int64_t out_h, int64_t out_w) {
  return record("adaptive_avg_pool2d", {x}, ops::adaptive_avg_pool2d(x.value(), out_h, out_w), {},
                [x_shape = x.shape()](const Backward& b) {
                  return Grads{ops::adaptive_avg_pool2d_backward(b.dy(), x_shape)};
                });
}

Variable adaptive_max_pool2d(const Variable& x, int64_t out_h, int64_t out_w) {
  const ops::MaxPooled out = ops::adaptive_max_pool2d(x.value(), out_h, out_w);
  return record("adaptive_max_pool2d", {x}, out.y, {save_exact(out.index)},
                [x_shape = x.shape()](const Backward& b) {
                  return Grads{ops::adaptive_max_pool2d_backward(b.dy(), b.saved(0), x_shape)};
                });
}

Variable global_avg_pool2d(const Variable& x) {
  return record("global_avg_pool2d", {x}, ops::global_avg_pool2d(x.value()), {},
                [x_shape = x.shape()](const Backward& b) {
                  return Grads{ops::global_avg_pool2d_backward(b.dy(), x_shape)};
                });
}

}  // namespace frugal
