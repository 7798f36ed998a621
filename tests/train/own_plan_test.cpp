// A memory budget in a program of one's own: the plan borrows the network of the run.
#include "train/planning/own_plan.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "autograd/functions.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "distributed/communicator.h"
#include "models/zoo/resnet_cifar.h"
#include "optim/averaged.h"
#include "optim/optimizers.h"
#include "tests/train/temp_folder.h"
#include "train/option_error.h"
#include "train/planning/borrowed_model.h"
#include "train/tasks/make_task.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr const char* kBudget = "4 MiB";

DatasetPtr noise(int64_t count, uint64_t seed) {
  const CategoryScope scope(Category::input);
  const Tensor labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) labels.mut<int64_t>()[i] = i % 3;
  return std::make_shared<data::MemoryDataset>(Tensor::randn({count, 16, 16, 3}, {seed, 0}), labels,
                                               3);
}

// ResNet-8 on small pictures, with a last batch that is shorter.
struct BudgetRun {
  models::Init init;
  models::CifarResNet model;
  optim::Sgd sgd{model.parameters(), {.momentum = 0.9}};
  data::Loader batches{noise(80, 1), {.batch_size = 32, .threads = 0}};
  data::Loader test{noise(16, 2), {.batch_size = 16, .shuffle = false, .threads = 0}};
  TrainerOptions options;

  static models::CifarResNetOptions network() {
    models::CifarResNetOptions options = models::cifar_resnet_options("resnet20");
    options.blocks = 1;
    options.num_classes = 3;
    return options;
  }
  BudgetRun() : model(init, network()) {
    options.epochs = 3;
    options.test = &test;
    options.compression.choice = compress::budget(kBudget, {.min_elements = 96});
    options.compression.choice.measuring.interval = 3;
    options.compression.choice.measuring.first = 2;
    options.compression.choice.measuring.samples = 8;
    options.compression.choice.measuring.share = 1;
    options.compression.choice.measuring.batch = 32;
  }
  Trainer trainer() {
    return Trainer(model, sgd, optim::constant_schedule(0.05), batches, options);
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for (const auto& p : model.parameters())
      for (const double value : p.parameter->value().to_vector()) all.push_back(value);
    return all;
  }
};

int64_t bytes_of(Module& model) {
  int64_t bytes = 0;
  for (const auto& p : model.parameters()) bytes += p.parameter->value().nbytes();
  for (const auto& b : model.buffers()) bytes += b.buffer->nbytes();
  return bytes;
}

std::string refused(const std::function<void(TrainerOptions&)>& change) {
  BudgetRun run;
  change(run.options);
  try {
    run.trainer();
  } catch (const OptionError& e) {
    return e.what();
  }
  return "";
}

struct NoBatches final : data::BatchSource {
  std::optional<Batch> next() override { return std::nullopt; }
  int64_t batches() const override { return 0; }
  int64_t samples() const override { return 0; }
  data::LoaderState state() const override { return {}; }
  void seek(const data::LoaderState&) override {}
};

// Batches of images beside which there is a matrix that has as many rows by chance.
struct MixedBatches final : data::BatchSource {
  data::Loader images{noise(64, 1), {.batch_size = 32, .threads = 0}};
  std::optional<Batch> next() override {
    std::optional<Batch> batch = images.next();
    if (!batch) return batch;
    const CategoryScope scope(Category::input);
    batch->extras.emplace_back("weights", Tensor::zeros({32}));
    batch->extras.emplace_back("mixing", Tensor::zeros({32, 7}));
    return batch;
  }
  int64_t batches() const override { return images.batches(); }
  int64_t samples() const override { return images.samples(); }
  data::LoaderState state() const override { return images.state(); }
  void seek(const data::LoaderState& state) override { images.seek(state); }
};

// Knows that the matrix is not cut with the samples.
class Mixing final : public Task {
 public:
  using Task::Task;
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions&) const override {
    ForwardPass pass;
    pass.loss = mean(run(model, batch, context));
    return pass;
  }
  Batch part(const Batch& batch, int64_t begin, int64_t end) const override {
    Batch all = batch;
    all.extras.pop_back();
    Batch part = Task::part(all, begin, end);
    part.extras.push_back(batch.extras.back());
    return part;
  }
};

// It says nothing about its state.
struct OwnOptimizer final : Optimizer {
  void step(double) override {}
  void zero_grad() override {}
  bool step_leaf(const GradAccumulator&, double) override { return true; }
  NamedTensors state() const override { return {}; }
  void load_state(const NamedTensors&) override {}
};

}  // namespace

TEST_CASE("a memory budget is one option of a trainer, and steps keep it") {
  int64_t whole = 0;
  {
    BudgetRun raw;
    raw.options.compression.choice = compress::bits(0, {.recipes = false});
    Trainer trainer = raw.trainer();
    REQUIRE(trainer.run());
    whole = trainer.state().memory.peak;
  }
  BudgetRun run;
  const std::vector<double> before = run.weights();
  Trainer trainer = run.trainer();
  CHECK(run.weights() == before);  // the plan gave back what it borrowed
  CHECK(run.model.device() == kCpu);
  const auto plan = trainer.compression().plan();
  REQUIRE(plan);
  CHECK(std::string(plan->kind) != "plain");
  CHECK(plan->limit_bytes < whole);
  REQUIRE(trainer.run());
  CHECK(run.weights() != before);
  CHECK(trainer.state().memory.peak <= plan->limit_bytes);
}

TEST_CASE("what a borrowed network's plan says is what one of a second network says") {
  BudgetRun run;
  run.options.task = make_task(run.options.spec);
  run.options.compression.choice = compress::budget("1 GiB", {.min_elements = 96});
  const auto own = plan_of_own(run.options, run.model, run.sgd, run.batches);
  PlannerOptions options;
  options.run.make_model = [](Device device) {
    models::Init init{Rng(1), device};
    return std::make_shared<models::CifarResNet>(init, BudgetRun::network());
  };
  options.run.make_optimizer = [](Module& model) {
    return std::make_unique<optim::Sgd>(model.parameters(), optim::SgdOptions{.momentum = 0.9});
  };
  BatchSpec spec;
  spec.sample = {16, 16, 3};
  spec.classes = 3;
  options.run.task = make_task(spec);
  options.choice = run.options.compression.choice;
  options.budget = parse_budget("1 GiB", "budget");
  options.batch = 32;
  options.test_batch = 16;
  const int64_t held = allocator(kCpu).report().live_total - bytes_of(run.model);
  const Planner other(options);
  // Scalars of a few bytes live on the host alone.
  CHECK(std::abs(own->report().peak_bytes - other.report().peak_bytes - held) < 64);
  CHECK(own->report().activation_bytes == other.report().activation_bytes);
}

TEST_CASE("a plan asks the task which tensors of a batch have a row for each sample") {
  BudgetRun run;
  run.options.task = std::make_shared<Mixing>();
  MixedBatches batches;
  const Batch eight = read_off(run.options, kCpu, batches).run.shape(8, kMeta);
  CHECK(eight.input.size(0) == 8);
  CHECK(eight.target.size(0) == 8);
  CHECK(find_tensor(eight.extras, "weights").shape() == Shape{8});
  CHECK(find_tensor(eight.extras, "mixing").shape() == Shape{32, 7});
}

TEST_CASE("gradients wait beside a network that is lent, and averages are planned for") {
  BudgetRun run;
  const auto parameters = run.model.parameters();
  parameters[0].parameter->set_grad(Tensor::full(parameters[0].parameter->shape(), 2));
  const void* const value = parameters[0].parameter->value().raw();
  {
    BorrowedModel borrowed(run.model);
    const BorrowedModel::Scope scope(borrowed);
    CHECK(run.model.device() == kMeta);
    CHECK_FALSE(parameters[0].parameter->has_grad());
  }
  CHECK(parameters[0].parameter->value().raw() == value);
  CHECK(parameters[0].parameter->grad().item(3) == 2);

  run.options.task = make_task(run.options.spec);
  run.options.compression.choice = compress::budget("1 GiB", {.min_elements = 96});
  const auto plain = plan_of_own(run.options, run.model, run.sgd, run.batches);
  optim::Averaged averaged(std::make_unique<optim::Sgd>(run.model.parameters()),
                           named_variables(run.model.parameters()), {});
  const auto with = plan_of_own(run.options, run.model, averaged, run.batches);
  CHECK(with->report().peak_bytes > plain->report().peak_bytes);
}

TEST_CASE("a run within a budget is cut and goes on to the same bits") {
  std::vector<double> whole;
  {
    BudgetRun run;
    Trainer all = run.trainer();
    REQUIRE(all.run());
    whole = run.weights();
  }
  // Before and after the first plan that sensitivities change.
  for (const int64_t cut : {1, 4}) {
    CAPTURE(cut);
    const TempFolder folder;
    const auto part = [&](bool stops) {
      BudgetRun run;
      run.options.folder = std::make_shared<RunFolder>(folder.path + "/run", !stops);
      if (stops) run.options.on_step = [&](const StepReport& report) { return report.step < cut; };
      Trainer trainer = run.trainer();
      CHECK(trainer.run() == !stops);
      return run.weights();
    };
    part(true);
    CHECK(part(false) == whole);
  }
}

TEST_CASE("budgets that cannot be kept, and options that contradict one, are refused") {
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refused([](TrainerOptions& o) { o.compression.choice = compress::budget("20 KiB"); }),
      "budget.memory");
  has(refused([](TrainerOptions& o) { o.compression.choice = compress::budget("many"); }), "many");

  // Without a trainer, which compares what ranks have before it plans.
  const auto plan = [](BudgetRun& run, const Optimizer& optimizer, data::BatchSource& batches) {
    BatchSpec spec;
    spec.sample = {16, 16, 3};
    spec.classes = 3;
    run.options.task = make_task(spec);
    try {
      plan_of_own(run.options, run.model, optimizer, batches);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  BudgetRun of_two;
  of_two.options.ranks.communicator = distributed::imagined(2);
  has(plan(of_two, of_two.sgd, of_two.batches), "expected none with 2 ranks in an embedded");
  BudgetRun evaluates;
  data::Loader large{noise(512, 2), {.batch_size = 512, .shuffle = false, .threads = 0}};
  evaluates.options.test = &large;
  evaluates.options.compression.choice = compress::budget("6 MiB", {.min_elements = 96});
  const std::string said = plan(evaluates, evaluates.sgd, evaluates.batches);
  has(said, "budget.memory: expected test batches of at most ");
  has(said, "of more takes more than 6 MiB, got batches of 512");
  BudgetRun empty;
  NoBatches none;
  has(plan(empty, empty.sgd, none), "[plan] expected a source with batches, got one without");
  BudgetRun own;
  const OwnOptimizer unknown;
  has(plan(own, unknown, own.batches), "expected an optimizer with a without_state()");
  CHECK(own.weights() == BudgetRun().weights());  // what was lent is back
}

TEST_CASE("a network that was lent and changed since is refused as it is") {
  models::Init init;
  struct Growing final : Module {
    Variable forward(Variable x, Context&) override { return x; }
    void grow() { register_parameter(fmt::format("p{}", parameters().size()), Tensor::zeros({2})); }
  } model;
  model.grow();
  BorrowedModel borrowed(model);
  { const BorrowedModel::Scope scope(borrowed); }
  model.grow();
  CHECK_THROWS_WITH_AS(BorrowedModel::Scope{borrowed},
                       doctest::Contains("1 parameters and 0 buffers, as when it was planned for, "
                                         "got 2 and 0"),
                       Error);
  for (const auto& p : model.parameters()) CHECK(p.parameter->value().device() == kCpu);
}
