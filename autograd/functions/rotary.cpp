#include "ops/sequence/rotary.h"

#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"

namespace frugal {

// A rotation. The backward pass turns dy back. Saves: only positions, if they are given. Recipe:
// linear, if x has a recipe.
Variable rotary_embedding(const Variable& x, const Tensor& positions, double base) {
  const auto describe = [&](TracedOp& t) {
    t.tensor(positions);
    t.set("base", base);
  };
  return record(
      {"rotary_embedding", describe}, {x}, ops::rotary(x.value(), positions, base),
      {save_exact(positions), for_replay(x)},
      [base](const Backward& b) { return Grads{ops::rotary(b.dy(), b.saved(0), base, true)}; },
      linear_replay(
          [base](const Slots& s) { return ops::rotary(s.unpack(1), s.unpack(0), base); }));
}

}  // namespace frugal
