// Batches whose input a step releases when its first layer has run.
#include <doctest/doctest.h>

#include <cmath>

#include "compress/policies/adaptive_policy.h"
#include "compress/policies/fixed_policy.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "models/zoo/resnet_cifar.h"
#include "ops/kernel_memory.h"
#include "optim/optimizers.h"
#include "tests/train/task_of.h"
#include "tests/train/temp_folder.h"
#include "train/noise/sensitivity.h"
#include "train/trainer.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr int64_t kInputSide = 16, kInputClasses = 4, kBatch = 24;
constexpr int64_t kInputBytes = kBatch * kInputSide * kInputSide * 3 * 4;

BatchSpec input_spec(bool releases) {
  BatchSpec spec;
  spec.sample = {kInputSide, kInputSide, 3};
  spec.classes = kInputClasses;
  spec.releases_input = releases;
  return spec;
}

Batch batch_on(Device device) {
  if (device == kMeta) return make_task(input_spec(true))->shape(kBatch, kMeta);
  const CategoryScope scope(Category::input);
  Batch batch;
  batch.input = Tensor::randn({kBatch, kInputSide, kInputSide, 3}, {7, 0});
  batch.target = Tensor::empty({kBatch}, DType::i64);
  for (int64_t i = 0; i < kBatch; ++i) batch.target.mut<int64_t>()[i] = i % kInputClasses;
  batch.samples = Tensor::zeros({kBatch}, DType::i64);
  return batch;
}

std::shared_ptr<Module> small_net(Device device) {
  models::Init init{Rng(3), device};
  models::CifarResNetOptions options;
  options.blocks = 1;
  options.num_classes = kInputClasses;
  return std::make_shared<models::CifarResNet>(init, options);
}

compress::FixedPolicyOptions bits_of(int bits) {
  compress::FixedPolicyOptions options;
  options.bits = bits;
  options.min_elements = 256;
  return options;
}

// Notes what the step saved of the batch.
class Noting final : public SavePolicy {
 public:
  explicit Noting(const compress::FixedPolicyOptions& options) : inner_(options) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    if (info.released) released.push_back(value.shape());
    return inner_.decide(info, value);
  }
  bool decides_by_shape() const override { return true; }
  std::vector<Shape> released;

 private:
  compress::FixedPolicy inner_;
};

struct Step {
  std::vector<float> gradient, first;  // gradients of all parameters, and of the first
  int64_t input = 0;                   // live bytes of category input, between forward and backward
  StepMemory memory;
};

Step step_with(SavePolicy& policy, bool releases, Device device = kCpu, uint64_t number = 0) {
  const TaskPtr task = make_task(input_spec(releases));
  const auto model = small_net(device);
  Context context;
  begin_step(number);
  const int64_t before = allocator(device).report().of(Category::input);
  Batch batch = batch_on(device);
  Step step;
  PassOptions options;
  options.before_backward = [&](const Variable&, const StepMemory& memory) {
    step.memory = memory;
    step.input = allocator(device).report().of(Category::input) - before;
  };
  begin_peak(device);
  forward_backward(*task, *model, std::move(batch), context, &policy, options);
  end_peak(device, step.memory);
  if (device == kMeta) return step;
  for (const auto& p : model->parameters()) {
    const Tensor g = p.parameter->grad();
    step.gradient.insert(step.gradient.end(), g.data<float>(), g.data<float>() + g.numel());
    if (step.first.empty()) step.first = step.gradient;
  }
  return step;
}

}  // namespace

TEST_CASE("a released input is packed, and its bytes are gone before the backward pass") {
  for (const Device device : {kCpu, kMeta}) {
    CAPTURE(device.type == DeviceType::meta);
    Noting held(bits_of(4)), released(bits_of(4));
    const Step a = step_with(held, false, device), b = step_with(released, true, device);
    CHECK(held.released.empty());
    CHECK(released.released == std::vector<Shape>{{kBatch, kInputSide, kInputSide, 3}});
    CHECK(a.input >= kInputBytes);
    CHECK(b.input == a.input - kInputBytes);
    const int64_t codes = b.memory.packed - a.memory.packed;
    CHECK(codes > kInputBytes / 8);
    CHECK(codes < kInputBytes / 5);
    CHECK(b.memory.packed_elements - a.memory.packed_elements == kInputBytes / 4);
    CHECK(b.memory.activation == a.memory.activation);
    CHECK(b.memory.peak < a.memory.peak - kInputBytes / 2);
  }
}

TEST_CASE("a step on meta that releases its input takes what a real one takes") {
  for (const int bits : {0, 2, 4}) {
    CAPTURE(bits);
    Noting one(bits_of(bits)), two(bits_of(bits));
    const Step real = step_with(one, true);
    const ops::KernelMemoryScope kernels;  // newer versions of oneDNN take more for themselves
    const Step meta = step_with(two, true, kMeta);
    CHECK(one.released == two.released);
    CHECK(real.memory.packed == meta.memory.packed);
    CHECK(real.input == meta.input);
    CHECK(std::abs(static_cast<double>(real.memory.saved() - meta.memory.saved())) <
          0.01 * static_cast<double>(real.memory.saved()));
    CHECK(std::abs(static_cast<double>(real.memory.peak - meta.memory.peak)) <
          0.01 * static_cast<double>(real.memory.peak));
  }
}

TEST_CASE("without loss, a released input changes no gradient") {
  compress::FixedPolicy policy(bits_of(0));
  CHECK(step_with(policy, true).gradient == step_with(policy, false).gradient);
}

TEST_CASE("the gradient of a first layer whose input is packed has no bias") {
  // All else is kept as it is.
  class OnlyInput final : public SavePolicy {
   public:
    OnlyInput() : inner_(bits_of(2)) {}
    Decision decide(const SaveInfo& info, const Tensor& value) override {
      return info.released ? inner_.decide(info, value) : Decision{};
    }

   private:
    compress::FixedPolicy inner_;
  } policy;
  compress::FixedPolicy exact(bits_of(0));
  const Step wanted = step_with(exact, true);
  constexpr int kDraws = 16;
  std::vector<double> mean(wanted.first.size());
  double variance = 0;  // variance of one draw
  for (int draw = 0; draw < kDraws; ++draw) {
    const Step one = step_with(policy, true, kCpu, static_cast<uint64_t>(draw));
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += one.first[i] / double{kDraws};
      variance += std::pow(one.first[i] - wanted.first[i], 2) / kDraws;
    }
    // Nothing else depends on the input.
    for (size_t i = mean.size(); i < wanted.gradient.size(); ++i)
      REQUIRE(one.gradient[i] == wanted.gradient[i]);
  }
  double distance = 0;
  for (size_t i = 0; i < mean.size(); ++i) distance += std::pow(mean[i] - wanted.first[i], 2);
  CHECK(variance > 0);
  CHECK(distance * kDraws / variance < 1.5);  // 1 without bias
}

TEST_CASE("a batch that its source holds is not released") {
  compress::FixedPolicy policy(bits_of(4));
  const TaskPtr task = make_task(input_spec(true));
  const auto model = small_net(kCpu);
  Batch batch = batch_on(kCpu);
  batch.held = true;
  Context context;
  begin_step(0);
  PassOptions options;
  const Tensor input = batch.input;
  options.before_backward = [&](const Variable&, const StepMemory&) {
    CHECK(input.storage().use_count() > 1);  // saved as it is
  };
  forward_backward(*task, *model, std::move(batch), context, &policy, options);
}

TEST_CASE("after a step that released its input, widths come from the samples that were kept") {
  const TaskPtr task = make_task(input_spec(true));
  const Batch batch = batch_on(kCpu);
  const auto widths = [&](bool kept) {
    compress::AdaptiveOptions adaptive;
    adaptive.average = 3;
    adaptive.keep = bits_of(4);
    compress::AdaptivePolicy policy(adaptive);
    const auto model = small_net(kCpu);
    Context context;
    begin_step(0);
    forward_backward(*task, *model, batch, context, &policy, {});
    SensitivityOptions options;
    options.samples = 8;
    Adaptation adaptation(*task, *model, policy, options);
    const Measured measured = adaptation.keep(batch);
    CHECK(measured.of == kBatch);
    CHECK(measured.batch.input.size(0) == 8);
    CHECK(measured.batch.input.storage() != batch.input.storage());
    kept ? adaptation.refresh(measured, 1, {}) : adaptation.refresh(batch, 1, {});
    std::vector<std::pair<uint64_t, int>> all;
    for (const auto& item : policy.items()) all.emplace_back(item.seq, item.bits);
    return all;
  };
  const auto found = widths(true);
  CHECK(found == widths(false));
  CHECK(found.front().first == 0);  // the input
}

TEST_CASE("runs that release their input go on from their folder to the same bits") {
  const auto images = [](int64_t count) {
    const CategoryScope scope(Category::input);
    Tensor labels = Tensor::empty({count}, DType::i64);
    for (int64_t i = 0; i < count; ++i) labels.mut<int64_t>()[i] = i % kInputClasses;
    return std::make_shared<data::MemoryDataset>(
        Tensor::randn({count, kInputSide, kInputSide, 3}, {9, 0}), labels, kInputClasses);
  };
  const auto run = [&](double bits, const std::string& folder, bool resumes, int64_t until) {
    const auto model = small_net(kCpu);
    ParameterGroup all;
    for (const auto& p : model->parameters()) all.parameters.emplace_back(p.name, *p.parameter);
    optim::Sgd sgd({all}, {0.9, false});
    data::Loader batches(images(5 * kBatch), {kBatch, true, false, 0, 0});
    TrainerOptions options;
    options.spec = input_spec(true);
    options.epochs = 1;
    options.compression.choice = compress::bits(bits, {.min_elements = 256});
    options.compression.choice.measuring.interval = 2;
    options.compression.choice.measuring.first = 2;
    options.compression.choice.measuring.samples = 8;
    if (!folder.empty()) options.folder = std::make_shared<RunFolder>(folder, resumes);
    options.on_step = [&](const StepReport& report) { return report.step != until; };
    Trainer trainer(*model, sgd, optim::constant_schedule(0.05), batches, options);
    CHECK(trainer.run() == (until == 0));
    std::vector<float> weights;
    for (const auto& p : model->parameters()) {
      const Tensor& w = p.parameter->value();
      weights.insert(weights.end(), w.data<float>(), w.data<float>() + w.numel());
    }
    return weights;
  };
  for (const double bits : {2.0, 2.5}) {
    CAPTURE(bits);
    const auto whole = run(bits, "", false, 0);
    for (const int64_t cut : {1, 3}) {
      CAPTURE(cut);
      const TempFolder temp;
      run(bits, temp.path + "/run", false, cut);
      CHECK(run(bits, temp.path + "/run", true, 0) == whole);
    }
  }
}
