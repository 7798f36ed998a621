#include "ops/image/interpolate.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"

namespace frugal {

Variable interpolate(const Variable& x, int64_t out_h, int64_t out_w,
                     const InterpolateOptions& options) {
  const auto describe = [&](TracedOp& t) {
    t.set("bilinear", options.mode == Interpolation::bilinear);
    t.set("align_corners", options.align_corners);
  };
  return record(
      {"interpolate", describe}, {x}, ops::interpolate(x.value(), out_h, out_w, options),
      {for_recipe(x)},
      [x_shape = x.shape(), options](const Backward& b) {
        return Grads{ops::interpolate_backward(b.dy(), x_shape, options)};
      },
      linear_recipe(
          [out_h, out_w, options](const Slots& s) {
            return ops::interpolate(s.unpack(0), out_h, out_w, options);
          },
          true));
}

}  // namespace frugal
