// The scores of COCO for what a network finds in pictures.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace frugal::train {

// An object of a picture.
struct TrueBox {
  std::array<double, 4> box{};  // x1, y1, x2, y2 in pixels
  int64_t label = 0;
  double area = 0;  // decides whether it is small, medium or large
  // What is found in either of these is neither right nor wrong, however much it is.
  bool crowd = false;      // a group: a found box counts by the share of it that the group covers
  bool difficult = false;  // VOC: one object
  bool counts() const { return !crowd && !difficult; }
};

struct FoundBox {
  std::array<double, 4> box{};
  int64_t label = 0;
  double score = 0;
};

// Means over classes, in [0, 1]; -1 where there is nothing of which to take the mean. Precision is
// averaged over 101 recalls and, but for ap50 and ap75, over overlaps of 0.5, 0.55, ... 0.95;
// recall over the same overlaps. Small objects are up to 32^2 pixels, large ones from 96^2.
struct CocoScores {
  double ap = -1, ap50 = -1, ap75 = -1;
  double ap_small = -1, ap_medium = -1, ap_large = -1;
  double ar1 = -1, ar10 = -1, ar100 = -1;  // with the best 1, 10 or 100 of a class in a picture
  double ar_small = -1, ar_medium = -1, ar_large = -1;

  std::vector<std::pair<std::string, double>> named() const;  // in this order
};

// Takes pictures one by one, in an order that decides between equal scores.
// Ref: COCO's definition of its metrics for detection, https://cocodataset.org/#detection-eval;
// difficult objects: Everingham et al. 2010, section 4.4.
// Thread safety: none.
class CocoMetrics {
 public:
  static constexpr size_t kOverlaps = 10, kAreas = 4;

  void add(const std::vector<TrueBox>& objects, const std::vector<FoundBox>& found);
  // Classes without objects do not count.
  CocoScores scores() const;
  int64_t pictures() const { return pictures_; }
  void clear() { *this = {}; }

 private:
  // A box that was found: for each area the overlaps at which it has an object, and those at which
  // it does not count, a bit each.
  struct Found {
    double score = 0;
    int64_t rank = 0;  // its place among the boxes of its class in its picture
    std::array<uint16_t, kAreas> right{}, ignored{};
  };
  struct Class {
    int64_t label = 0;
    std::array<int64_t, kAreas> objects{};  // how many objects count
    std::vector<Found> found;
  };
  Class& of(int64_t label);

  int64_t pictures_ = 0;
  std::vector<Class> classes_;  // sorted by label
};

}  // namespace frugal::train
