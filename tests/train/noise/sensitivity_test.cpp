#include "train/noise/sensitivity.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/dense/copy.h"
#include "tests/train/gradient_of.h"
#include "tests/train/tiny_run.h"
#include "train/noise/gradient_noise.h"

using namespace frugal;
using namespace frugal::train;
using compress::AdaptivePolicy;

namespace {

constexpr int64_t kSamples = 64;  // a batch

compress::Choice widths(double average, int64_t min_elements = 1024) {
  return {.policy = compress::AdaptiveOptions{.keep = {.min_elements = min_elements},
                                              .average = average}};
}

// A network that has decided a step.
struct Measurable : PolicyRun {
  PassSettings pass{3, {5, 0}, 0, 0};
  AdaptivePolicy& adaptive = dynamic_cast<AdaptivePolicy&>(*policy);
  Batch batch = next();

  explicit Measurable(double average = 3)
      : Measurable(tiny_run("resnet20", {{"shortcut", "A"}}), widths(average)) {}
  Measurable(RunRecipe recipe, const compress::Choice& choice)
      : PolicyRun(std::move(recipe), choice) {
    of_draw(0);
  }
  std::vector<float> of_draw(uint64_t number, bool packed = true) {
    return gradient(batch, number, packed, pass.rng);
  }
  // The variance of the gradient over so many roundings.
  double drawn_variance(uint64_t draws) {
    GradientNoise noise(of_draw(0, false));
    for (uint64_t draw = 0; draw < draws; ++draw) noise.add(of_draw(draw));
    return noise.variance().value;
  }
  std::vector<uint64_t> seqs() const {
    std::vector<uint64_t> all;
    for (const auto& item : adaptive.items()) all.push_back(item.seq);
    return all;
  }
  std::vector<double> measured(const Batch& by, int64_t of) {
    return measure_sensitivity(task(), model(), *policy, by, of, pass, seqs()).value();
  }
  std::vector<double> state() {
    std::vector<double> all = weights();
    for (const auto& b : model().buffers())
      for (double v : ops::cast(*b.buffer, DType::f64).to_vector()) all.push_back(v);
    return all;
  }
};

}  // namespace

TEST_CASE("sensitivities predict the variance of the gradient, from the batch or a part of it") {
  Measurable p;
  const std::vector<uint64_t> seqs = p.seqs();
  REQUIRE(seqs.size() > 10);
  const double drawn = p.drawn_variance(48);
  const Batch part{p.batch.input.slice(0, 0, 16), p.batch.target.slice(0, 0, 16)};
  for (const Batch& by : {p.batch, part}) {
    double predicted = 0;
    for (uint64_t repeat = 0; repeat < 3; ++repeat) {
      p.pass.number = repeat;
      const auto c = p.measured(by, kSamples);
      for (size_t i = 0; i < seqs.size(); ++i) p.adaptive.measured(seqs[i], c[i], 0);
      predicted += p.adaptive.predicted_variance() / 3;
    }
    check_within(predicted, drawn);
  }
}

TEST_CASE("measuring leaves no trace and holds one copy of the gradients") {
  Measurable p;
  const std::vector<double> before = p.state();
  const std::vector<float> gradient = p.of_draw(11);
  int64_t bytes = 0;
  for (const auto& parameter : p.model().parameters())
    bytes += parameter.parameter->value().nbytes();
  const std::vector<double> buffers = p.state();
  p.model().zero_grad();
  allocator(kCpu).reset_peak();
  p.measured(p.batch, kSamples);
  const MemoryReport report = allocator(kCpu).report();
  CHECK(p.state() == buffers);
  CHECK(p.state() != before);  // a step changes the buffers
  CHECK(report.of(Category::gradient) == 0);
  // Gradients of the parameters, twice, and of a few activations.
  const int64_t activations = 4 * kSamples * 8 * 8 * 16 * 4;
  CHECK(report.peak[static_cast<size_t>(Category::gradient)] < 2 * bytes + activations);
  CHECK(p.of_draw(11) == gradient);
}

// Their tensors have a row for each sample: 16 rows are too few for groups of one channel.
TEST_CASE("networks without positions are measured with enough samples for groups of channels") {
  const std::vector<int64_t> hidden(3, 96);
  Measurable p(tiny_run("mlp", {{"hidden", hidden}}, TinyImages{.batch = 128, .samples = 128}),
               widths(3));
  // Channels of very different sizes, as inputs have.
  float* x = p.batch.input.mut<float>();
  for (int64_t i = 0; i < p.batch.input.numel(); ++i) x[i] *= i % 192 % 16 == 0 ? 10.0f : 0.1f;
  p.pass.number = 0;
  const double drawn = p.drawn_variance(48);
  SensitivityOptions options;
  options.batch = 128;
  options.samples = 16;
  options.allocate = [] {};  // widths stay
  double predicted = 0;
  for (uint64_t repeat = 0; repeat < 4; ++repeat) {  // their means, with the last
    p.pass.number = repeat;
    Adaptation(p.task(), p.model(), *p.policy, options).refresh(p.batch, 1, p.pass);
    predicted += p.adaptive.predicted_variance() / 4;
  }
  check_within(predicted, drawn);
}

TEST_CASE("a refresh takes all tensors first and then those whose turn it is") {
  Measurable p;
  SensitivityOptions options;
  options.batch = kSamples;
  options.interval = 10;
  options.first = 3;
  options.samples = 16;
  options.share = 0.1;  // 1 batch: 4 passes of 16 samples
  Adaptation adaptation(p.task(), p.model(), *p.policy, options);
  CHECK(!adaptation.due(1));
  CHECK(adaptation.due(3));
  CHECK(adaptation.due(10));
  CHECK(!adaptation.due(13));
  adaptation.refresh(p.batch, 3, p.pass);
  for (const auto& item : p.adaptive.items()) CHECK(item.measured == 3);
  CHECK(p.adaptive.average_bits() <= 3);
  CHECK(p.adaptive.average_bits() > 2.5);
  auto count = [&](int64_t step) {
    int found = 0;
    for (const auto& item : p.adaptive.items()) found += item.measured == step;
    return found;
  };
  adaptation.refresh(p.batch, 10, p.pass);
  CHECK(count(10) == 3);
  adaptation.refresh(p.batch, 20, p.pass);
  CHECK(count(10) == 3);
  CHECK(count(20) == 3);
}

TEST_CASE("sensitivities of a short batch are those of whole ones") {
  Measurable p;
  SensitivityOptions options;
  options.batch = kSamples;
  options.samples = 16;
  const Batch part{p.batch.input.slice(0, 0, 16), p.batch.target.slice(0, 0, 16)};
  Adaptation(p.task(), p.model(), *p.policy, options).refresh(p.batch, 1, p.pass);
  const double whole = p.adaptive.items().front().sensitivity.value();
  Measurable q;
  Adaptation(q.task(), q.model(), *q.policy, options).refresh(part, 1, q.pass);
  CHECK(q.adaptive.items().front().sensitivity.value() == whole);
}

TEST_CASE("a graph is measured whole, and is charged for as what it costs") {
  const TinyGraph graph{.nodes = 400, .edges = 1200, .features = 8, .batch = 20};
  Measurable p(tiny_run("gcn", {{"layers", 6}, {"width", 16}, {"dropout", 0}}, graph),
               widths(3, 64));
  const int64_t nodes = p.batch.input.size(0);
  REQUIRE(nodes > 3 * graph.batch);
  REQUIRE(p.seqs().size() > 4);
  const auto found = p.measured(p.batch, nodes);

  SensitivityOptions options;
  options.batch = graph.batch;
  options.samples = 4;
  options.interval = 300;
  options.share = 0.01;  // 3 batches
  Adaptation adaptation(p.task(), p.model(), *p.policy, options);
  adaptation.refresh(p.batch, 1, p.pass);
  const auto items = p.adaptive.items();
  for (size_t i = 0; i < items.size(); ++i) CHECK(items[i].sensitivity.value() == found[i]);
  adaptation.refresh(p.batch, 300, p.pass);
  int measured = 0;
  for (const auto& item : p.adaptive.items()) measured += item.measured == 300;
  CHECK(measured == 2);
}

TEST_CASE("a loss that is not finite has no sensitivities, and changes no widths") {
  Measurable p;
  SensitivityOptions options;
  options.batch = kSamples;
  Adaptation adaptation(p.task(), p.model(), *p.policy, options);
  adaptation.refresh(p.batch, 1, p.pass);
  const auto known = p.adaptive.items();
  for (const auto& each : p.model().parameters())
    Tensor(each.parameter->value()).mut<float>()[0] = NAN;
  CHECK_FALSE(
      measure_sensitivity(p.task(), p.model(), *p.policy, p.batch, kSamples, p.pass, p.seqs()));
  adaptation.refresh(p.batch, 2, p.pass);
  const auto items = p.adaptive.items();
  REQUIRE(items.size() == known.size());
  for (size_t i = 0; i < known.size(); ++i) {
    CHECK(items[i].bits == known[i].bits);
    CHECK(items[i].sensitivity == known[i].sensitivity);
    CHECK(items[i].measured == 1);
  }
  for (const auto& each : p.model().parameters()) CHECK_FALSE(each.parameter->grad().defined());
}

TEST_CASE("widths from sensitivities beat one width") {
  Measurable p(4);
  const double uniform = p.drawn_variance(32);
  SensitivityOptions options;
  options.batch = kSamples;
  Adaptation(p.task(), p.model(), *p.policy, options).refresh(p.batch, 1, p.pass);
  CHECK(p.drawn_variance(32) < uniform);
}
