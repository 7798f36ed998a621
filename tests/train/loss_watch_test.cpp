// Losses that grow are warned of, and an evaluation that is not finite says what to try.
#include "train/loss_watch.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/functions.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "models/layers.h"
#include "optim/optimizers.h"
#include "train/evaluate.h"
#include "train/tasks/make_task.h"
#include "train/trainer.h"

using namespace frugal;
using namespace frugal::train;

namespace {

BatchSpec three_classes() {
  BatchSpec spec;
  spec.sample = {1, 1, 4};
  spec.classes = 3;
  return spec;
}

// Sound in training, and infinite in evaluations.
class WrongInEvaluation : public Module {
 public:
  explicit WrongInEvaluation(models::Init& init)
      : dense_(register_module("dense", std::make_shared<models::Linear>(4, 3))) {
    static_cast<void>(init);
  }
  Variable forward(Variable x, Context& context) override {
    const double factor = context.training ? 1 : std::numeric_limits<double>::infinity();
    const int64_t n = x.size(0);
    return scale(dense_->forward(reshape(std::move(x), {n, 4}), context), factor);
  }

 private:
  std::shared_ptr<models::Linear> dense_;
};

}  // namespace

TEST_CASE("a loss far above a guess's is warned of once, with what to try") {
  const double guess = std::log(3.0);
  LossWatch watch(three_classes());
  CHECK(watch.add(1, 1.3, 64, 0.1).empty());
  CHECK(watch.add(2, 2.5, 64, 0.1).empty());
  CHECK(watch.add(3, 9 * guess, 64, 0.1).empty());
  CHECK(watch.add(4, 40, 16, 0.1).empty());  // 16 samples are too few to tell
  const std::string said = watch.add(5, 40, 16, 0.25);
  CAPTURE(said);
  CHECK(said.find("step 5: the loss is 40, where the beginning of the run has 1.3") !=
        std::string::npos);
  CHECK(said.find("a lower optim.lr (this step's rate is 0.25), optim.clip_norm") !=
        std::string::npos);
  CHECK(watch.add(6, 1e9, 64, 0.1).empty());

  LossWatch sure(three_classes());  // begins with trained weights
  CHECK(sure.add(1, 0.01, 64, 0.1).empty());
  CHECK(sure.add(2, 5, 64, 0.1).empty());
  CHECK(sure.add(3, 11 * guess, 64, 0.1).find("a guess that knows nothing has 1.1") !=
        std::string::npos);
}

TEST_CASE("values to predict have no guess: only orders of magnitude are warned of") {
  BatchSpec spec = three_classes();
  spec.target = BatchSpec::Target::values;
  LossWatch watch(spec);
  for (int64_t step = 1; step <= 5; ++step) CHECK(watch.add(step, 2, 64, 0.1).empty());
  CHECK(watch.add(6, 150, 64, 0.1).empty());
  CHECK_FALSE(watch.add(7, 250, 64, 0.1).empty());
  LossWatch negative(spec);  // losses below 0, such as minus a cosine, are no measure
  for (int64_t step = 1; step <= 9; ++step)
    CHECK(negative.add(step, step < 6 ? -1 : 5, 64, 0.1).empty());
}

TEST_CASE("an evaluation that is not finite says what training says") {
  models::Init init;
  WrongInEvaluation model(init);
  optim::Sgd sgd(model.parameters());
  const Tensor labels = Tensor::from<int64_t>({0, 1, 2, 0, 1, 2, 0, 1}, {8});
  const auto rows =
      std::make_shared<data::MemoryDataset>(Tensor::randn({8, 1, 1, 4}, {1, 0}), labels, 3);
  data::Loader batches(rows, {.batch_size = 8, .threads = 0});
  data::Loader test(rows, {.batch_size = 8, .shuffle = false, .threads = 0});
  TrainerOptions options;
  options.epochs = 1;
  options.test = &test;
  options.spec = three_classes();
  Trainer trainer(model, sgd, optim::constant_schedule(0.5), batches, options);
  CHECK_THROWS_WITH_AS(trainer.run(),
                       doctest::Contains("[train] step 1, the test set: [evaluate] expected a "
                                         "finite loss, got "),
                       NotFinite);
  CHECK_THROWS_WITH_AS(evaluate(*make_task(three_classes()), model, test),
                       doctest::Contains("Try a lower optim.lr, optim.clip_norm"), NotFinite);
}
