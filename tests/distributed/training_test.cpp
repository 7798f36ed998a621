// Trainers of several ranks beside the trainer of one process.
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "autograd/functions.h"
#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "distributed/sharded_optimizer.h"
#include "models/layers.h"
#include "ops/dense/copy.h"
#include "optim/averaged.h"
#include "optim/optimizers.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/small_network.h"
#include "train/compression_state.h"
#include "train/evaluate.h"
#include "train/option_error.h"
#include "train/tasks/classification.h"
#include "train/trainer.h"

namespace frugal::distributed {
namespace {

using train::TrainerOptions;

constexpr int64_t kSide = 6, kClasses = 4, kSamples = 53, kBatchSize = 16;  // the last batch has 5

// Every seventh sample does not count.
class SomeIgnored final : public Dataset {
 public:
  explicit SomeIgnored(DatasetPtr all) : all_(std::move(all)) {}
  int64_t size() const override { return all_->size(); }
  int64_t classes() const override { return all_->classes(); }
  Shape sample_shape() const override { return all_->sample_shape(); }
  int64_t get_into(int64_t index, RngKey key, float* out) const override {
    const int64_t label = all_->get_into(index, key, out);
    return index % 7 == 3 ? kIgnored : label;
  }

 private:
  DatasetPtr all_;
};

DatasetPtr pictures(int64_t count, uint64_t seed, int64_t broken = -1) {
  Tensor images = Tensor::empty({count, kSide, kSide, 1});
  Tensor labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    labels.mut<int64_t>()[i] = i % kClasses;
    for (int64_t at = 0; at < kSide * kSide; ++at)
      images.mut<float>()[i * kSide * kSide + at] =
          0.5f * normal({seed, 0}, static_cast<uint64_t>(i * kSide * kSide + at)) +
          static_cast<float>(at / kSide == i % kClasses);
  }
  if (broken >= 0)
    images.mut<float>()[broken * kSide * kSide] = std::numeric_limits<float>::infinity();
  return std::make_shared<SomeIgnored>(
      std::make_shared<data::MemoryDataset>(images, labels, kClasses));
}

// A convolution with batch norm, and a head.
class Net : public Module {
 public:
  Net(DType dtype, double drop) : dtype_(dtype), drop_(drop) {
    models::Init init;
    conv_ = register_module("conv", std::make_shared<models::Conv2d>(init, 1, 8, 3));
    norm_ = register_module("norm", std::make_shared<models::BatchNorm2d>(init, 8));
    head_ = register_module("head", std::make_shared<models::Linear>(init, 8 * 16, kClasses));
    for (const auto& p : parameters())
      p.parameter->set_value(ops::cast(p.parameter->value(), dtype));
    for (const auto& b : buffers())
      if (is_floating(b.buffer->dtype())) *b.buffer = ops::cast(*b.buffer, dtype);
  }
  Variable forward(Variable x, Context& context) override {
    if (x.value().dtype() != dtype_) x = Variable(ops::cast(x.value(), dtype_));
    x = norm_->forward_relu(conv_->forward(x, context), context);
    x = reshape(x, {x.value().size(0), 8 * 16});
    if (drop_ > 0 && context.training) x = dropout(x, drop_, context.rng->next());
    return head_->forward(x, context);
  }

 private:
  DType dtype_;
  double drop_;
  std::shared_ptr<models::Conv2d> conv_;
  std::shared_ptr<models::BatchNorm2d> norm_;
  std::shared_ptr<models::Linear> head_;
};

using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterGroup>& groups)>;

std::unique_ptr<Optimizer> sgd(const std::vector<ParameterGroup>& groups) {
  return std::make_unique<optim::Sgd>(groups, optim::SgdOptions{0.9, true, 1e-3});
}
std::unique_ptr<Optimizer> adam(const std::vector<ParameterGroup>& groups) {
  return std::make_unique<optim::Adam>(groups);
}
std::unique_ptr<Optimizer> lamb(const std::vector<ParameterGroup>& groups) {
  return std::make_unique<optim::Lamb>(groups);
}

struct Setting {
  DType dtype = DType::f32;
  double drop = 0;
  Make make = sgd;
  bool sharded = false, averaged = false;
  double rate = 0.05;
  int64_t broken = -1;  // a sample with a value that is not finite
  int64_t samples = kSamples;
  TrainerOptions options = {};

  Setting() {
    options.epochs = 2;
    options.compression.choice = compress::bits(0, {.min_elements = 96});
    options.compression.choice.measuring = {.interval = 3, .first = 2, .samples = 4};
    options.spec.sample = {kSide, kSide, 1};
    options.spec.classes = kClasses;
  }
};

// Everything that a trainer needs.
struct Side {
  Net model;
  std::unique_ptr<Optimizer> optimizer;
  data::Loader batches, test;
  TrainerOptions options;
  double rate;

  Side(const Setting& setting, const CommunicatorPtr& ranks)
      : model(setting.dtype, setting.drop),
        batches(pictures(setting.samples, 1, setting.broken), {.batch_size = kBatchSize}),
        test(pictures(37, 2), {.batch_size = 10, .shuffle = false}),
        options(setting.options),
        rate(setting.rate) {
    NamedVariables all;
    ParameterGroup group;
    for (const auto& p : model.parameters()) all.emplace_back(p.name, *p.parameter);
    group.parameters = all;
    if (setting.sharded)
      optimizer = std::make_unique<ShardedOptimizer>(ranks != nullptr ? ranks : alone(),
                                                     std::vector{group}, setting.make);
    else
      optimizer = setting.make({group});
    if (setting.averaged)
      optimizer = std::make_unique<optim::Averaged>(std::move(optimizer), all,
                                                    optim::EmaOptions{.decay = 0.9});
    options.test = &test;
    options.ranks.communicator = ranks;
    options.ranks.buckets = {.first_bytes = 64, .bytes = 512};
  }
  train::Trainer trainer() {
    return {model, *optimizer, optim::constant_schedule(rate), batches, options};
  }
  NamedTensors values() {
    NamedTensors all;
    for (const auto& p : model.parameters()) all.emplace_back(p.name, p.parameter->value());
    for (const auto& b : model.buffers()) all.emplace_back(b.name, *b.buffer);
    return all;
  }
};

// Equal on all ranks to the bit, and to the training of one process within `bound`.
void check_like_one(const Setting& setting, double bound) {
  Side one(setting, nullptr), several(setting, from_environment({60}));
  auto alone = one.trainer();
  CHECK(alone.run());
  auto together = several.trainer();
  CHECK(together.run());
  const NamedTensors expected = one.values(), found = several.values();
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(expected[i].first);
    check_equal_everywhere(ops::contiguous(found[i].second));
    CHECK(largest_difference(found[i].second, expected[i].second) <= bound);
  }
  const train::RunState &a = alone.state(), &b = together.state();
  CHECK(a.step == b.step);
  CHECK(b.last->train_loss == doctest::Approx(a.last->train_loss).epsilon(1e-9 + bound));
  CHECK(b.last->train_accuracy == a.last->train_accuracy);
  CHECK(b.last->test.samples == a.last->test.samples);
  CHECK(b.last->test.loss == doctest::Approx(a.last->test.loss).epsilon(1e-9 + bound));
  CHECK(b.last->test.accuracy == a.last->test.accuracy);
}

// A folder that all ranks know by the same name, and that rank 0 removes.
class SharedFolder {
 public:
  SharedFolder() {
    std::string made = (std::filesystem::temp_directory_path() / "frugal_ranks_XXXXXX").string();
    if (ranks().rank() == 0) REQUIRE(mkdtemp(made.data()) != nullptr);
    path = ranks().broadcast(made, 0, "a folder");
  }
  ~SharedFolder() {
    ranks().barrier();
    if (ranks().rank() == 0) std::filesystem::remove_all(path);
  }
  std::string path;
};

std::shared_ptr<train::RunFolder> folder_of_rank(const std::string& path, bool resume) {
  if (ranks().rank() > 0) return nullptr;
  return std::make_shared<train::RunFolder>(path, resume);
}

}  // namespace

TEST_CASE("training on several ranks is that of one process") {
  Setting setting;
  setting.dtype = DType::f64;
  SUBCASE("momentum, samples that do not count, a short last batch") {}
  SUBCASE("AdamW") { setting.make = adam; }
  SUBCASE("LAMB") { setting.make = lamb; }
  SUBCASE("a limit of the gradient's norm") { setting.options.clip_norm = 0.05; }
  SUBCASE("several batches in a step") { setting.options.gradient_accumulation = 3; }
  SUBCASE("smoothed labels") { setting.options.label_smoothing = 0.1; }
  SUBCASE("averages of the weights") { setting.averaged = true; }
  SUBCASE("shares of the optimizer's state, by ranges") {
    setting.make = adam;
    setting.sharded = true;
    setting.averaged = true;
  }
  SUBCASE("shares of the optimizer's state, by parameters") {
    setting.make = lamb;
    setting.sharded = true;
  }
  SUBCASE("shares of the gradients, with a limit of their norm") {
    setting.make = adam;
    setting.sharded = setting.options.ranks.share_gradients = true;
    setting.options.clip_norm = 0.05;
    setting.options.gradient_accumulation = 2;
  }
  SUBCASE("shares of the gradients, by parameters") {
    setting.make = lamb;
    setting.sharded = setting.options.ranks.share_gradients = true;
  }
  SUBCASE("updates in the backward pass") { setting.options.in_backward = true; }
  SUBCASE("updates in the backward pass of a sharded optimizer") {
    setting.make = adam;
    setting.sharded = true;
    setting.options.in_backward = true;
  }
  SUBCASE("a last batch of one sample, which all ranks compute") { setting.samples = 33; }
  SUBCASE("the same, added to others") {
    setting.samples = 33;
    setting.options.gradient_accumulation = 3;
    setting.options.label_smoothing = 0.1;
  }
  setting.rate = 0.01;
  check_like_one(setting, 1e-12);
}

TEST_CASE("in f32 the order of additions differs") {
  Setting setting;
  setting.rate = 0.01;
  check_like_one(setting, 1e-4);
}

TEST_CASE("statistics of a rank's own share train another network") {
  if (ranks().size() == 1) return;
  Setting setting;
  setting.dtype = DType::f64;
  setting.options.ranks.sync_batch_norm = false;
  Side one(setting, nullptr), several(setting, from_environment({60}));
  one.trainer().run();
  several.trainer().run();
  const NamedTensors expected = one.values(), found = several.values();
  double most = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    check_equal_everywhere(ops::contiguous(found[i].second));  // also running statistics
    most = std::max(most, largest_difference(found[i].second, expected[i].second));
  }
  CHECK(most > 1e-6);
}

TEST_CASE("ranks draw dropout and rounding of their own, and decide alike") {
  Setting setting;
  setting.drop = 0.3;
  SUBCASE("one width") {
    setting.options.compression.choice.policy = compress::bits(4, {.min_elements = 96}).policy;
  }
  SUBCASE("widths by sensitivity") {
    setting.options.compression.choice.policy = compress::bits(2.5, {.min_elements = 96}).policy;
  }
  SUBCASE("ActNN") {
    compress::ActnnOptions options;
    options.average = 2;
    options.mixed = true;
    options.keep.min_elements = 96;
    options.interval = 3;
    setting.options.compression.choice.policy = options;
  }
  SUBCASE("AC-GC") {
    compress::AcgcOptions options;
    options.keep.min_elements = 96;
    options.interval = 3;
    setting.options.compression.choice.policy = options;
  }
  SUBCASE("a guard of the gradient's variance") {
    setting.options.compression.choice.policy = compress::bits(3.5, {.min_elements = 96}).policy;
    setting.options.compression.tracking =
        train::TrackingOptions{.interval = 2, .samples = 4, .guard = 0.05};
  }
  Side side(setting, from_environment({60}));
  auto trainer = side.trainer();
  CHECK(trainer.run());
  for (const auto& [name, value] : side.values()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    check_equal_everywhere(ops::contiguous(value));
  }
  // What steers later decisions.
  train::CompressionState decided = trainer.compression().state();
  compress::Learned& learned = decided.learned;
  using Widths = compress::AdaptivePolicy::State;
  if (learned.policy == Widths::kPolicy) {
    // Shapes are those of the share.
    Widths widths = Widths::read(learned);
    for (auto& item : widths.items) item.shape = {}, item.elements = item.raw_bytes = 0;
    learned = widths.write();
  }
  for (auto& [name, list] : learned.lists)
    if (learned.policy != Widths::kPolicy &&
        (name == "extents" || name == "ranges" || name == "samples"))
      list.clear();
  const std::vector<std::string> texts = ranks().all_gather(train::text_of({}, decided));
  for (const std::string& text : texts) CHECK(text == texts[0]);
}

TEST_CASE("a run goes on to the same bits, and on another number of ranks") {
  Setting setting;
  setting.drop = 0.2;
  setting.options.compression.choice.policy = compress::bits(2.5, {.min_elements = 96}).policy;
  setting.make = adam;
  setting.sharded = ranks().size() > 1;
  SUBCASE("as it is") {}
  SUBCASE("with gradients in codes") { setting.options.ranks.compress_gradients = 8; }
  SUBCASE("with shares of gradients") {
    setting.options.ranks.share_gradients = setting.sharded;
    setting.options.grad_norms = 2;
  }
  SUBCASE("with averages, and batches added up") {
    setting.averaged = true;
    setting.options.gradient_accumulation = 2;
  }
  Side whole(setting, from_environment({60}));
  whole.trainer().run();
  for (int64_t stop = 1; stop < 4; ++stop) {
    CAPTURE(stop);
    const SharedFolder shared;
    {
      Side first(setting, from_environment({60}));
      first.options.folder = folder_of_rank(shared.path + "/run", false);
      // Only one rank wants to stop.
      first.options.on_step = [&](const train::StepReport& report) {
        return ranks().rank() + 1 < ranks().size() || report.step != stop;
      };
      CHECK(!first.trainer().run());
    }
    Side second(setting, from_environment({60}));
    second.options.folder = folder_of_rank(shared.path + "/run", true);
    auto trainer = second.trainer();
    CHECK(trainer.state().step == stop);
    CHECK(trainer.run());
    const NamedTensors expected = whole.values(), found = second.values();
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(expected[i].first);
      CHECK((bits_of(ops::contiguous(found[i].second)) ==
             bits_of(ops::contiguous(expected[i].second))));
    }
  }
}

TEST_CASE("one process goes on from a checkpoint of several ranks") {
  Setting setting;
  setting.dtype = DType::f64;
  setting.make = adam;
  setting.rate = 0.01;
  Side one(setting, nullptr);
  one.trainer().run();
  const SharedFolder shared;
  {
    Setting sharded = setting;
    sharded.sharded = true;
    Side first(sharded, from_environment({60}));
    first.options.folder = folder_of_rank(shared.path + "/run", false);
    first.options.on_step = [](const train::StepReport& report) { return report.step != 3; };
    CHECK(!first.trainer().run());
  }
  if (ranks().rank() > 0) return;
  Side second(setting, nullptr);
  second.options.folder = std::make_shared<train::RunFolder>(shared.path + "/run", true);
  auto trainer = second.trainer();
  CHECK(trainer.state().step == 3);
  CHECK(trainer.run());
  const NamedTensors expected = one.values(), found = second.values();
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(largest_difference(found[i].second, expected[i].second) <= 1e-12);
}

TEST_CASE("a value that is not finite stops all ranks at one step") {
  Setting setting;
  setting.broken = 5;  // one rank has it, in one batch
  Side side(setting, from_environment({60}));
  auto trainer = side.trainer();
  std::string what;
  try {
    trainer.run();
  } catch (const train::NotFinite& error) {
    what = error.what();
  }
  CHECK(what.find("not finite") == std::string::npos);
  CHECK(what.find("[train] step ") != std::string::npos);
  const std::vector<std::string> all = ranks().all_gather(what);
  for (const std::string& text : all) CHECK(text == all[0]);
  if (ranks().size() > 1) CHECK(what.find(" of rank ") != std::string::npos);
}

namespace {

// A source whose batches say that their floating targets are values.
class OfValues final : public data::BatchSource {
 public:
  explicit OfValues(data::BatchSource& source) : source_(source) {}
  std::optional<Batch> next() override {
    std::optional<Batch> batch = source_.next();
    if (batch) batch->floats = FloatTargets::values;
    return batch;
  }
  int64_t batches() const override { return source_.batches(); }
  int64_t samples() const override { return source_.samples(); }
  data::LoaderState state() const override { return source_.state(); }
  void seek(const data::LoaderState& state) override { source_.seek(state); }
  void set_share(const data::Share& share) override { source_.set_share(share); }

 private:
  data::BatchSource& source_;
};

// Tells the order of what it is given.
class Ordered final : public train::Metric {
 public:
  explicit Ordered(bool adds_up) : adds_up_(adds_up) {}
  void add(const Tensor& output, const Batch& batch) override {
    CHECK(output.size(0) == batch.target.size(0));
    CHECK((batch.floats == FloatTargets::values));
    for (int64_t i = 0; i < output.size(0); ++i) {
      sum_ += output.item(i * kClasses) * (adds_up_ ? 1.0 : static_cast<double>(++seen_));
      sum_ += static_cast<double>(batch.target.item<int64_t>(i) * (adds_up_ ? 1 : seen_));
    }
  }
  bool adds_up() const override { return adds_up_; }
  void add_ranks(Communicator& all) override { sum_ = all.all_reduce(sum_); }
  double value(double) const override { return sum_; }

 private:
  bool adds_up_;
  int64_t seen_ = 0;
  double sum_ = 0;
};

class Judged final : public train::Classification {
 public:
  Judged(const train::BatchSpec& spec, bool adds_up) : Classification(spec), adds_up_(adds_up) {}
  std::unique_ptr<train::Metric> metric() const override {
    return std::make_unique<Ordered>(adds_up_);
  }

 private:
  bool adds_up_;
};

}  // namespace

TEST_CASE("an evaluation of several ranks is that of one process") {
  Setting setting;
  setting.dtype = DType::f64;
  const train::Ranks all({.communicator = from_environment({60})});
  Side side(setting, nullptr);
  for (const bool adds_up : {false, true}) {
    CAPTURE(adds_up);
    const Judged task(setting.options.spec, adds_up);
    // The last batch has two samples: some ranks have none.
    data::Loader loader(pictures(42, 3), {.batch_size = 20, .shuffle = false});
    OfValues test(loader);
    const auto expected = train::evaluate(task, side.model, test);
    test.set_share(all.share());
    const auto found = train::evaluate(task, side.model, test, {}, all);
    REQUIRE(found);
    CHECK(found->samples == expected->samples);
    CHECK(found->accuracy == expected->accuracy);
    CHECK(found->loss == doctest::Approx(expected->loss).epsilon(1e-12));
    CHECK(*found->metric == doctest::Approx(*expected->metric).epsilon(1e-12));
    const std::vector<std::string> texts =
        all.communicator().all_gather(fmt::format("{} {}", found->loss, *found->metric));
    for (const std::string& text : texts) CHECK(text == texts[0]);
    // One rank ends it for all.
    int asked = 0;
    CHECK(!train::evaluate(
        task, side.model, test, [&] { return all.rank() == 0 && ++asked > 1; }, all));
  }
}

TEST_CASE("ranks with other data are found at the start") {
  if (ranks().size() == 1) return;
  Setting setting;
  Side side(setting, from_environment({60}));
  data::Loader other(pictures(kSamples, ranks().rank() == 1 ? 9 : 1), {.batch_size = kBatchSize});
  CHECK_THROWS_WITH_AS(train::Trainer(side.model, *side.optimizer, optim::constant_schedule(0.1),
                                      other, side.options),
                       doctest::Contains("'the first batch's input' of rank 1 differs"), Error);
}

}  // namespace frugal::distributed
