// Steps of several batches: the gradient of the mean loss over all their targets that count.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/json.h"
#include "autograd/functions.h"
#include "core/rng.h"
#include "data/formats/safetensors.h"
#include "optim/clip.h"
#include "tests/apps/run.h"
#include "tests/train/task_of.h"
#include "train/training_step.h"

namespace frugal::apps {

using namespace train;

namespace {

constexpr int64_t kRows = 6, kClasses = 4;

// Its outputs are its parameters.
struct Table : Module {
  Variable logits;
  Table() {
    Tensor values = Tensor::empty({kRows, kClasses});
    for (int64_t i = 0; i < values.numel(); ++i)
      values.mut<float>()[i] = normal({2, 7}, static_cast<uint64_t>(i));
    logits = register_parameter("logits", values);
  }
  Variable forward(Variable, Context&) override { return scale(logits, 1); }
};

// The first `counted` rows count. Several labels: of all classes.
Batch batch_of(int64_t counted, bool several, bool graph) {
  Batch batch;
  batch.input = Tensor::zeros({kRows, 1});
  batch.target = several ? Tensor::full({kRows, kClasses}, static_cast<double>(kIgnored))
                         : Tensor::full({kRows}, static_cast<double>(kIgnored), DType::i64);
  for (int64_t row = 0; row < counted; ++row)
    if (several)
      for (int64_t c = 0; c < kClasses; ++c)
        batch.target.mut<float>()[row * kClasses + c] = c == row % kClasses ? 1.0F : 0.0F;
    else
      batch.target.mut<int64_t>()[row] = row % kClasses;
  if (graph) batch.extras = {{"edge_index", Tensor::zeros({2, 0}, DType::i64)}};
  return batch;
}

std::vector<double> accumulated(const std::vector<Batch>& parts, double& factor) {
  Table model;
  PartWeights weights(task_of(parts[0]), static_cast<int64_t>(parts.size()));
  for (const Batch& part : parts) {
    Context context;
    PassOptions options;
    options.weight = weights.next(part);
    forward_backward(task_of(part), model, part, context, nullptr, options);
  }
  factor = weights.factor();
  optim::scale_grads({model.logits}, factor);
  return model.logits.grad().to_vector();
}

// Each part's gradient, weighted as `share` says.
std::vector<double> expected(const std::vector<Batch>& parts, const std::vector<double>& share) {
  std::vector<double> sum(kRows * kClasses);
  for (size_t i = 0; i < parts.size(); ++i) {
    Table model;
    Context context;
    forward_backward(task_of(parts[i]), model, parts[i], context, nullptr, {});
    const std::vector<double> gradient = model.logits.grad().to_vector();
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += share[i] * gradient[j];
  }
  return sum;
}

void check_near(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-5));
}

}  // namespace

TEST_CASE("the batches of a step weigh as many targets as count in them") {
  struct Case {
    bool several, graph;
  };
  for (const Case& c : {Case{false, false}, Case{false, true}, Case{true, true}}) {
    CAPTURE(c.several);
    CAPTURE(c.graph);
    const auto part = [&](int64_t counted) { return batch_of(counted, c.several, c.graph); };
    CHECK(task_of(part(5)).weight(part(5)) == (c.several ? 5 * kClasses : 5));
    double factor = 0;
    check_near(accumulated({part(5), part(1)}, factor),
               expected({part(5), part(1)}, {5.0 / 6, 1.0 / 6}));
    CHECK(factor != 1);
    check_near(accumulated({part(2), part(3), part(6)}, factor),
               expected({part(2), part(3), part(6)}, {2.0 / 11, 3.0 / 11, 6.0 / 11}));
    // Batches without any target that counts.
    check_near(accumulated({part(0), part(4), part(2)}, factor),
               expected({part(4), part(2)}, {4.0 / 6, 2.0 / 6}));
    for (const double g : accumulated({part(0), part(0)}, factor)) CHECK(g == 0);
    CHECK(factor == 1);
    accumulated({part(3), part(3), part(3)}, factor);
    CHECK(factor == 1);  // equal parts: the bits of means of means
  }
}

TEST_CASE("sampled subgraphs with weights estimate the whole each, and weigh the same") {
  const auto part = [&](int64_t counted) {
    Batch batch = batch_of(counted, false, true);
    batch.extras.emplace_back("node_weight", Tensor::full({kRows}, 0.125));
    return batch;
  };
  double factor = 0;
  check_near(accumulated({part(5), part(1)}, factor), expected({part(5), part(1)}, {0.5, 0.5}));
  CHECK(factor == 1);
}

TEST_CASE("a step of two batches, the last one short, is a step of both at once") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "mlp", "hidden": [16]},
    "data": {"name": "random", "shape": [4, 4, 1], "classes": 3, "train_samples": 22,
             "test_samples": 8, "workers": 0},
    "optim": {"lr": 0.5}, "compression": {"level": "L0"}, "train": {"epochs": 3}, "threads": 1})");
  const auto weights = [&](const std::string& name, const std::string& sets) {
    const Ran ran = frugal("train " + folder / "c.json" + " --json --out " + folder / name + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    CHECK(Json::parse(ran.out)["steps"] == 3);
    return data::SafetensorsFile::open(folder / name + "/checkpoint/last.safetensors").read_all();
  };
  const auto whole = weights("whole", " --set data.batch_size=22");
  const auto parts =
      weights("parts", " --set data.batch_size=16 --set train.gradient_accumulation=2");
  REQUIRE(whole.size() == parts.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    CAPTURE(whole[i].first);
    const auto a = whole[i].second.to_vector(), b = parts[i].second.to_vector();
    double error = 0, norm = 0;
    for (size_t j = 0; j < a.size(); ++j) error += std::pow(a[j] - b[j], 2), norm += a[j] * a[j];
    CHECK(error <= 1e-8 * norm);
  }
}

}  // namespace frugal::apps
