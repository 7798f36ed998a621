// From the outputs of a detection network to what is in a picture. On the host. Internal.
#pragma once
#include "models/detection/detector.h"

namespace frugal::models {

// Boxes of one picture with classes and scores, before suppression.
struct Candidates {
  std::vector<std::array<float, 4>> boxes;
  std::vector<int64_t> labels;
  std::vector<float> scores;

  void add(const std::array<float, 4>& box, int64_t label, float score);
  // logits [A, K] and codes [A, 4] f32 of anchors [A, 4]: of all logits whose sigmoid is above
  // least_score the `most` highest, by falling score (equal ones in their order).
  void add_best(const Tensor& logits, const Tensor& codes, const Tensor& anchors,
                double least_score, int64_t most);
  // Cuts the boxes to the picture, leaves out those whose sides are below least_side, and those
  // that overlap a better one of their class by more than most_overlap. The `most` best stay.
  // `device` does the work of suppression.
  Detections suppress(int64_t height, int64_t width, double most_overlap, int64_t most,
                      double least_side = 0, Device device = kCpu) const;
};

// x1, y1, x2, y2 within the picture.
std::array<float, 4> clip(const std::array<float, 4>& box, int64_t height, int64_t width);

}  // namespace frugal::models
