// Predictions with a network of one's own, and the range of rates.
#include "train/run/model.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "autograd/functions.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "data/tables/csv_table.h"
#include "data/text/wordpiece.h"
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

TEST_CASE("a model says what its network does instead") {
  Net net;
  using Kind = BatchSpec::Kind;
  using Target = BatchSpec::Target;
  const auto with = [&](auto change) {
    ModelDescription all = description();
    change(all);
    return Model(net.mlp, std::move(all));
  };
  const auto refuses = [](const auto& call, const char* why) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(why), Error);
  };
  const Tensor picture = Tensor::zeros({4, 4, 1}), rows = Tensor::zeros({3, 16});
  const auto each = [](int64_t, const Answer&) { return true; };

  const Model values = with([](auto& all) { all.spec.target = Target::values; });
  refuses([&] { values.predict(picture); }, "a network of classes; this one predicts numbers");
  const Model pixels = with([](auto& all) { all.spec.target = Target::class_of_pixel; });
  refuses([&] { pixels.predict(picture); }, "this one gives a class to each pixel");
  refuses(
      [&] {
        pixels.predict_arrays(picture.view({1, 4, 4, 1}), {}, each);
      },
      "one answer for each sample; this one has others");
  refuses([&] { pixels.predict_each({"x.png"}, {.views = data::Views::flip}, each); },
          "no views with a network that gives a class to each pixel");
  const Model many = with([](auto& all) {
    all.spec.target = Target::class_of_pixel;
    all.spec.classes = 300;
  });
  refuses([&] { many.predict("x.png"); }, "1 to 256 classes to each pixel, got one of 300");
  const Model boxes = with([](auto& all) {
    all.spec.target = Target::boxes;
    all.spec.metric = "map";
  });
  refuses([&] { boxes.predict(picture); }, "models::Detector::detect() gives them");

  const Model of_rows = with([](auto& all) {
    all.spec.kind = Kind::rows;
    all.spec.sample = {16};
  });
  refuses([&] { of_rows.predict(picture); }, "reads pictures; this one reads rows");
  refuses([&] { of_rows.predict("a text"); }, "reads pictures; this one reads rows");
  refuses(
      [&] {
        of_rows.predict_rows(Tensor::zeros({3, 15}), {}, each);
      },
      "rows [N, 16] f32, got [3, 15] f32 on cpu");
  refuses([&] { of_rows.predict_rows({}, {}, each); }, "got an undefined tensor");
  for (const float wrong : {std::nanf(""), HUGE_VALF}) {
    std::vector<float> numbers(48);
    numbers[20] = wrong;
    refuses(
        [&] {
          of_rows.predict_rows(Tensor::from(numbers, {3, 16}), {}, each);
        },
        wrong == HUGE_VALF ? "expected finite numbers, got inf in sample 1"
                           : "expected finite numbers, got nan in sample 1");
  }
  const Model model(net.mlp, description());
  refuses([&] { model.predict_rows(rows, {}, each); }, "reads rows; this one reads images");
  refuses([&] { model.predict_arrays(rows, {}, each); },
          "expected samples [4, 4, 1] f32, one behind the other, got [3, 16] f32 on cpu");
  refuses(
      [&] {
        model.predict(Tensor::zeros({5, 4, 1}));
      },
      "expected a picture [4, 4, 1] f32, got [5, 4, 1] f32 on cpu");

  const auto text = [](auto& all) {
    all.spec.kind = Kind::sequences;
    all.spec.sample = {8};
  };
  const Model texts = with(text);
  refuses([&] { texts.predict("a text"); }, "a tokenizer for encoders; the run has none");
  const Model reader = with([&](auto& all) {
    text(all);
    all.text.tokenizer = std::make_shared<data::WordPiece>(
        data::Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]"}, "a test"));
  });
  refuses([&] { reader.predict_each({"a text"}, {.views = data::Views::flip}, each); },
          "expected no views with a network that reads text");
  const Model tokens = with([&](auto& all) {
    text(all);
    all.spec.target = Target::class_of_token;
  });
  refuses([&] { tokens.predict("a text"); }, "gives an output for each token: `frugal generate`");
  refuses(
      [&] {
        texts.predict_arrays(Tensor::zeros({2, 9}, DType::i64), {}, each);
      },
      "expected samples [8] i64, one behind the other, got [2, 9] i64 on cpu");
  const Model channels = with([](auto& all) {
    all.spec.sample = {4, 4, 2};
    all.pictures.view = {4, 4, 2, 0};
  });
  refuses([&] { channels.predict(picture); },
          "pictures of 1 or 3 channels; the samples of this one are [4, 4, 2]");

  for (const PredictOptions& wrong :
       {PredictOptions{.top = 0}, {.batch_size = 0}, {.threads = 0}}) {
    refuses([&] { model.predict(picture, wrong); }, " of at least 1, got 0");
    refuses(
        [&] {
          model.predict(data::Picture{4, 4, 1, std::vector<uint8_t>(16)}, wrong);
        },
        " of at least 1, got 0");
  }
  refuses([&] { with([](auto& all) { all.pictures.mean = all.pictures.std = {0}; }); },
          "expected deviations above 0, got 0");
  refuses([&] { with([](auto& all) {
                  all.mask_values = {0, 7, 9};
                }); },
          "a value in masks for each of 2 classes, got 3");
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

namespace {

// Its loss is that of Classification less a number, as losses without a floor are.
class Lowered final : public Task {
 public:
  explicit Lowered(double by) : by_(by) {}
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions&) const override {
    const Tensor target = batch.target;
    ForwardPass pass;
    pass.loss = add_scalar(cross_entropy(run(model, batch, context), target), -by_);
    return pass;
  }
  bool has_loss_of_at_least_0(Module&) const override { return by_ == 0; }

 private:
  double by_;
};

RateRange range_of(double by, const RateRangeOptions& range) {
  Net net(5);
  TrainerOptions options;
  options.task = std::make_shared<Lowered>(by);
  return find_rate(*net.mlp, net.sgd, net.batches, options, range);
}

}  // namespace

TEST_CASE("the range test finds the rate of losses around 0 and below it, and sees them diverge") {
  const RateRangeOptions whole{1e-5, 0.5, 90}, far{1e-5, 1e6, 90};
  const RateRange usual = range_of(0, whole);
  REQUIRE(usual.suggested);
  for (const double by : {0.6, 3.0}) {
    CAPTURE(by);
    const RateRange found = range_of(by, whole);
    CHECK_FALSE(found.diverged);
    CHECK(found.points.size() == 90);
    REQUIRE(found.suggested);
    CHECK(*found.suggested == doctest::Approx(*usual.suggested).epsilon(0.5));
    const RateRange blown = range_of(by, far);
    CHECK(blown.diverged);
    CHECK(blown.points.size() < 90);
  }
}

TEST_CASE("the range test has no limit of time") {
  Net net;
  TrainerOptions options;
  options.max_seconds = 1e-9;
  const RateRange found = find_rate(*net.mlp, net.sgd, net.batches, options, {1e-5, 1e-3, 30});
  CHECK_FALSE(found.interrupted);
  CHECK(found.points.size() == 30);
}
