#include "train/tasks/self_supervised.h"

#include <algorithm>

#include "autograd/record.h"
#include "models/self_supervised/self_supervised.h"
#include "ops/dense/copy.h"
#include "train/training_step.h"

namespace frugal::train {
namespace {

constexpr const char* kSecond = "second_view";

models::SelfSupervised& network_of(Module& model) {
  models::SelfSupervised* const network = model.as_self_supervised();
  FRUGAL_CHECK(network != nullptr,
               "[self_supervised] expected a network of two views, which is made as "
               "models::SelfSupervised, got another one");
  return *network;
}

// Adds rows of features and their classes to lists of them.
void add_rows(const Tensor& features, const Tensor& classes, std::vector<float>& all,
              std::vector<int64_t>& labels) {
  const Tensor here =
      ops::contiguous(to_device(ops::contiguous(ops::cast(features, DType::f32)), kCpu));
  all.insert(all.end(), here.data<float>(), here.data<float>() + here.numel());
  const std::vector<int64_t> more = classes.to_vector<int64_t>();
  labels.insert(labels.end(), more.begin(), more.end());
}

class NearestNeighbours final : public Metric {
 public:
  NearestNeighbours(const Task& task, int64_t classes, KnnOptions options,
                    SelfSupervision::MakeSamples samples)
      : task_(task), classes_(classes), options_(options), samples_(std::move(samples)) {}

  // Takes the features of the training samples.
  void begin(Module& model, const std::function<bool()>& stop) override {
    const NoGrad no_grad;
    Context context;
    context.training = false;
    std::vector<float> features;
    std::vector<int64_t> labels;
    const auto batches = samples_();
    while (std::optional<Batch> batch = batches->next()) {
      if (stop && stop()) return;  // the evaluation asks again, and ends
      const Tensor classes = batch->target;
      const ForwardPass pass = forward_pass(task_, model, *batch, context, {.keep_output = true});
      add_rows(pass.output.value(), classes, features, labels);
    }
    FRUGAL_CHECK(!labels.empty(), "[knn] expected samples to be neighbours, got none");
    // Samples that do not count, as of damaged files, are no neighbours.
    const auto width = static_cast<std::ptrdiff_t>(features.size() / labels.size());
    std::vector<float> counted;
    std::vector<int64_t> known;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == kIgnored) continue;
      const auto row = features.begin() + static_cast<std::ptrdiff_t>(i) * width;
      counted.insert(counted.end(), row, row + width);
      known.push_back(labels[i]);
    }
    const auto rows = static_cast<int64_t>(known.size());
    knn_.emplace(Tensor::from(counted, {rows, static_cast<int64_t>(width)}), std::move(known),
                 classes_, options_);
  }

  void add(const Tensor& output, const Batch& batch) override {
    if (!knn_) return;  // begin() was stopped, and another rank's was not yet
    std::vector<float> features;
    std::vector<int64_t> labels;
    add_rows(output, batch.target, features, labels);
    const std::vector<int64_t> answers =
        knn_->classify(Tensor::from(features, {output.size(0), output.size(1)}));
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == kIgnored) continue;
      ++counted_;
      right_ += answers[i] == labels[i] ? 1 : 0;
    }
  }

  double value(double) const override {
    return static_cast<double>(right_) / static_cast<double>(std::max<int64_t>(counted_, 1));
  }

 private:
  const Task& task_;
  int64_t classes_;
  KnnOptions options_;
  SelfSupervision::MakeSamples samples_;
  std::optional<Knn> knn_;
  int64_t counted_ = 0, right_ = 0;
};

}  // namespace

// The second view goes the way of the first, so that it gets the same dtype.
Batch SelfSupervision::place(Batch batch, const Module& model) const {
  Batch second{find_tensor(batch.extras, kSecond), {}};
  batch.extras.clear();
  Batch placed = Task::place(std::move(batch), model);
  if (second.input.defined())
    placed.extras.emplace_back(kSecond, Task::place(std::move(second), model).input);
  return placed;
}

ForwardPass SelfSupervision::loss(Module& model, Batch& batch, Context& context,
                                  const LossOptions& options) const {
  models::SelfSupervised& network = network_of(model);
  ForwardPass pass;
  if (!context.training) {
    Variable features = run(model, batch, context);
    pass.loss = Variable(Tensor::zeros({}, DType::f32, features.device()));
    if (options.keep_output) pass.output = std::move(features);
    return pass;
  }
  Variable second(find_tensor(batch.extras, kSecond));
  FRUGAL_CHECK(second.defined() && second.value().defined(),
               "[self_supervised] expected batches with a {}, got one without; the loader makes it "
               "where LoaderOptions::second_view is set",
               kSecond);
  batch.extras.clear();
  models::SelfSupervisedLoss result =
      network.loss(Variable(std::move(batch.input)), std::move(second), context, options.gather);
  pass.loss = std::move(result.loss);
  pass.answers = std::move(result.margin);
  return pass;
}

Counts SelfSupervision::count(const ForwardPass& pass) const {
  Counts counts{pass.samples, 0};
  if (!pass.answers.defined() || pass.answers.device().type == DeviceType::meta) return counts;
  for (const double margin : to_device(pass.answers, kCpu).to_vector())
    counts.correct += margin > 0 ? 1 : 0;
  return counts;
}

bool SelfSupervision::has_loss_of_at_least_0(Module& model) const {
  return network_of(model).options().method != models::SelfSupervision::simsiam;
}

void SelfSupervision::after_update(Module& model, double progress) const {
  network_of(model).follow(progress);
}

Batch SelfSupervision::shape(int64_t samples, Device device) const {
  Batch batch = Task::shape(samples, device);
  const CategoryScope scope(Category::input);
  batch.extras.emplace_back(kSecond, Tensor::empty(batch.input.shape(), DType::f32, device));
  return batch;
}

std::unique_ptr<Metric> SelfSupervision::metric() const {
  if (!samples_) return nullptr;
  return std::make_unique<NearestNeighbours>(*this, spec().classes, knn_, samples_);
}

}  // namespace frugal::train
