// UpdateTime: when a step updates its parameters. Each is updated in the backward pass, as soon as
// its gradient is complete, so gradients are never all in memory; or all are updated after it. The
// weights have the same bits either way. This is the one place that decides.
#pragma once
#include <optional>
#include <string>

namespace frugal::train {

// What the decision depends on.
struct UpdateTime {
  // What the run says. None: in the backward pass, unless something speaks against it.
  std::optional<bool> in_backward = {};
  double clip_norm = 0;               // see StepOptions
  int64_t gradient_accumulation = 1;  // batches of a step
  bool recomputes = false;            // the step recomputes blocks
  int ranks = 1;
  bool on_cuda = false;
};

// Why the step needs all gradients, or all parameters as they were, until its backward pass has
// ended: "optim.clip_norm ...". Options are named as the library names them. Empty: it does not.
std::string needs_gradients(const UpdateTime& time);
// Why gradients are kept until the backward pass has ended. Empty: they are not, and parameters are
// updated in the backward pass.
std::string keeps_gradients(const UpdateTime& time);
// Errors: OptionError at trainer.in_backward, if it is true and needs_gradients().
void check(const UpdateTime& time);

}  // namespace frugal::train
