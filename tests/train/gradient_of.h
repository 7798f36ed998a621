// The gradient of a batch under a policy, for tests that compare gradients.
#pragma once
#include <doctest/doctest.h>

#include <vector>

#include "core/rng.h"
#include "train/training_step.h"

namespace frugal::train {

// The gradient of all parameters, one after the other, in step `number`. It stays in the
// parameters, too.
inline std::vector<float> gradient_of(const Task& task, Module& model, const Batch& batch,
                                      SavePolicy* policy, uint64_t number, RngKey stream = {}) {
  Rng rng;
  rng.restore(stream);
  Context context;
  context.rng = &rng;
  model.zero_grad();
  begin_step(number);
  forward_backward(task, model, batch, context, policy, {});
  std::vector<float> all;
  for (const auto& p : model.parameters()) {
    const Tensor g = p.parameter->grad();
    all.insert(all.end(), g.data<float>(), g.data<float>() + g.numel());
  }
  return all;
}

// A variance that was predicted from few gradients is that of many which were drawn.
inline void check_within(double predicted, double drawn) {
  CAPTURE(predicted / drawn);
  CHECK(predicted < 1.5 * drawn);
  CHECK(predicted > drawn / 1.5);
}

}  // namespace frugal::train
