#include "train/run/run.h"

#include <doctest/doctest.h>

#include "data/loader.h"
#include "data/memory_dataset.h"
#include "models/zoo/mlp.h"
#include "optim/optimizers.h"
#include "train/option_error.h"

namespace frugal {
namespace {

constexpr int64_t kValues = 64, kClasses = 4, kBatch = 32;

// [count, 8, 8, 1]: the class is the row that is bright.
DatasetPtr rows(int64_t count) {
  const CategoryScope scope(Category::input);
  Tensor images = Tensor::zeros({count, 8, 8, 1});
  Tensor labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    labels.mut<int64_t>()[i] = i % kClasses;
    for (int64_t x = 0; x < 8; ++x) images.mut<float>()[i * kValues + i % kClasses * 16 + x] = 1;
  }
  return std::make_shared<data::MemoryDataset>(images, labels, kClasses);
}

train::RunRecipe recipe(int& made) {
  train::RunRecipe recipe;
  recipe.make_model = [&made](Device device) {
    ++made;
    models::Init init;
    init.device = device;
    models::MlpOptions options;
    options.in_features = kValues;
    options.hidden = {64, 32};
    options.num_classes = kClasses;
    return std::make_shared<models::Mlp>(init, options);
  };
  recipe.make_optimizer = [](Module& model) {
    return std::make_unique<optim::Sgd>(model.parameters(), optim::SgdOptions{.momentum = 0.9});
  };
  recipe.open_train = [] {
    return std::make_unique<data::Loader>(rows(128),
                                          data::LoaderOptions{.batch_size = kBatch, .threads = 0});
  };
  recipe.open_test = [](int64_t) {
    return std::make_unique<data::Loader>(
        rows(32), data::LoaderOptions{.batch_size = kBatch, .shuffle = false, .threads = 0});
  };
  recipe.options.epochs = 4;
  recipe.options.compression.choice = compress::bits(4, {.min_elements = 96});
  return recipe;
}

TEST_CASE("a run makes its parts once, trains, and its trials take what training takes") {
  const int64_t before = allocator(kCpu).report().live_total;
  int64_t trained = 0;
  {
    int made = 0;
    train::Run run(recipe(made));
    CHECK(made == 0);  // nothing is made before it is asked for
    REQUIRE(run.train());
    CHECK(made == 1);
    CHECK(run.trainer().state().last->test.accuracy > 0.9);
    CHECK(run.validation() == nullptr);
    trained = run.trainer().state().memory.peak;
  }
  REQUIRE(allocator(kCpu).report().live_total == before);
  int made = 0;
  train::Run run(recipe(made));
  run.test();  // its data are there while the run trains
  const auto trial = run.trial();
  trial->step(0);  // makes the optimizer's state
  CHECK(trial->step(1).memory.peak == trained);
  CHECK(made == 1);
}

TEST_CASE("trials of a run keep its memory budget, as its training does") {
  int made = 0;
  train::RunRecipe budgeted = recipe(made);
  budgeted.options.compression.choice =
      compress::budget("10 KiB activations", {.min_elements = 96});
  train::Run run(budgeted);
  const auto trial = run.trial();
  trial->step(0);
  const int64_t kept = trial->step(1).memory.saved();
  CHECK(kept > 0);
  CHECK(kept <= 10 << 10);
  train::Run other(budgeted);
  REQUIRE(other.train());
  CHECK(other.trainer().state().memory.saved() <= 10 << 10);
}

TEST_CASE("a recipe that does not say how another number grows is asked for the batch alone") {
  int made = 0;
  train::Run run(recipe(made));
  CHECK_NOTHROW(run.planned().growing(train::Growth::batch));
  CHECK_THROWS_WITH_AS(run.planned().growing(train::Growth::layers),
                       "run: expected a recipe that says how the number grows (planned)",
                       train::OptionError);
}

TEST_CASE("a recipe without a network, an optimizer or data is refused") {
  int made = 0;
  train::RunRecipe without = recipe(made);
  without.open_train = {};
  CHECK_THROWS_WITH_AS(train::Run{without},
                       "[run] expected a recipe with make_model, make_optimizer and open_train",
                       Error);
}

}  // namespace
}  // namespace frugal
