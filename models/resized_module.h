// ResizedModule: a network whose outputs for pixels are interpolated from a smaller image.
#pragma once
#include <cstdint>
#include <string>

#include "autograd/functions.h"
#include "models/module.h"

namespace frugal {

// A loss may interpolate the outputs in parts and never hold them all (resized_cross_entropy()).
class ResizedModule : public Module {
 public:
  struct Small {
    Variable logits;        // [N, h, w, classes]
    int64_t height, width;  // extents of the outputs
    // In training, if the network has a second head: its logits [N, h', w', classes], which only a
    // loss reads.
    Variable auxiliary = {};
    Variable output() const {
      if (logits.size(1) == height && logits.size(2) == width) return logits;
      return interpolate(logits, height, width, {Interpolation::bilinear, false});
    }
  };
  virtual Small before_resize(Variable input, Context& context) = 0;
  ResizedModule* as_resized() final { return this; }
  // What the names of the second head's last layer begin with; empty: there is no second head.
  virtual std::string auxiliary_head_prefix() { return ""; }
  Variable forward(Variable input, Context& context) override {
    return before_resize(std::move(input), context).output();
  }
};

}  // namespace frugal
