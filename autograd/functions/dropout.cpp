#include "ops/dropout.h"

#include "autograd/functions.h"
#include "autograd/record.h"

namespace frugal {

Variable dropout(const Variable& x, double p, RngKey key) {
  return record(
      "dropout", {x}, ops::dropout(x.value(), p, key), {for_replay(x)},
      [p, key](const Backward& b) { return Grads{ops::dropout(b.dy(), p, key)}; },
      linear_replay([p, key](const Slots& s) { return ops::dropout(s.unpack(0), p, key); }));
}

}  // namespace frugal
