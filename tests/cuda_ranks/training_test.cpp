// Trainers of several ranks on GPUs, beside the trainer of one process on the CPU.
#include <cmath>
#include <functional>

#include "autograd/functions.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "distributed/sharded_optimizer.h"
#include "models/layers.h"
#include "optim/optimizers.h"
#include "tests/cuda_ranks/cuda_ranks.h"
#include "train/trainer.h"

namespace frugal::distributed {
namespace {

constexpr int64_t kSide = 6, kClasses = 4, kSamples = 37, kBatch = 16;  // the last batch has 5

DatasetPtr pictures(int64_t count, uint64_t seed) {
  Tensor images = Tensor::empty({count, kSide, kSide, 1});
  Tensor labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    labels.mut<int64_t>()[i] = i % kClasses;
    for (int64_t at = 0; at < kSide * kSide; ++at)
      images.mut<float>()[i * kSide * kSide + at] =
          0.5f * normal({seed, 0}, static_cast<uint64_t>(i * kSide * kSide + at)) +
          static_cast<float>(at / kSide == i % kClasses);
  }
  return std::make_shared<data::MemoryDataset>(images, labels, kClasses);
}

// A convolution with batch norm, and a head.
class Net : public Module {
 public:
  explicit Net(Device device) {
    models::Init init;
    init.device = device;
    conv_ = register_module("conv", std::make_shared<models::Conv2d>(init, 1, 8, 3));
    norm_ = register_module("norm", std::make_shared<models::BatchNorm2d>(init, 8));
    head_ = register_module("head", std::make_shared<models::Linear>(init, 8 * 16, kClasses));
  }
  Variable forward(Variable x, Context& context) override {
    x = norm_->forward_relu(conv_->forward(x, context), context);
    return head_->forward(reshape(x, {x.value().size(0), 8 * 16}), context);
  }

 private:
  std::shared_ptr<models::Conv2d> conv_;
  std::shared_ptr<models::BatchNorm2d> norm_;
  std::shared_ptr<models::Linear> head_;
};

std::unique_ptr<Optimizer> sgd(const std::vector<ParameterGroup>& groups) {
  return std::make_unique<optim::Sgd>(groups, optim::SgdOptions{0.9, true, 1e-3});
}
std::unique_ptr<Optimizer> adam(const std::vector<ParameterGroup>& groups) {
  return std::make_unique<optim::Adam>(groups);
}

struct Setting {
  std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterGroup>& groups)> make = sgd;
  bool sharded = false;
  train::TrainerOptions options = {};

  Setting() {
    options.epochs = 2;
    options.compression.choice = compress::bits(0);
    options.spec.sample = {kSide, kSide, 1};
    options.spec.classes = kClasses;
    options.ranks.buckets = {.first_bytes = 64, .bytes = 512};
  }
};

struct Side {
  Net model;
  std::unique_ptr<Optimizer> optimizer;
  data::Loader batches, test;
  train::TrainerOptions options;

  Side(const Setting& setting, Device device, const CommunicatorPtr& ranks)
      : model(device),
        batches(pictures(kSamples, 1), {.batch_size = kBatch}),
        test(pictures(13, 2), {.batch_size = 10, .shuffle = false}),
        options(setting.options) {
    ParameterGroup group;
    for (const auto& p : model.parameters()) group.parameters.emplace_back(p.name, *p.parameter);
    if (setting.sharded)
      optimizer = std::make_unique<ShardedOptimizer>(ranks != nullptr ? ranks : alone(),
                                                     std::vector{group}, setting.make);
    else
      optimizer = setting.make({group});
    options.test = &test;
    options.ranks.communicator = ranks;
  }
  train::Trainer trainer() {
    return {model, *optimizer, optim::constant_schedule(0.01), batches, options};
  }
  NamedTensors values() {
    NamedTensors all;
    for (const auto& p : model.parameters())
      all.emplace_back(p.name, on_host(p.parameter->value()));
    for (const auto& b : model.buffers()) all.emplace_back(b.name, on_host(*b.buffer));
    return all;
  }
};

}  // namespace

TEST_CASE("training on several GPUs is that of one process on the CPU") {
  if (!gpu::available()) return;
  Setting setting;
  double bound = 1e-3;
  SUBCASE("momentum, a short last batch") {}
  SUBCASE("a limit of the gradient's norm, several batches in a step") {
    setting.options.clip_norm = 0.05;
    setting.options.gradient_accumulation = 2;
  }
  SUBCASE("shares of the optimizer's state") {
    setting.make = adam;
    setting.sharded = true;
    bound = 0.05;  // Adam divides by the size of small gradients
  }
  SUBCASE("shares of the gradients") {
    setting.sharded = setting.options.ranks.share_gradients = true;
  }
  SUBCASE("updates in the backward pass") { setting.options.in_backward = true; }
  SUBCASE("gradients in codes") {
    setting.options.ranks.compress_gradients = 8;
    bound = 0.05;
  }
  SUBCASE("activations in 4 bits") {
    setting.options.compression.choice = compress::bits(4, {.min_elements = 96});
    bound = 0.2;
  }
  Side one(setting, kCpu, nullptr), several(setting, gpu(), from_environment({60}));
  auto alone = one.trainer();
  CHECK(alone.run());
  auto together = several.trainer();
  CHECK(together.run());
  const NamedTensors expected = one.values(), found = several.values();
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(expected[i].first);
    check_equal_everywhere(found[i].second);
    const std::vector<double> a = expected[i].second.to_vector(), b = found[i].second.to_vector();
    REQUIRE(a.size() == b.size());
    double most = 0;
    for (size_t k = 0; k < a.size(); ++k) most = std::max(most, std::abs(a[k] - b[k]));
    CHECK(most <= bound);
  }
  CHECK(together.state().step == alone.state().step);
  CHECK(together.state().last->test.samples == 13);
  if (const auto report = together.ranks_report()) {
    CHECK(report->communication > 0);
    CHECK(report->waiting >= 0);
  }
}

}  // namespace frugal::distributed
