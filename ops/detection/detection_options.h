// Options of the ops of detection networks, shared by ops, autograd and models.
#pragma once

namespace frugal {

// What the differences between a box and its reference are multiplied by.
struct BoxCoding {
  double x = 1, y = 1, width = 1, height = 1;
};

// Overlaps (intersection over union) by which anchors are matched with objects.
struct MatchOptions {
  double high = 0.5;        // an anchor of this overlap or more stands for the object
  double low = 0.4;         // below it an anchor is background; between the two it does not count
  bool low_quality = true;  // the best anchors of an object stand for it even so
};

struct SigmoidFocalOptions {
  double alpha = 0.25;  // weight of yes; no has 1 - alpha. Negative: both have 1
  double gamma = 2;
};

struct RoiAlignOptions {
  int sampling_ratio = 0;  // samples along each side of a cell; 0: as many as the cell has pixels
  bool aligned = false;    // pixel centres lie at halves, and boxes may be smaller than a pixel
};

}  // namespace frugal
