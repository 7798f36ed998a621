#include "ops/image/shortcut.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"

namespace frugal {

Variable subsample_pad(const Variable& x, int64_t stride, int64_t before, int64_t after) {
  const auto describe = [&](TracedOp& t) {
    t.set("stride", stride);
    t.set("before", before);
    t.set("after", after);
  };
  return record(
      {"subsample_pad", describe}, {x}, ops::subsample_pad(x.value(), stride, before, after),
      {for_recipe(x)},
      [x_shape = x.shape(), stride, before](const Backward& b) {
        return Grads{ops::subsample_pad_backward(b.dy(), x_shape, stride, before)};
      },
      linear_recipe(
          [stride, before, after](const Slots& s) {
            return ops::subsample_pad(s.unpack(0), stride, before, after);
          },
          true));
}

}  // namespace frugal
