// How layers obey context.checkpointed_blocks.
#pragma once
#include <utility>

#include "autograd/checkpoint.h"
#include "models/module.h"

namespace frugal::models {

// Counts a block: does it keep only its inputs?
inline bool is_checkpointed(Context& context) {
  return context.training && context.checkpointed_blocks > 0 &&
         context.block++ < context.checkpointed_blocks;
}

// A block, f(inputs, context). Where its turn has come, only the inputs are kept and f runs again
// in backward: it captures what outlives the graph (a shared_ptr, not a reference).
template <class F>
Variable checkpointed(Context& context, Variables inputs, F f) {
  if (!is_checkpointed(context)) return f(std::move(inputs), context);
  Context inner = context;
  inner.checkpointed_blocks = 0;  // once is enough: the recomputation's own saves are short-lived
  const auto run = [f = std::move(f), inner](const Variables& in) mutable { return f(in, inner); };
  return checkpoint(run, inputs, context.rng);
}

// A block of one input, f(x, context), which may let go of it.
template <class F>
Variable checkpointed(Context& context, Variable x, F f) {
  Variables one;
  one.push_back(std::move(x));  // a list in braces would hold it until the block has run
  return checkpointed(context, std::move(one), [f = std::move(f)](Variables in, Context& inner) {
    return f(std::move(in[0]), inner);
  });
}

}  // namespace frugal::models
