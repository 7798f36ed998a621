#include "train/tasks/self_supervised.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "core/random/random_streams.h"
#include "data/image/transforms.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "models/self_supervised/self_supervised.h"
#include "models/state.h"
#include "models/zoo/resnet_cifar.h"
#include "optim/optimizers.h"
#include "tests/train/temp_folder.h"
#include "train/evaluate.h"
#include "train/trainer.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr int64_t kPictureSide = 8, kPictures = 24, kColours = 2, kTrunkFeatures = 16;

// Pictures of two classes, which differ in colour.
DatasetPtr pictures(int64_t samples, uint64_t seed) {
  Tensor inputs = Tensor::randn({samples, kPictureSide, kPictureSide, 3}, {seed, 0});
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < samples; ++i) {
    labels.push_back(i % kColours);
    float* const at = inputs.mut<float>() + i * kPictureSide * kPictureSide * 3;
    for (int64_t p = 0; p < kPictureSide * kPictureSide; ++p)
      at[3 * p] += labels.back() == 1 ? 3.0F : -3.0F;
  }
  return std::make_shared<data::MemoryDataset>(inputs, Tensor::from(labels, {samples}), kColours);
}

BatchSpec spec() {
  BatchSpec images;
  images.sample = {kPictureSide, kPictureSide, 3};
  images.classes = kColours;
  images.target = BatchSpec::Target::views;
  images.metric = "knn";
  return images;
}

TaskPtr task_for(int64_t k = 5) {
  return std::make_shared<SelfSupervision>(spec(), KnnOptions{.k = k}, [] {
    return std::make_unique<data::Loader>(
        pictures(kPictures, 1),
        data::LoaderOptions{.batch_size = 10, .shuffle = false, .threads = 0});
  });
}

models::SelfSupervised network(models::SelfSupervision method, Device device = kCpu) {
  models::Init init{Rng(3), device};
  models::SelfSupervisedOptions options = models::published_options(method, kTrunkFeatures);
  options.projector = {12, 8};
  if (options.predictor > 0) options.predictor = 6;
  if (options.queue > 0) options.queue = 20;
  const auto trunk = [](models::Init& at) {
    models::CifarResNetOptions small;
    small.blocks = 1;
    small.width = 4;
    small.num_classes = 0;
    return std::make_shared<models::CifarResNet>(at, small);
  };
  return {init, trunk, kTrunkFeatures, options};
}

data::LoaderOptions two_views(const DatasetPtr& dataset) {
  return {.batch_size = 10, .seed = 2, .threads = 1, .second_view = dataset};
}
DatasetPtr augmented() {
  return std::make_shared<data::HorizontalFlip>(
      std::make_shared<data::PadCrop>(pictures(kPictures, 1), 2));
}

// A run of 2 epochs of 3 steps, the last batch of which is short.
struct SelfSupervisedRun {
  models::SelfSupervised net;
  optim::Sgd sgd;
  data::Loader batches, test;
  TrainerOptions options;
  SelfSupervisedRun(models::SelfSupervision method, double bits)
      : net(network(method)),
        sgd(net.parameters(), {.momentum = 0.9}),
        batches(augmented(), two_views(augmented())),
        test(pictures(10, 7), {.batch_size = 4, .shuffle = false}) {
    options.epochs = 2;
    options.seed = 4;
    options.test = &test;
    options.task = task_for();
    options.spec = spec();
    options.compression.choice = compress::bits(bits, {.min_elements = 0});
    options.compression.choice.measuring.first = 2;
    options.compression.choice.measuring.samples = 4;
  }
  Trainer trainer() { return Trainer(net, sgd, optim::constant_schedule(0.02), batches, options); }
  std::vector<double> state() {
    std::vector<double> all;
    for (const auto& [name, tensor] : models::state_dict(net))
      for (const double value : tensor.to_vector()) all.push_back(value);
    return all;
  }
};

constexpr models::SelfSupervision kAll[] = {models::SelfSupervision::simsiam,
                                            models::SelfSupervision::byol,
                                            models::SelfSupervision::moco_v2};

}  // namespace

TEST_CASE("the task's loss is the network's, and evaluations give features") {
  for (const models::SelfSupervision method : kAll) {
    models::SelfSupervised net = network(method), same = network(method);
    data::Loader loader(augmented(), two_views(augmented()));
    Batch batch = *loader.next();
    Context context, other;
    const double wanted = same.loss(Variable(batch.input), Variable(batch.extras[0].second), other)
                              .loss.value()
                              .item();
    Batch placed = batch;
    const TaskPtr task = task_for();
    const ForwardPass pass = forward_pass(*task, net, placed, context, {});
    CHECK(pass.loss.value().item() == wanted);
    CHECK(task->weight(batch) == 10);
    const BatchResult result = read(*task, pass);
    CHECK(result.counted == 10);
    CHECK(result.correct <= 10);
    if (method != models::SelfSupervision::moco_v2) CHECK(result.correct == 0);
    const Batch part = task->part(batch, 2, 5);
    CHECK(part.extras[0].second.size(0) == 3);
    context.training = false;
    Batch judged = batch;
    const ForwardPass seen = forward_pass(*task, net, judged, context, {.keep_output = true});
    CHECK(seen.output.shape() == Shape{10, kTrunkFeatures});
    CHECK(seen.loss.value().item() == 0);
  }
}

TEST_CASE("moco's right samples are those that are more like their key than like the queue's") {
  const TaskPtr task = task_for();
  ForwardPass pass;
  pass.samples = 4;
  pass.answers = Tensor::from<float>({0.5F, -0.1F, 0, 0.01F}, {4});
  CHECK(task->count(pass).counted == 4);
  CHECK(task->count(pass).correct == 2);
}

TEST_CASE("knn: pictures that differ in colour are told apart, of all test samples") {
  models::SelfSupervised net = network(models::SelfSupervision::simsiam);
  data::Loader test(pictures(10, 7), {.batch_size = 4, .shuffle = false});
  const auto found = evaluate(*task_for(), net, test);
  REQUIRE(found->metric);
  CHECK(*found->metric >= 0.8);  // the features are untrained
  CHECK(found->samples == 10);
  CHECK(found->loss == 0);
  int asked = 0;
  CHECK(!evaluate(*task_for(), net, test, [&] { return ++asked > 1; }));
}

TEST_CASE("a run of two views that was cut goes on to the same bits") {
  for (const models::SelfSupervision method : kAll)
    for (const double bits : {method == models::SelfSupervision::moco_v2 ? 2.5 : 4.0}) {
      CAPTURE(static_cast<int>(method));
      CAPTURE(bits);
      SelfSupervisedRun whole(method, bits);
      Trainer uncut = whole.trainer();
      REQUIRE(uncut.run());
      for (const int64_t cut : {4}) {  // within the second epoch
        const TempFolder temp;
        {
          SelfSupervisedRun first(method, bits);
          first.options.folder = std::make_shared<RunFolder>(temp.path + "/run", false);
          first.options.on_step = [&](const StepReport& report) { return report.step != cut; };
          CHECK(!first.trainer().run());
        }
        SelfSupervisedRun second(method, bits);
        second.options.folder = std::make_shared<RunFolder>(temp.path + "/run", true);
        Trainer trainer = second.trainer();
        CHECK(trainer.run());
        CHECK(second.state() == whole.state());
        CHECK(trainer.state().last->test.metric == uncut.state().last->test.metric);
      }
    }
}

TEST_CASE("a step of the trainer moves the copy towards the network, as far as the run has come") {
  SelfSupervisedRun run(models::SelfSupervision::byol, 0);
  const auto value = [](models::SelfSupervised& net, const std::string& name) {
    for (const auto& p : net.parameters())
      if (p.name == name) return p.parameter->value().to_vector();
    FAIL(name);
    return std::vector<double>{};
  };
  const std::string name = "projector.0.weight";
  std::vector<double> copy = value(run.net, name);
  run.options.on_step = [&](const StepReport& report) {
    const double done = static_cast<double>(report.step) / 6;
    const double moves = (1 - 0.996) * (std::cos(3.14159265358979 * done) + 1) / 2;
    const std::vector<double> now = value(run.net, name),
                              followed = value(run.net, "target_" + name);
    for (size_t i = 0; i < copy.size(); ++i) copy[i] += moves * (now[i] - copy[i]);
    for (size_t i = 0; i < copy.size(); ++i) CHECK(followed[i] == doctest::Approx(copy[i]));
    return true;
  };
  REQUIRE(run.trainer().run());
  CHECK(copy != value(run.net, name));
}

TEST_CASE("a batch on meta has both views, and one without a second view is refused") {
  const Batch batch = task_for()->shape(6, kMeta);
  REQUIRE(batch.extras.size() == 1);
  CHECK(batch.extras[0].second.shape() == Shape{6, kPictureSide, kPictureSide, 3});
  models::SelfSupervised net = network(models::SelfSupervision::byol);
  Context context;
  Batch single;
  single.input = Tensor::zeros({4, kPictureSide, kPictureSide, 3});
  CHECK_THROWS_WITH_AS(forward_pass(*task_for(), net, single, context, {}),
                       doctest::Contains("second_view"), Error);
  models::Init init;
  models::CifarResNet other(init, models::cifar_resnet_options("resnet20"));
  CHECK_THROWS_WITH_AS(forward_pass(*task_for(), other, single, context, {}),
                       doctest::Contains("a network of two views, which is made as "
                                         "models::SelfSupervised, got another one"),
                       Error);
}
