// Detection: objects with boxes in pictures.
#pragma once
#include "models/detection/detector.h"
#include "train/task.h"

namespace frugal::train {

// Batches as data::BoxBatches makes them; the network is a models::Detector, whose losses are the
// terms. In an evaluation each picture is judged by itself, with the padding that it would have
// alone. So the result depends on neither the batches nor their order. Its output: [N, M, 6] f32 on
// the host, found boxes by falling score: x1, y1, x2, y2 in pixels of the input, class, score; rows
// of class -1 are none. The metric map is the mean average precision of COCO over overlaps of 0.5
// to 0.95, in pixels of the files, and map_50 that for the overlap 0.5. Their details are all
// twelve numbers of COCO (train/metrics/detection_metrics.h). On `meta` a picture has
// kPlannedObjects objects.
class Detection final : public Task {
 public:
  static constexpr int64_t kPlannedObjects = 32;
  using Task::Task;
  // Sizes, and what only evaluations read, stay on the host.
  Batch place(Batch batch, const Module& model) const override;
  // Errors: a model that is no models::Detector.
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override;
  Batch part(const Batch& batch, int64_t begin, int64_t end) const override;
  Batch shape(int64_t samples, Device device) const override;
  std::unique_ptr<Metric> metric() const override;

 private:
  ForwardPass loss_of_batch(Module& model, Batch& batch, Context& context,
                            const LossOptions& options) const;
  ForwardPass loss_of_each(Module& model, Batch& batch, Context& context,
                           const LossOptions& options) const;
};

// What was found as a tensor, see above.
Tensor tensor_of(const std::vector<models::Detections>& found);
// One picture of such a tensor.
models::Detections found_in(const Tensor& output, int64_t picture);

}  // namespace frugal::train
