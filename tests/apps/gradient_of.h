// gradient_of() for tests of configurations.
#pragma once
#include "tests/train/gradient_of.h"
#include "tests/train/task_of.h"

namespace frugal::apps {

// The task is the one that the batch shows.
inline std::vector<float> gradient_of(Module& model, const Batch& batch, SavePolicy* policy,
                                      uint64_t number, RngKey stream = {}) {
  return train::gradient_of(train::task_of(batch), model, batch, policy, number, stream);
}

}  // namespace frugal::apps
