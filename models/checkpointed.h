// How layers follow context.checkpointed_blocks.
#pragma once
#include <utility>

#include "autograd/checkpoint.h"
#include "models/module.h"

namespace frugal::models {

// Counts a block, and returns whether this block keeps only its inputs.
inline bool is_checkpointed(Context& context) {
  return context.training && context.checkpointed_blocks > 0 &&
         context.block++ < context.checkpointed_blocks;
}

// Runs a block, f(inputs, context). If it is checkpointed, only its inputs are kept and f runs
// again in the backward pass. So f must own what it captures (a shared_ptr, not a reference),
// because it may outlive the caller.
template <class F>
Variable checkpointed(Context& context, Variables inputs, F f) {
  if (!is_checkpointed(context)) return f(std::move(inputs), context);
  Context inner = context;
  inner.checkpointed_blocks = 0;  // one level is enough: what the recomputation saves lives only
                                  // briefly
  const auto run = [f = std::move(f), inner](Variables in) mutable {
    return f(std::move(in), inner);
  };
  return checkpoint(run, inputs, context.rng);
}

// Runs a block of one input, f(x, context), as checkpointed() above does. f may release x early.
template <class F>
Variable checkpointed(Context& context, Variable x, F f) {
  Variables one;
  one.push_back(std::move(x));  // an initializer list would hold a copy of x until the block has
                                // run
  return checkpointed(context, std::move(one), [f = std::move(f)](Variables in, Context& inner) {
    return f(std::move(in[0]), inner);
  });
}

}  // namespace frugal::models
