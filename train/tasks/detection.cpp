#include "train/tasks/detection.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "autograd/operators.h"
#include "core/log.h"
#include "ops/dense/copy.h"
#include "train/metrics/detection_metrics.h"
#include "train/place_batch.h"

namespace frugal::train {
namespace {

// What the losses read; all other extras stay on the host.
constexpr std::array kOfLosses = {"boxes", "labels", "counts"};
// Extras with a row for each object, and those that count the rows of a picture.
struct Rows {
  const char *name, *counts;
};
constexpr std::array kOfObjects = {Rows{"boxes", "counts"},
                                   Rows{"labels", "counts"},
                                   Rows{"areas", "counts"},
                                   Rows{"crowd_boxes", "crowd_counts"},
                                   Rows{"crowd_labels", "crowd_counts"},
                                   Rows{"crowd_difficult", "crowd_counts"}};
constexpr int64_t kColumns = 6;

Tensor extra(const Batch& batch, const char* name) {
  const Tensor found = find_tensor(batch.extras, name);
  FRUGAL_CHECK(found.defined(), "[detection] expected batches with the tensor {}, got none", name);
  return found;
}

// The rows of the pictures before `end`.
int64_t rows_before(const Tensor& counts, int64_t end, int64_t rows) {
  if (counts.device() == kMeta) return rows * end / std::max<int64_t>(counts.size(0), 1);
  const auto* all = counts.data<int64_t>();
  return std::accumulate(all, all + end, int64_t{0});
}

class BoxMetric final : public Metric {
 public:
  explicit BoxMetric(std::string name) : name_(std::move(name)) {}
  void add(const Tensor& output, const Batch& batch) override {
    const Tensor boxes = extra(batch, "boxes"), labels = extra(batch, "labels");
    const Tensor counts = extra(batch, "counts");
    const Tensor sizes = extra(batch, "sizes"), files = extra(batch, "originals");
    const Tensor areas = find_tensor(batch.extras, "areas");
    const Tensor crowds = find_tensor(batch.extras, "crowd_counts");
    const Tensor hard = find_tensor(batch.extras, "crowd_difficult");
    int64_t at = 0, crowd = 0;
    for (int64_t n = 0; n < counts.size(0); ++n) {
      std::array<double, 4> scale{};  // from the input to the file
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t side = 2 * n + 1 - k % 2;  // height, width of each
        scale[static_cast<size_t>(k)] = files.item(side) / sizes.item(side);
      }
      const auto object = [&](const Tensor& all, const Tensor& names, int64_t row) {
        TrueBox box;
        for (int64_t k = 0; k < 4; ++k)
          box.box[static_cast<size_t>(k)] = all.item(4 * row + k) * scale[static_cast<size_t>(k)];
        box.label = names.item<int64_t>(row);
        box.area = (box.box[2] - box.box[0]) * (box.box[3] - box.box[1]);
        return box;
      };
      std::vector<TrueBox> objects;
      for (int64_t i = 0; i < counts.item<int64_t>(n); ++i, ++at) {
        objects.push_back(object(boxes, labels, at));
        if (areas.defined()) objects.back().area = areas.item(at);
      }
      if (crowds.defined())
        for (int64_t i = 0; i < crowds.item<int64_t>(n); ++i, ++crowd) {
          objects.push_back(
              object(extra(batch, "crowd_boxes"), extra(batch, "crowd_labels"), crowd));
          const bool difficult = hard.defined() && hard.item<int64_t>(crowd) != 0;
          (difficult ? objects.back().difficult : objects.back().crowd) = true;
        }
      const models::Detections seen = found_in(output, n);
      std::vector<FoundBox> found;
      for (size_t i = 0; i < seen.boxes.size(); ++i) {
        FoundBox box;
        for (size_t k = 0; k < 4; ++k)
          box.box[k] = static_cast<double>(seen.boxes[i][k]) * scale[k];
        box.label = seen.labels[i];
        box.score = static_cast<double>(seen.scores[i]);
        found.push_back(box);
      }
      metrics_.add(objects, found);
    }
  }
  double value(double) const override {
    const CocoScores scores = metrics_.scores();
    const double ap = name_ == "map_50" ? scores.ap50 : scores.ap;
    if (ap < 0)
      log().warn(
          "[detection] no object counts in the {} pictures of this evaluation, so its "
          "numbers are -1: expected objects that are neither crowds nor difficult",
          metrics_.pictures());
    return ap;
  }
  std::vector<std::pair<std::string, double>> details() const override {
    return metrics_.scores().named();
  }

 private:
  std::string name_;  // map or map_50
  CocoMetrics metrics_;
};

}  // namespace

Tensor tensor_of(const std::vector<models::Detections>& found) {
  size_t most = 0;
  for (const models::Detections& each : found) most = std::max(most, each.boxes.size());
  const auto rows = static_cast<int64_t>(most);
  Tensor all = Tensor::full({static_cast<int64_t>(found.size()), rows, kColumns}, -1);
  auto* out = all.mut<float>();
  for (size_t n = 0; n < found.size(); ++n)
    for (size_t i = 0; i < found[n].boxes.size(); ++i) {
      float* row = out + (static_cast<int64_t>(n) * rows + static_cast<int64_t>(i)) * kColumns;
      std::copy(found[n].boxes[i].begin(), found[n].boxes[i].end(), row);
      row[4] = static_cast<float>(found[n].labels[i]);
      row[5] = found[n].scores[i];
    }
  return all;
}

models::Detections found_in(const Tensor& output, int64_t picture) {
  models::Detections found;
  const Tensor rows = ops::contiguous(output[picture]);
  const auto* row = rows.data<float>();
  for (int64_t i = 0; i < rows.size(0) && row[4] >= 0; ++i, row += kColumns) {
    found.boxes.push_back({row[0], row[1], row[2], row[3]});
    found.labels.push_back(static_cast<int64_t>(row[4]));
    found.scores.push_back(row[5]);
  }
  return found;
}

Batch Detection::place(Batch batch, const Module& model) const {
  NamedTensors rest;
  std::erase_if(batch.extras, [&](const auto& each) {
    if (std::find(kOfLosses.begin(), kOfLosses.end(), each.first) != kOfLosses.end()) return false;
    rest.push_back(each);
    return true;
  });
  batch = place_batch(std::move(batch), model);
  batch.extras.insert(batch.extras.end(), rest.begin(), rest.end());
  return batch;
}

ForwardPass Detection::loss(Module& model, Batch& batch, Context& context,
                            const LossOptions& options) const {
  return context.training ? loss_of_batch(model, batch, context, options)
                          : loss_of_each(model, batch, context, options);
}

// Padding reaches outputs near it, and losses count the objects of their batch. So each picture is
// judged without the others of its batch.
ForwardPass Detection::loss_of_each(Module& model, Batch& batch, Context& context,
                                    const LossOptions& options) const {
  const int64_t pictures = batch.input.size(0);
  const Tensor padded = find_tensor(batch.extras, "padded");
  ForwardPass all;
  std::vector<models::Detections> found;
  NamedVariables terms;
  for (int64_t n = 0; n < pictures; ++n) {
    Batch own = part(batch, n, n + 1);
    if (n + 1 == pictures) batch.input = {};
    if (padded.defined())
      own.input = ops::contiguous(own.input.slice(1, 0, padded.item<int64_t>(2 * n))
                                      .slice(2, 0, padded.item<int64_t>(2 * n + 1)));
    ForwardPass pass = loss_of_batch(model, own, context, options);
    all.loss = all.loss.defined() ? all.loss + pass.loss : pass.loss;
    for (size_t i = 0; i < pass.terms.size(); ++i) {
      const auto& [name, term] = pass.terms[i];
      if (n == 0)
        terms.emplace_back(name, Variable(term));
      else
        terms[i].second = terms[i].second + term;
    }
    if (pass.output.defined() && pass.output.value().size(0) > 0)
      found.push_back(found_in(pass.output.value(), 0));
    else if (pass.output.defined())
      all.output = pass.output;
  }
  batch.extras.clear();
  const auto count = static_cast<double>(pictures);
  all.loss = all.loss / count;
  for (const auto& [name, term] : terms) all.terms.emplace_back(name, (term / count).value());
  all.counts = {pictures, 0};
  if (!found.empty()) all.output = Variable(tensor_of(found));
  return all;
}

ForwardPass Detection::loss_of_batch(Module& model, Batch& batch, Context& context,
                                     const LossOptions& options) const {
  models::Detector* const detector = model.as_detector();
  FRUGAL_CHECK(detector != nullptr, "[detection] expected a network that finds boxes, got another");
  const models::DetectionTargets targets = {extra(batch, "boxes"), extra(batch, "labels"),
                                            extra(batch, "counts")};
  const bool searches = options.keep_output && !context.training;
  models::Detector::Search search;
  if (searches) search.sizes = extra(batch, "sizes");
  ForwardPass pass;
  pass.counts = {batch.input.size(0), 0};
  Variable images(std::move(batch.input));
  batch.extras.clear();
  for (const auto& [name, term] :
       detector->losses(std::move(images), targets, context, searches ? &search : nullptr)) {
    pass.loss = pass.loss.defined() ? pass.loss + term : term;
    pass.terms.emplace_back(name, term.value());
  }
  if (searches) pass.output = Variable(tensor_of(search.found));
  return pass;
}

Batch Detection::part(const Batch& batch, int64_t begin, int64_t end) const {
  Batch part;
  part.input = batch.input.slice(0, begin, end);
  if (batch.target.defined()) part.target = batch.target.slice(0, begin, end);
  if (batch.samples.defined()) part.samples = batch.samples.slice(0, begin, end);
  for (const auto& [name, tensor] : batch.extras) {
    const auto* rows = std::find_if(kOfObjects.begin(), kOfObjects.end(),
                                    [&name = name](const Rows& each) { return name == each.name; });
    if (rows == kOfObjects.end()) {
      part.extras.emplace_back(name, tensor.slice(0, begin, end));
    } else {
      const Tensor counts = extra(batch, rows->counts);
      part.extras.emplace_back(name, tensor.slice(0, rows_before(counts, begin, tensor.size(0)),
                                                  rows_before(counts, end, tensor.size(0))));
    }
  }
  return part;
}

Batch Detection::shape(int64_t samples, Device device) const {
  Batch batch = Task::shape(samples, device);
  const CategoryScope scope(Category::input);
  batch.target = Tensor::empty({samples}, DType::i64, device);
  const int64_t objects = samples * kPlannedObjects;
  batch.extras = {{"boxes", Tensor::empty({objects, 4}, DType::f32, device)},
                  {"labels", Tensor::empty({objects}, DType::i64, device)},
                  {"counts", Tensor::empty({samples}, DType::i64, device)},
                  {"sizes", Tensor::empty({samples, 2}, DType::i64, device)},
                  {"originals", Tensor::empty({samples, 2}, DType::i64, device)}};
  return batch;
}

std::unique_ptr<Metric> Detection::metric() const {
  return std::make_unique<BoxMetric>(spec().metric);
}

}  // namespace frugal::train
