#include "models/detection/found.h"

#include <algorithm>
#include <cmath>

#include "ops/detection/boxes.h"
#include "ops/detection/nms.h"

namespace frugal::models {

std::array<float, 4> clip(const std::array<float, 4>& box, int64_t height, int64_t width) {
  const auto right = static_cast<float>(width), bottom = static_cast<float>(height);
  return {std::clamp(box[0], 0.0F, right), std::clamp(box[1], 0.0F, bottom),
          std::clamp(box[2], 0.0F, right), std::clamp(box[3], 0.0F, bottom)};
}

void Candidates::add(const std::array<float, 4>& box, int64_t label, float score) {
  boxes.push_back(box);
  labels.push_back(label);
  scores.push_back(score);
}

void Candidates::add_best(const Tensor& logits, const Tensor& codes, const Tensor& anchors,
                          double least_score, int64_t most) {
  struct Place {
    float score;
    int64_t at;
  };
  const int64_t classes = logits.size(1);
  const auto* logit = logits.data<float>();
  std::vector<Place> best;
  for (int64_t i = 0; i < logits.numel(); ++i) {
    const float score = 1 / (1 + std::exp(-logit[i]));
    if (score > static_cast<float>(least_score)) best.push_back({score, i});
  }
  const auto kept = std::min(best.size(), static_cast<size_t>(most));
  std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(kept), best.end(),
                    [](const Place& a, const Place& b) {
                      return a.score > b.score || (a.score == b.score && a.at < b.at);
                    });
  best.resize(kept);
  Tensor code = Tensor::empty({static_cast<int64_t>(kept), 4});
  Tensor anchor = Tensor::empty(code.shape());
  for (size_t i = 0; i < kept; ++i) {
    const int64_t row = best[i].at / classes;
    std::copy_n(codes.data<float>() + 4 * row, 4, code.mut<float>() + 4 * i);
    std::copy_n(anchors.data<float>() + 4 * row, 4, anchor.mut<float>() + 4 * i);
  }
  const Tensor decoded = ops::decode_boxes(code, anchor);
  for (size_t i = 0; i < kept; ++i) {
    std::array<float, 4> box{};
    std::copy_n(decoded.data<float>() + 4 * i, 4, box.begin());
    add(box, best[i].at % classes, best[i].score);
  }
}

Detections Candidates::suppress(int64_t height, int64_t width, double most_overlap, int64_t most,
                                double least_side, Device device) const {
  Candidates kept;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const std::array<float, 4> box = clip(boxes[i], height, width);
    const auto least = static_cast<float>(least_side);
    if (box[2] - box[0] >= least && box[3] - box[1] >= least) kept.add(box, labels[i], scores[i]);
  }
  const auto rows = static_cast<int64_t>(kept.boxes.size());
  Tensor all = Tensor::empty({rows, 4});
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(kept.boxes[static_cast<size_t>(i)].begin(), 4, all.mut<float>() + 4 * i);
  const auto there = [&](const Tensor& x) { return to_device(x, device); };
  const Tensor taken = to_device(ops::nms(there(all), there(Tensor::from(kept.scores, {rows})),
                                          most_overlap, there(Tensor::from(kept.labels, {rows}))),
                                 kCpu);
  Detections found;
  for (int64_t i = 0; i < std::min(taken.numel(), most); ++i) {
    const auto row = static_cast<size_t>(taken.data<int64_t>()[i]);
    found.boxes.push_back(kept.boxes[row]);
    found.labels.push_back(kept.labels[row]);
    found.scores.push_back(kept.scores[row]);
  }
  return found;
}

}  // namespace frugal::models
