#include "ops/detection/roi_align.h"

#include "autograd/detection_functions.h"
#include "autograd/record.h"

namespace frugal {

// Linear in x, and the weights follow from the boxes.  Saves: boxes.
Variable roi_align(const Variable& x, const Tensor& boxes, std::array<int64_t, 2> out, double scale,
                   const RoiAlignOptions& options) {
  const ops::RoiAlignGrid grid = {out[0], out[1], scale, options};
  return record("roi_align", {x}, ops::roi_align(x.value(), boxes, grid), {save_whole(boxes)},
                [x_shape = x.shape(), grid](const Backward& b) {
                  return Grads{ops::roi_align_backward(b.dy(), b.saved(0), x_shape, grid)};
                });
}

}  // namespace frugal
