#include "train/update_time.h"

#include "train/option_error.h"

namespace frugal::train {

std::string needs_gradients(const UpdateTime& time) {
  if (time.clip_norm > 0) return "trainer.clip_norm needs the norm of all gradients";
  if (time.gradient_accumulation > 1)
    return "trainer.gradient_accumulation adds up the gradients of several batches";
  // The graph does not show which parameters a recomputed block reads again.
  if (time.recomputes) return "recomputed blocks read parameters again in the backward pass";
  return "";
}

std::string keeps_gradients(const UpdateTime& time) {
  if (time.in_backward) return *time.in_backward ? "" : std::string("trainer.in_backward is false");
  if (std::string why = needs_gradients(time); !why.empty()) return why;
  // Sums over ranks take less time for many gradients at once.
  if (time.ranks > 1) return "ranks add up many gradients at once";
  // The host reads each gradient's norm before an update, and would wait for the device.
  if (time.on_cuda) return "the host would wait for the device before each update";
  return "";
}

void check(const UpdateTime& time) {
  if (!time.in_backward.value_or(false)) return;
  if (const std::string why = needs_gradients(time); !why.empty())
    throw OptionError("trainer.in_backward",
                      "expected null or false, because " + why + "; got true");
}

}  // namespace frugal::train
