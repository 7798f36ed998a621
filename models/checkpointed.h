// How layers obey context.checkpointing.
#pragma once
#include <utility>

#include "autograd/checkpoint.h"
#include "models/module.h"

namespace frugal::models {

// f(inputs, context). In training with context.checkpointing, only the inputs are kept and f runs
// again in backward: it captures what outlives the graph (a shared_ptr, not a reference).
template <class F>
Variable checkpointed(Context& context, Variables inputs, F f) {
  if (!context.checkpointing || !context.training) return f(std::move(inputs), context);
  Context inner = context;
  inner.checkpointing = false;  // once is enough: the recomputation's own saves are short-lived
  const auto run = [f = std::move(f), inner](const Variables& in) mutable { return f(in, inner); };
  return checkpoint(run, inputs, context.rng);
}

}  // namespace frugal::models
