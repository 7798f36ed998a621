#include "train/sensitivity.h"

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "ops/dense/copy.h"
#include "tests/apps/gradient_of.h"
#include "tests/apps/run.h"
#include "tests/train/task_of.h"
#include "train/gradient_noise.h"

using namespace frugal;
using namespace frugal::apps;
using compress::AdaptivePolicy;

namespace {

constexpr int64_t kBatch = 64;

struct Problem {
  std::shared_ptr<Module> model;
  Batch batch;
  std::unique_ptr<AdaptivePolicy> policy;
  StepReplay replay{3, {5, 0}, 0, false};

  explicit Problem(double average = 3) {
    Config config = parse_config(Json::parse(R"({
      "model": {"name": "resnet20", "shortcut": "A"},
      "data": {"name": "random", "shape": [8, 8, 3], "classes": 4, "batch_size": 64,
               "train_samples": 64}})"));
    resolve(config);
    model = make_model(config, {{8, 8, 3}, 0}, kCpu);
    const auto batches = make_batches(config, Split::train);
    batch = *batches->next();
    compress::AdaptiveOptions options;
    options.average = average;
    options.keep.min_elements = 1024;
    policy = std::make_unique<AdaptivePolicy>(options);
    gradient(0);
  }
  std::vector<float> gradient(uint64_t number, bool packed = true) {
    return gradient_of(*model, batch, packed ? policy.get() : nullptr, number, replay.rng);
  }
  std::vector<uint64_t> seqs() const {
    std::vector<uint64_t> all;
    for (const auto& item : policy->items()) all.push_back(item.seq);
    return all;
  }
  std::vector<double> state() {
    std::vector<double> all;
    for (const auto& p : model->parameters())
      for (double v : p.parameter->value().to_vector()) all.push_back(v);
    for (const auto& b : model->buffers())
      for (double v : ops::cast(*b.buffer, DType::f64).to_vector()) all.push_back(v);
    return all;
  }
};

}  // namespace

TEST_CASE("sensitivities predict the variance of the gradient, from the batch or a part of it") {
  Problem p;
  const std::vector<uint64_t> seqs = p.seqs();
  REQUIRE(seqs.size() > 10);
  GradientNoise noise(p.gradient(0, false));
  for (uint64_t draw = 0; draw < 48; ++draw) noise.add(p.gradient(draw));
  const double drawn = noise.variance().value;
  const Batch part{p.batch.input.slice(0, 0, 16), p.batch.target.slice(0, 0, 16)};
  for (const Batch& by : {p.batch, part}) {
    double predicted = 0;
    for (uint64_t repeat = 0; repeat < 3; ++repeat) {
      p.replay.number = repeat;
      const auto c =
          measure_sensitivity(classification(), *p.model, *p.policy, by, kBatch, p.replay, seqs);
      for (size_t i = 0; i < seqs.size(); ++i) p.policy->measured(seqs[i], c[i], 0);
      predicted += p.policy->predicted_variance() / 3;
    }
    CAPTURE(predicted / drawn);
    CHECK(predicted < 1.5 * drawn);
    CHECK(predicted > drawn / 1.5);
  }
}

TEST_CASE("measuring leaves no trace and holds one copy of the gradients") {
  Problem p;
  const std::vector<double> before = p.state();
  const std::vector<float> gradient = p.gradient(11);
  int64_t bytes = 0;
  for (const auto& parameter : p.model->parameters())
    bytes += parameter.parameter->value().nbytes();
  const std::vector<double> buffers = p.state();
  p.model->zero_grad();
  allocator(kCpu).reset_peak();
  measure_sensitivity(classification(), *p.model, *p.policy, p.batch, kBatch, p.replay, p.seqs());
  const MemoryReport report = allocator(kCpu).report();
  CHECK(p.state() == buffers);
  CHECK(p.state() != before);  // a step changes the buffers
  CHECK(report.of(Category::gradient) == 0);
  // Gradients of the parameters, twice, and of a few activations.
  const int64_t activations = 4 * kBatch * 8 * 8 * 16 * 4;
  CHECK(report.peak[static_cast<size_t>(Category::gradient)] < 2 * bytes + activations);
  CHECK(p.gradient(11) == gradient);
}

// Their tensors have a row for each sample: 16 rows are too few for groups of one channel.
TEST_CASE("networks without positions are measured with enough samples for groups of channels") {
  Config config = parse_config(Json::parse(R"({
    "model": {"name": "mlp", "hidden": [96, 96, 96]},
    "data": {"name": "random", "shape": [8, 8, 3], "classes": 4, "batch_size": 128,
             "train_samples": 128}})"));
  resolve(config);
  const auto model = make_model(config, {{8, 8, 3}, 0}, kCpu);
  const Batch batch = *make_batches(config, Split::train)->next();
  compress::AdaptiveOptions keep;
  keep.average = 3;
  keep.keep.min_elements = 1024;
  AdaptivePolicy policy(keep);
  // Channels of very different sizes, as inputs have.
  float* x = batch.input.mut<float>();
  for (int64_t i = 0; i < batch.input.numel(); ++i) x[i] *= i % 192 % 16 == 0 ? 10.0f : 0.1f;
  StepReplay replay{0, {5, 0}, 0, false};
  GradientNoise noise(gradient_of(*model, batch, nullptr, 0, replay.rng));
  for (uint64_t draw = 0; draw < 48; ++draw)
    noise.add(gradient_of(*model, batch, &policy, draw, replay.rng));
  const double drawn = noise.variance().value;
  SensitivityOptions options;
  options.batch = 128;
  options.samples = 16;
  options.allocate = [] {};  // widths stay
  double predicted = 0;
  for (uint64_t repeat = 0; repeat < 4; ++repeat) {  // their means, with the last
    replay.number = repeat;
    Adaptation(classification(), *model, policy, options).refresh(batch, 1, replay);
    predicted += policy.predicted_variance() / 4;
  }
  CAPTURE(predicted / drawn);
  CHECK(predicted < 1.5 * drawn);
  CHECK(predicted > drawn / 1.5);
}

TEST_CASE("a refresh takes all tensors first and then those whose turn it is") {
  Problem p;
  SensitivityOptions options;
  options.batch = kBatch;
  options.interval = 10;
  options.first = 3;
  options.samples = 16;
  options.share = 0.1;  // 1 batch: 4 passes of 16 samples
  Adaptation adaptation(classification(), *p.model, *p.policy, options);
  CHECK(!adaptation.due(1));
  CHECK(adaptation.due(3));
  CHECK(adaptation.due(10));
  CHECK(!adaptation.due(13));
  adaptation.refresh(p.batch, 3, p.replay);
  for (const auto& item : p.policy->items()) CHECK(item.measured == 3);
  CHECK(p.policy->average_bits() <= 3);
  CHECK(p.policy->average_bits() > 2.5);
  auto count = [&](int64_t step) {
    int found = 0;
    for (const auto& item : p.policy->items()) found += item.measured == step;
    return found;
  };
  adaptation.refresh(p.batch, 10, p.replay);
  CHECK(count(10) == 3);
  adaptation.refresh(p.batch, 20, p.replay);
  CHECK(count(10) == 3);
  CHECK(count(20) == 3);
}

TEST_CASE("sensitivities of a short batch are those of whole ones") {
  Problem p;
  SensitivityOptions options;
  options.batch = kBatch;
  options.samples = 16;
  const Batch part{p.batch.input.slice(0, 0, 16), p.batch.target.slice(0, 0, 16)};
  Adaptation(classification(), *p.model, *p.policy, options).refresh(p.batch, 1, p.replay);
  const double whole = p.policy->items().front().sensitivity.value();
  Problem q;
  Adaptation(classification(), *q.model, *q.policy, options).refresh(part, 1, q.replay);
  CHECK(q.policy->items().front().sensitivity.value() == whole);
}

TEST_CASE("a graph is measured whole, and is charged for as what it costs") {
  Config config = parse_config(Json::parse(R"({
    "model": {"name": "gcn", "layers": 6, "width": 16, "dropout": 0},
    "data": {"name": "random_graph", "nodes": 400, "edges": 1200, "features": 8, "classes": 3,
             "sampler": "neighbours", "batch_size": 20, "fan_outs": [4, 4]}})"));
  resolve(config);
  const auto model = make_model(config, batch_spec(config), kCpu);
  const Batch batch = *make_batches(config, Split::train)->next();
  const int64_t nodes = batch.input.size(0);
  REQUIRE(nodes > 3 * config.data.batch_size);
  compress::AdaptiveOptions keep;
  keep.average = 3;
  keep.keep.min_elements = 64;
  AdaptivePolicy policy(keep);
  const StepReplay replay{3, {5, 0}, 0, false};
  Rng rng;
  Context context;
  context.rng = &rng;
  begin_step(0);
  forward_backward(task_of(batch), *model, batch, context, &policy, {});
  std::vector<uint64_t> seqs;
  for (const auto& item : policy.items()) seqs.push_back(item.seq);
  REQUIRE(seqs.size() > 4);
  const auto found =
      measure_sensitivity(task_of(batch), *model, policy, batch, nodes, replay, seqs);

  SensitivityOptions options;
  options.batch = config.data.batch_size;
  options.samples = 4;
  options.interval = 300;
  options.share = 0.01;  // 3 batches
  Adaptation adaptation(task_of(batch), *model, policy, options);
  adaptation.refresh(batch, 1, replay);
  const auto items = policy.items();
  for (size_t i = 0; i < items.size(); ++i) CHECK(items[i].sensitivity.value() == found[i]);
  adaptation.refresh(batch, 300, replay);
  int measured = 0;
  for (const auto& item : policy.items()) measured += item.measured == 300;
  CHECK(measured == 2);
}

TEST_CASE("a loss that is not finite has no sensitivities") {
  Problem p;
  for (const auto& each : p.model->parameters())
    Tensor(each.parameter->value()).mut<float>()[0] = NAN;
  CHECK_THROWS_AS(measure_sensitivity(classification(), *p.model, *p.policy, p.batch, kBatch,
                                      p.replay, p.seqs()),
                  Error);
}

TEST_CASE("widths from sensitivities beat one width") {
  Problem p(4);
  auto drawn = [&] {
    GradientNoise noise(p.gradient(0, false));
    for (uint64_t draw = 0; draw < 32; ++draw) noise.add(p.gradient(draw));
    return noise.variance().value;
  };
  const double uniform = drawn();
  SensitivityOptions options;
  options.batch = kBatch;
  Adaptation(classification(), *p.model, *p.policy, options).refresh(p.batch, 1, p.replay);
  CHECK(drawn() < uniform);
}

TEST_CASE("an adaptive run writes its widths down and does not depend on threads") {
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  config["compression"] = {
      {"level", "L2"}, {"advanced", {{"min_elements", 96}}}, {"gact", {{"interval", 7}}}};
  write_file(folder / "c.json", config.dump());
  const std::string train = "train " + folder / "c.json" + " --json";
  const Ran whole = apps::frugal(train + " --out " + folder / "a");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  const Ran threads = apps::frugal(train + " --set threads=2 --out " + folder / "b");
  Json a = Json::parse(whole.out), b = Json::parse(threads.out);
  CHECK(a["final"] == b["final"]);
  CHECK(a["speed"]["adaptation_share"] > 0);
  int widths = 0;
  std::stringstream lines(read_file(folder / "a/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    widths += Json::parse(line)["type"] == "widths";
  CHECK(widths == 80 / 7);
}
