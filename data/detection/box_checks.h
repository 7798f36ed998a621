// What the readers of data/detection check alike. Internal.
#pragma once
#include <cmath>

#include "data/detection/box_set.h"

namespace frugal::data {

// What is wrong with a box in a picture of this size; empty: nothing.
inline std::string fault_of(const std::array<float, 4>& box, int64_t height, int64_t width) {
  const auto text = [&] {
    return fmt::format("got {}, {}, {}, {}", box[0], box[1], box[2], box[3]);
  };
  if (!(box[2] > box[0] && box[3] > box[1]))
    return "expected a box of at least one pixel, " + text();
  constexpr float kSlack = 0.01F;  // lists hold rounded numbers
  if (box[0] < -kSlack || box[1] < -kSlack || box[2] > static_cast<float>(width) + kSlack ||
      box[3] > static_cast<float>(height) + kSlack)
    return fmt::format("expected a box within {} x {} pixels, {}", width, height, text());
  return {};
}

}  // namespace frugal::data
