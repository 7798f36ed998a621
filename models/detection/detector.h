// What all detection networks share: targets, losses by name, detections.
#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "models/module.h"

namespace frugal::models {

// The objects of N pictures, those of the first picture first; on the model's device. Class 0 is
// the background, as in torchvision.
struct DetectionTargets {
  Tensor boxes;   // [T, 4] f32: x1, y1, x2, y2 in pixels
  Tensor labels;  // [T] i64, in [1, classes); RetinaNet takes 0, too
  Tensor counts;  // [N] i64 with sum T
};

// What was found in a picture, by falling score; on the host.
struct Detections {
  std::vector<std::array<float, 4>> boxes;  // x1, y1, x2, y2 in pixels, within the picture
  std::vector<int64_t> labels;
  std::vector<float> scores;  // in (0, 1)
};

// How a box is compared with the object that it stands for: by codes, see ops::encode_boxes(), or
// by 1 - GIoU of the boxes themselves. The names are torchvision's.
enum class BoxLoss : uint8_t { l1, smooth_l1, giou };
// The beta with which codes are compared, `smooth` for smooth_l1; giou compares none.
inline double beta_of(BoxLoss loss, double smooth) {
  switch (loss) {
    case BoxLoss::smooth_l1:
      return smooth;
    case BoxLoss::l1:
    case BoxLoss::giou:
      break;
  }
  return 0;
}

class Detector : public Module {
 public:
  Detector* as_detector() final { return this; }
  // What is found beside the losses, where somebody asks.
  struct Search {
    Tensor sizes;  // [N, 2] i64: height and width of each picture without its padding
    std::vector<Detections> found = {};  // one for each picture; empty on `meta`
  };
  // images [N, H, W, C] -> scalars, whose sum is the loss. The names are torchvision's. With a
  // search, what the network finds, too, which waits for the device.
  // Errors: targets of other shapes or dtypes.
  virtual NamedVariables losses(Variable images, const DetectionTargets& targets, Context& context,
                                Search* search = nullptr) = 0;
  // Waits for the device.
  virtual std::vector<Detections> detect(Variable images, const Tensor& sizes,
                                         Context& context) = 0;
  virtual int64_t classes() const = 0;  // with the background
};

}  // namespace frugal::models
