#include "ops/sequence/rotary.h"

#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"

namespace frugal {

// A rotation, and perhaps a factor. The backward pass turns dy back. Saves: only positions, if they
// are given. Recipe: linear, if x has a recipe.
Variable rotary_embedding(const Variable& x, const Tensor& positions,
                          const RotaryOptions& options) {
  const auto describe = [&](TracedOp& t) {
    const RotaryOptions own = ops::at_positions(options, x.value(), positions);
    t.tensor(positions);
    t.set("base", own.base);
    t.set("scaling", static_cast<int64_t>(own.scaling));
    t.set("factor", own.factor);
    t.set("first_length", own.first_length);
    t.set("low", own.low);
    t.set("high", own.high);
    t.set("most_turns", own.most_turns);
    t.set("least_turns", own.least_turns);
    t.set("whole_pairs", own.whole_pairs);
    t.set("gain", own.gain);
  };
  return record(
      {"rotary_embedding", describe}, {x}, ops::rotary(x.value(), positions, options),
      {save_exact(positions), for_recipe(x)},
      [options](const Backward& b) {
        return Grads{ops::rotary(b.dy(), b.saved(0), options, true)};
      },
      linear_recipe(
          [options](const Slots& s) { return ops::rotary(s.unpack(1), s.unpack(0), options); }));
}

}  // namespace frugal
