#include "train/tasks/segmentation.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "train/metrics.h"

namespace frugal::train {
namespace {

constexpr int64_t kMostShown = 64;

class OverlapOfPixels final : public Metric {
 public:
  explicit OverlapOfPixels(int64_t classes) : confusion_(std::max<int64_t>(classes, 1)) {}
  void add(const Tensor& output, const Batch& batch) override {
    confusion_.add(output, batch.target);
  }
  double value(double) const override { return confusion_.mean_iou(); }
  std::vector<std::pair<std::string, double>> details() const override {
    std::vector<std::pair<std::string, double>> found = {{"dice", confusion_.mean_dice()}};
    if (confusion_.classes() > kMostShown) return found;
    for (int64_t c = 0; c < confusion_.classes(); ++c) {
      if (std::isnan(confusion_.iou(c))) continue;
      found.emplace_back(fmt::format("dice.{}", c), confusion_.f1(c));
      found.emplace_back(fmt::format("iou.{}", c), confusion_.iou(c));
    }
    return found;
  }

 private:
  Confusion confusion_;
};

}  // namespace

std::unique_ptr<Metric> Segmentation::metric() const {
  if (spec().metric != "miou") return Classification::metric();
  return std::make_unique<OverlapOfPixels>(spec().classes);
}

}  // namespace frugal::train
