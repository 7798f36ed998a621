// Predictions with a network of one's own, and the range of rates.
#include "train/run/model.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "data/loader.h"
#include "data/memory_dataset.h"
#include "data/tables/csv_table.h"
#include "models/zoo/mlp.h"
#include "optim/optimizers.h"
#include "train/rate_range.h"

using namespace frugal;
using namespace frugal::train;

namespace {

// [count, 4, 4, 1]: class 1 is brighter. One of every `wrong` samples has the other label.
DatasetPtr shades(int64_t count, int64_t wrong) {
  const CategoryScope scope(Category::input);
  Tensor images = Tensor::empty({count, 4, 4, 1}), labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    labels.mut<int64_t>()[i] = wrong > 0 && i % wrong == 0 ? 1 - i % 2 : i % 2;
    for (int64_t at = 0; at < 16; ++at)
      images.mut<float>()[16 * i + at] =
          float(i % 2) + 0.3f * normal({7, 0}, uint64_t(16 * i + at));
  }
  return std::make_shared<data::MemoryDataset>(images, labels, 2);
}

struct Net {
  explicit Net(int64_t wrong = 0) : batches(shades(128, wrong), {16, true, false, 0, 0}) {}
  models::Init init;
  std::shared_ptr<models::Mlp> mlp =
      std::make_shared<models::Mlp>(init, models::MlpOptions{16, {8}, 2, 0.0});
  optim::Sgd sgd{one_group(mlp->parameters()), {0.9, false}};
  data::Loader batches;
};

ModelDescription description() {
  ModelDescription all;
  all.spec.sample = {4, 4, 1};
  all.spec.classes = 2;
  all.pictures.view = {4, 4, 1, 0};
  all.classes = {"dark", "bright"};
  return all;
}

}  // namespace

TEST_CASE("a network of one's own predicts, and names classes") {
  Net net;
  TrainerOptions options;
  options.epochs = 6;
  fit(*net.mlp, net.sgd, optim::constant_schedule(0.05), net.batches, options);
  const Model model(net.mlp, description());
  const Prediction bright = model.predict(Tensor::full({4, 4, 1}, 1));
  REQUIRE(bright.size() == 2);
  CHECK(bright[0].name == "bright");
  CHECK(bright[0].index == 1);
  CHECK(bright[0].probability + bright[1].probability == doctest::Approx(1));
  CHECK(model.predict(Tensor::zeros({4, 4, 1}), {.top = 1}).at(0).name == "dark");
  // A picture that is its own mirror image has the same views.
  CHECK(model.predict(Tensor::full({4, 4, 1}, 1), {.views = data::Views::flip})[0].probability ==
        doctest::Approx(bright[0].probability));
  ModelDescription normalized = description();
  normalized.pictures.mean = {0.5};
  normalized.pictures.std = {0.5};
  CHECK(Model(net.mlp, normalized).predict(Tensor::full({4, 4, 1}, 1))[0].probability ==
        doctest::Approx(bright[0].probability));  // (1 - 0.5) / 0.5
  ModelDescription several = description();
  several.spec.target = BatchSpec::Target::labels;  // each class has an answer of its own
  const Prediction each = Model(net.mlp, several).predict(Tensor::full({4, 4, 1}, 1));
  CHECK(each[0].probability + each[1].probability != doctest::Approx(1).epsilon(1e-3));
}

TEST_CASE("a network of a table predicts the rows of a file") {
  const std::string path = std::filesystem::temp_directory_path() / "frugal_rows_of.csv";
  std::ofstream(path) << "height,colour,label\n1,red,a\n3,blue,b\n2,red,a\n";
  const data::CsvTable table(path);
  const auto encoder =
      std::make_shared<data::CsvEncoder>(table, data::CsvOptions(), std::vector<int64_t>{0, 1, 2});
  ModelDescription all;
  all.spec = {.sample = {3}, .classes = 2, .kind = BatchSpec::Kind::rows};
  all.table = encoder;
  models::Init init;
  const Model model(std::make_shared<models::Mlp>(init, models::MlpOptions{3, {4}, 2, 0.0}), all);
  CHECK(model.rows_of(path).to_vector() == encoder->inputs_of(table).to_vector());
  int64_t answers = 0;
  model.predict_rows(model.rows_of(path), {}, [&](int64_t, const Answer& answer) {
    answers += answer.prediction.size() == 2 ? 1 : 0;
    return true;
  });
  CHECK(answers == 3);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(model.rows_of(path), Error);
  Net net;
  CHECK_THROWS_WITH_AS(Model(net.mlp, description()).rows_of(path),
                       doctest::Contains("trained on a table"), Error);
}

TEST_CASE("a model refuses what its network does not read") {
  Net net;
  const Model model(net.mlp, description());
  CHECK_THROWS_AS(model.predict(Tensor::zeros({5, 4, 1})), Error);
  CHECK_THROWS_AS(model.predict(Tensor::zeros({4, 4, 1}, DType::i64)), Error);
  CHECK_THROWS_AS(model.predict(Tensor()), Error);
  CHECK_THROWS_AS(model.predict(Tensor::zeros({4, 4, 1}), {.views = data::Views::ten_crop}), Error);
  CHECK_THROWS_AS(model.predict("none.png"), Error);
  CHECK_THROWS_AS(model.predict(data::Picture{2, 2, 3, std::vector<uint8_t>(12)}), Error);
  CHECK_THROWS_AS(Model(nullptr, description()), Error);
  ModelDescription wrong = description();
  wrong.pictures.mean = {1, 2};
  CHECK_THROWS_AS(Model(net.mlp, wrong), Error);
  wrong = description();
  wrong.spec.kind = BatchSpec::Kind::sequences;
  CHECK_THROWS_AS(Model(net.mlp, wrong).predict("text"), Error);
  wrong = description();
  wrong.spec.target = BatchSpec::Target::views;
  CHECK_THROWS_WITH_AS(Model(net.mlp, wrong), doctest::Contains("learns from views"), Error);
  CHECK_THROWS_AS(
      model.predict_each({"a"}, {.batch_size = 0}, [](int64_t, const Answer&) { return true; }),
      Error);
}

TEST_CASE("the range test finds where the loss is lowest, and ends where it diverges") {
  Net net(5);
  const RateRange found = find_rate(*net.mlp, net.sgd, net.batches, {}, {1e-5, 1e4, 90});
  CHECK(found.diverged);
  CHECK(found.points.size() < 90);
  REQUIRE(found.suggested);
  CHECK(*found.suggested == doctest::Approx(*found.lowest_at / 3));
  CHECK(*found.lowest_at > 1e-3);
  CHECK(*found.lowest_at < 10);
  Net other;
  TrainerOptions stopped;
  int64_t asked = 0;
  stopped.stop = [&] { return ++asked > 12; };
  const RateRange cut = find_rate(*other.mlp, other.sgd, other.batches, stopped, {1e-5, 1, 90});
  CHECK(cut.interrupted);
  CHECK(cut.points.size() == 11);  // the end of an epoch asks, too
  Net third;
  for (const RateRangeOptions& wrong :
       {RateRangeOptions{0, 1, 90}, {1, 1, 90}, {1e-5, 1, 5}, {1e-5, 1, 90, 1}})
    CHECK_THROWS_AS(find_rate(*third.mlp, third.sgd, third.batches, {}, wrong), Error);
}
