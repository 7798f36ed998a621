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
    t.tensor(positions);
    t.set("base", options.base);
    t.set("scaling", static_cast<int64_t>(options.scaling));
    t.set("factor", options.factor);
    t.set("first_length", options.first_length);
    t.set("low", options.low);
    t.set("high", options.high);
    t.set("most_turns", options.most_turns);
    t.set("least_turns", options.least_turns);
    t.set("whole_pairs", options.whole_pairs);
    t.set("gain", options.gain);
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
