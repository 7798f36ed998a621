#include "ops/image/pool2d.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"
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

// Records maxima whose index is kept in as few bits as `out.cells` allows. gradient(dy, index)
// gives that of x.
template <class Gradient>
Variable record_maxima(const OpName& op, const Variable& x, ops::MaxPooled out, Gradient gradient) {
  const int bits = out.index.dtype() == DType::u8 ? ops::window_index_bits(out.cells) : 8;
  if (bits == 8 || !recording({x}))
    return record(op, {x}, out.y, {save_exact(out.index)},
                  [gradient](const Backward& b) { return Grads{gradient(b.dy(), b.saved(0))}; });
  const Shape shape = out.index.shape();
  out.index = ops::pack_window_index(out.index, bits);
  return record(op, {x}, out.y, {save_whole(out.index)},
                [gradient, shape, bits](const Backward& b) {
                  Tensor index;
                  {
                    CategoryScope scope(Category::workspace);
                    index = ops::unpack_window_index(b.saved(0), bits, shape);
                  }
                  return Grads{gradient(b.dy(), index)};
                });
}

}  // namespace

Variable max_pool2d(const Variable& x, const Pool2dOptions& options) {
  return record_maxima({"max_pool2d", pool_describer(options)}, x,
                       ops::max_pool2d(x.value(), options),
                       [x_shape = x.shape(), options](const Tensor& dy, const Tensor& index) {
                         return ops::max_pool2d_backward(dy, index, x_shape, options);
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
  return record_maxima("adaptive_max_pool2d", x, ops::adaptive_max_pool2d(x.value(), out_h, out_w),
                       [x_shape = x.shape()](const Tensor& dy, const Tensor& index) {
                         return ops::adaptive_max_pool2d_backward(dy, index, x_shape);
                       });
}

Variable global_avg_pool2d(const Variable& x) {
  return record("global_avg_pool2d", {x}, ops::global_avg_pool2d(x.value()), {},
                [x_shape = x.shape()](const Backward& b) {
                  return Grads{ops::global_avg_pool2d_backward(b.dy(), x_shape)};
                });
}

}  // namespace frugal
