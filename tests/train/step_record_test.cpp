#include "train/step_record.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "data/loader.h"
#include "data/memory_dataset.h"
#include "models/zoo/resnet_cifar.h"
#include "optim/optimizers.h"
#include "train/trainer.h"

using namespace frugal;
using namespace frugal::train;

namespace {

DatasetPtr pictures(int64_t count) {
  const CategoryScope scope(Category::input);
  const Tensor images = Tensor::randn({count, 8, 8, 3}, {1, 0});
  Tensor labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) labels.mut<int64_t>()[i] = i % 4;
  return std::make_shared<data::MemoryDataset>(images, labels, 4);
}

struct Trained {
  std::vector<std::pair<int64_t, StepRecord>> records;
  std::vector<float> weights;
  StepMemory memory;
};

// 4 batches in an epoch.
Trained trained(TrainerOptions options, bool record) {
  models::Init init{Rng(0), kCpu};
  models::CifarResNet model(init, {.blocks = 1, .num_classes = 4});
  optim::Sgd sgd(model.parameters(), {.momentum = 0.9});
  data::Loader batches(pictures(64), {16, true, false, 0, 0});
  options.epochs = 5;
  options.compression.choice.keep().min_elements = 300;
  Trained out;
  if (record)
    options.on_record = [&](const StepRecord& made, int64_t step) {
      out.records.emplace_back(step, made);
    };
  Trainer trainer(model, sgd, optim::constant_schedule(0.05), batches, options);
  CHECK(trainer.run());
  for (const auto& p : model.parameters()) {
    const Tensor& w = p.parameter->value();
    out.weights.insert(out.weights.end(), w.data<float>(), w.data<float>() + w.numel());
  }
  out.memory = trainer.state().memory;
  return out;
}

int64_t stored(const StepRecord& record) {
  int64_t sum = 0;
  for (const SavedRecord& tensor : record.tensors) sum += tensor.stored_bytes.value_or(0);
  return sum;
}

int64_t total(const CategoryBytes& live) {
  return std::accumulate(live.begin(), live.end(), int64_t{0});
}

std::vector<TrainerOptions> kinds() {
  std::vector<TrainerOptions> all(7);
  all[0].compression.choice = compress::bits(0, {.recipes = false});
  all[1].compression.choice = compress::bits(2);
  all[2].compression.choice = compress::bits(3.5);
  all[2].compression.choice.measuring = {.interval = 3, .first = 1, .samples = 4, .share = 1};
  all[3].compression.choice.entropy = true;
  all[4].gradient_accumulation = 3;
  all[5].checkpointed_blocks = all[6].checkpointed_blocks = 2;
  all[6].compression.choice =
      compress::bits(4, {.recipes = false, .min_elements = 0, .pack_recomputed = true});
  return all;
}

}  // namespace

TEST_CASE("recorded steps leave weights and memory as they are, and are steps 2, 5 and 13") {
  for (const TrainerOptions& options : kinds()) {
    CAPTURE(options.compression.choice.bits());
    CAPTURE(options.gradient_accumulation);
    const Trained plain = trained(options, false), recorded = trained(options, true);
    CHECK(plain.records.empty());
    CHECK(plain.weights == recorded.weights);
    CHECK(plain.memory.peak == recorded.memory.peak);
    CHECK(plain.memory.at_peak == recorded.memory.at_peak);
    CHECK(plain.memory.activation == recorded.memory.activation);
    CHECK(plain.memory.packed == recorded.memory.packed);
    std::vector<int64_t> steps;
    for (const auto& [step, record] : recorded.records) steps.push_back(step);
    // The second step, and the first ones of the epochs 2 and 4.
    CHECK(steps == (options.gradient_accumulation == 1 ? std::vector<int64_t>{2, 5, 13}
                                                       : std::vector<int64_t>{2, 3, 7}));
  }
}

TEST_CASE("what is stored is what is live between forward and backward") {
  constexpr int64_t kLoss = 64;  // the block of the loss, which no op saves
  for (const TrainerOptions& options : kinds()) {
    CAPTURE(options.compression.choice.bits());
    for (const auto& [step, record] : trained(options, true).records) {
      const auto& this_step = step;
      CAPTURE(this_step);
      CHECK(record.memory.saved() == stored(record) + kLoss);
      int64_t packed = 0;
      for (const SavedRecord& tensor : record.tensors)
        if (tensor.how == SavedRecord::How::packed) packed += *tensor.stored_bytes;
      CHECK(packed == record.memory.packed);
    }
  }
}

TEST_CASE("tensors have the layers of their ops, and errors that fall with the bits") {
  TrainerOptions options;
  const auto error_at = [&](double bits) {
    options.compression.choice = compress::bits(bits);
    const Trained run = trained(options, true);
    for (const SavedRecord& tensor : run.records.front().second.tensors)
      if (tensor.layer == "layer2.0.bn1" && tensor.how == SavedRecord::How::packed) {
        CHECK(tensor.shape == Shape{16, 4, 4, 32});
        CHECK(tensor.raw_bytes == 16 * 4 * 4 * 32 * 4);
        CHECK(*tensor.stored_bytes < tensor.raw_bytes / 3);
        CHECK(tensor.pack_seconds > 0);
        CHECK(tensor.unpack_seconds > 0);
        return tensor.error.value_or(-1);
      }
    FAIL("no packed tensor of layer2.0.bn1");
    return 0.0;
  };
  const double three = error_at(3), four = error_at(4), eight = error_at(8);
  CHECK(eight > 0);
  CHECK(four > eight);
  CHECK(three > four);
  const Trained run = trained(options, true);
  const auto& tensors = run.records.front().second.tensors;
  CHECK(tensors.front().layer == "conv1");
  CHECK(tensors.front().how == SavedRecord::How::in_memory);  // the batch
  CHECK(std::any_of(tensors.begin(), tensors.end(), [](const SavedRecord& tensor) {
    return tensor.layer == "layer1.0.conv1" && tensor.how == SavedRecord::How::rebuilt &&
           tensor.stored_bytes == 0;
  }));
  CHECK(std::any_of(tensors.begin(), tensors.end(),
                    [](const SavedRecord& tensor) { return tensor.layer == "linear"; }));
}

TEST_CASE("the curve holds the peak, and the largest parts are what is live there") {
  for (const TrainerOptions& options : kinds()) {
    CAPTURE(options.compression.choice.bits());
    for (const auto& [step, record] : trained(options, true).records) {
      const auto& this_step = step;
      CAPTURE(this_step);
      REQUIRE(record.curve);
      const MemoryCurve& curve = *record.curve;
      REQUIRE(curve.peak < curve.points.size());
      CHECK(curve.points.size() <= MemoryCurve::kPoints);
      const CategoryBytes& top = curve.points[curve.peak].live;
      CHECK(total(top) == record.memory.peak);
      CHECK(top == record.memory.at_peak);
      for (const auto& point : curve.points) CHECK(total(point.live) <= total(top));
      CHECK(curve.points.front().phase == MemoryCurve::Phase::forward);
      // The op is known only if the peak lies in the first batch of a step.
      CHECK((options.gradient_accumulation > 1 || !curve.op.empty()));
      REQUIRE(!curve.largest.empty());
      CHECK(curve.largest.size() <= MemoryCurve::kLargest);
      CategoryBytes sums{};
      for (size_t i = 0; i < curve.largest.size(); ++i) {
        const MemoryCurve::Part& part = curve.largest[i];
        sums[static_cast<size_t>(part.category)] += part.bytes;
        if (i > 0) CHECK(part.bytes <= curve.largest[i - 1].bytes);
      }
      for (size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] <= top[i]);
    }
  }
}

TEST_CASE("with offload a step has no curve, and what is moved has no bytes") {
  TrainerOptions options;
  options.compression.choice.offload =
      compress::OffloadOptions{.directory = "/tmp", .window = 4096};
  const Trained plain = trained(options, false), recorded = trained(options, true);
  CHECK(plain.weights == recorded.weights);
  const StepRecord& record = recorded.records.front().second;
  CHECK(!record.curve);
  CHECK(std::any_of(record.tensors.begin(), record.tensors.end(), [](const SavedRecord& tensor) {
    return tensor.how == SavedRecord::How::moved && !tensor.stored_bytes && !tensor.error;
  }));
}
