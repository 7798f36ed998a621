// Training on targets that are shares of classes, answers or values.
#include <doctest/doctest.h>

#include "models/zoo/mlp.h"
#include "tests/train/task_of.h"
#include "train/batch_spec.h"
#include "train/training_step.h"

using namespace frugal;
using namespace frugal::train;

namespace {

std::shared_ptr<Module> network(int64_t outputs) {
  models::Init init;
  init.rng = Rng(1);
  models::MlpOptions options;
  options.in_features = 4;
  options.hidden = {8};
  options.num_classes = outputs;
  return std::make_shared<models::Mlp>(init, options);
}

Batch batch_of(const Tensor& target, FloatTargets floats) {
  Batch batch{Tensor::from<float>({1, 2, 3, 4, -1, 2, 0, 1, 3, -2, 1, 0}, {3, 4}), target};
  batch.floats = floats;
  return batch;
}

BatchResult step(Module& model, const Batch& batch, double smoothing = 0) {
  Rng rng(0);
  Context context;
  context.rng = &rng;
  return forward_backward(task_of(batch), model, batch, context, nullptr, {smoothing, 1, {}});
}

std::vector<double> gradient(Module& model) {
  std::vector<double> all;
  for (const auto& p : model.parameters()) {
    const auto values = p.parameter->grad().to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("shares of one class train as that class does, and the larger share is the right one") {
  const auto a = network(3), b = network(3);
  const BatchResult hard =
      step(*a, batch_of(Tensor::from<int64_t>({2, 0, 1}, {3}), FloatTargets::answers), 0.1);
  const BatchResult soft = step(
      *b, batch_of(Tensor::from<float>({0, 0, 1, 1, 0, 0, 0, 1, 0}, {3, 3}), FloatTargets::shares),
      0.1);
  CHECK(soft.loss == doctest::Approx(hard.loss));
  CHECK(soft.correct == hard.correct);
  CHECK(soft.counted == 3);
  const auto left = gradient(*a), right = gradient(*b);
  for (size_t i = 0; i < left.size(); ++i)
    CHECK(right[i] == doctest::Approx(left[i]).epsilon(1e-4));
  const Tensor mixed = Tensor::from<float>({-100, -100, -100, 0.6f, 0, 0.4f, 0, 0, 1}, {3, 3});
  CHECK(step(*network(3), batch_of(mixed, FloatTargets::shares)).counted == 2);
  CHECK(classification().weight(batch_of(mixed, FloatTargets::shares)) == 2);
}

TEST_CASE("values train by their squared error, and none is counted as right") {
  const auto model = network(2);
  const Tensor values = Tensor::from<float>({-3, -3, -3, -3, -3, -3}, {3, 2});
  const double first = step(*model, batch_of(values, FloatTargets::values)).loss;
  const BatchResult result = step(*model, batch_of(values, FloatTargets::values));
  CHECK(result.loss == first);
  CHECK(result.counted == 6);
  CHECK(result.correct == 0);
}

TEST_CASE("answers of samples that do not count make no loss") {
  const auto a = network(2), b = network(2);
  const BatchResult all = step(
      *a, batch_of(Tensor::from<float>({1, 0, -100, -100, 0, 1}, {3, 2}), FloatTargets::answers));
  CHECK(all.counted == 4);
  Batch some = batch_of(Tensor::from<float>({1, 0, 0, 1}, {2, 2}), FloatTargets::answers);
  some.input = Tensor::from<float>({1, 2, 3, 4, 3, -2, 1, 0}, {2, 4});
  CHECK(all.loss == doctest::Approx(step(*b, some).loss));
}

TEST_CASE("a shape of a batch has the targets of its data") {
  BatchSpec spec;
  spec.sample = {8, 8, 3};
  spec.classes = 5;
  spec.mixes = true;
  const Batch mixed = shape_of_batch(spec, 4, kMeta);
  CHECK(mixed.target.shape() == Shape{4, 5});
  CHECK(mixed.floats == FloatTargets::shares);
  CHECK(classification().part(mixed, 1, 3).floats == FloatTargets::shares);
  spec.mixes = false;
  spec.kind = BatchSpec::Kind::rows;
  spec.sample = {7};
  spec.target = BatchSpec::Target::values;
  const Batch values = shape_of_batch(spec, 4, kMeta);
  CHECK(values.input.shape() == Shape{4, 7});
  CHECK(values.floats == FloatTargets::values);
  CHECK(std::string(unit_of(spec)) == "rows");
}
