// Losses and measures of networks that give a class to each pixel.
#include "train/tasks/segmentation.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "models/resized_module.h"
#include "train/run/run_state.h"
#include "train/training_step.h"

using namespace frugal;
using namespace frugal::train;

namespace {

using Loss = SegmentationOptions::Loss;

// Its small logits are its parameter: [N, side, side, C] for outputs of `factor` times the sides.
struct Small final : ResizedModule {
  Variable logits;
  Small(int64_t samples, int64_t classes, int64_t side = 4, int64_t factor = 2)
      : large_(factor * side) {
    Tensor values = Tensor::empty({samples, side, side, classes});
    for (int64_t i = 0; i < values.numel(); ++i)
      values.mut<float>()[i] = normal({2, 7}, static_cast<uint64_t>(i));
    logits = register_parameter("logits", values);
  }
  Variable auxiliary;  // logits of a second head, if it is defined
  ResizedModule::Small before_resize(Variable, Context& context) override {
    ResizedModule::Small small{scale(logits, 1), large_, large_};
    if (context.training && auxiliary.defined()) small.auxiliary = scale(auxiliary, 1);
    return small;
  }

 private:
  int64_t large_;
};

BatchSpec spec_of(int64_t classes) {
  BatchSpec spec;
  spec.classes = classes;
  spec.target = BatchSpec::Target::class_of_pixel;
  spec.metric = "miou";
  return spec;
}

Batch batch_of(int64_t samples, int64_t classes, int64_t side = 8) {
  Batch batch;
  batch.input = Tensor::zeros({samples, side, side, 1});
  batch.target = Tensor::empty({samples, side, side}, DType::i64);
  for (int64_t i = 0; i < batch.target.numel(); ++i)
    batch.target.mut<int64_t>()[i] = i % 5 == 0 ? kIgnored : i % 7 % classes;
  return batch;
}

BatchResult trained(Small& model, const Batch& batch, const SegmentationOptions& options) {
  model.zero_grad();
  Context context;
  return forward_backward(Segmentation(spec_of(3), options), model, batch, context, nullptr, {});
}

// -w log p of each pixel that counts, and w, by plain loops.
std::pair<double, double> sums(const Tensor& logits, const Tensor& target,
                               const std::vector<double>& weights, double gamma) {
  double sum = 0, all = 0;
  const int64_t classes = logits.size(-1);
  for (int64_t i = 0; i < target.numel(); ++i) {
    const int64_t wanted = target.data<int64_t>()[i];
    if (wanted == kIgnored) continue;
    double total = 0;
    for (int64_t c = 0; c < classes; ++c) total += std::exp(logits.item(i * classes + c));
    const double p = std::exp(logits.item(i * classes + wanted)) / total;
    const double weight = weights[static_cast<size_t>(wanted)];
    sum -= weight * std::pow(1 - p, gamma) * std::log(p);
    all += gamma > 0 ? 1 : weight;
  }
  return {sum, all};
}

}  // namespace

TEST_CASE("losses of pixels: cross-entropy with weights of classes, focal, and the sum with Dice") {
  Small model(3, 3);
  const Batch batch = batch_of(3, 3);
  const std::vector<double> weights = {1, 0.5, 3};
  Context context;
  const Tensor logits = model.forward(Variable(batch.input), context).value();
  const auto [plain, count] = sums(logits, batch.target, {1, 1, 1}, 0);
  CHECK(trained(model, batch, {}).loss == doctest::Approx(plain / count));
  const auto [weighted, weight] = sums(logits, batch.target, weights, 0);
  SegmentationOptions options{.class_weights = weights};
  CHECK(trained(model, batch, options).loss == doctest::Approx(weighted / weight));
  CHECK(Segmentation(spec_of(3), options).weight(batch) == doctest::Approx(weight));
  const auto [focal, focal_count] = sums(logits, batch.target, weights, 1.5);
  options.loss = Loss::focal;
  options.focal_gamma = 1.5;
  CHECK(trained(model, batch, options).loss == doctest::Approx(focal / focal_count));
  const double dice = trained(model, batch, {.loss = Loss::dice}).loss;
  CHECK(dice > 0);
  CHECK(dice < 1);
  const BatchResult both = trained(model, batch, {.loss = Loss::cross_entropy_dice});
  CHECK(both.loss == doctest::Approx(plain / count + dice));
  CHECK(both.counted == static_cast<int64_t>(count));
  Batch again = batch;
  const ForwardPass pass = forward_pass(
      Segmentation(spec_of(3), {.loss = Loss::cross_entropy_dice}), model, again, context, {});
  CHECK(find_tensor(pass.terms, "dice").item() == doctest::Approx(dice));
  CHECK(find_tensor(pass.terms, "cross_entropy").item() == doctest::Approx(plain / count));
}

TEST_CASE("losses of batches weigh by what they were divided by: the weights of their pixels") {
  const std::vector<double> weights = {1, 0.25, 7};
  const Batch all = batch_of(3, 3);
  for (const Loss loss : {Loss::cross_entropy, Loss::focal}) {
    const SegmentationOptions options{.loss = loss, .class_weights = weights};
    const Segmentation task(spec_of(3), options);
    const auto result = [&](Module& model, Batch batch) {
      Context context;
      return run_forward(task, model, batch, context).result;
    };
    Small whole(3, 3);
    Totals expected, cut;
    expected.add(result(whole, all));
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 3}}) {
      Small some(end - begin, 3);
      some.logits = Variable(whole.logits.value().slice(0, begin, end));
      // Each part has another share of the heavy class.
      cut.add(result(some, task.part(all, begin, end)));
    }
    CHECK(cut.samples == expected.samples);
    CHECK(cut.mean_loss() == doctest::Approx(expected.mean_loss()).epsilon(1e-5));
    Totals evaluated;  // the plain cross-entropy weighs by numbers
    Context context;
    context.training = false;
    Batch here = all;
    evaluated.add(run_forward(Segmentation(spec_of(3), options), whole, here, context).result);
    CHECK(evaluated.weight == static_cast<double>(evaluated.samples));
  }
}

namespace {

// A class for each pixel, from its values alone; a second head gives the same.
struct PixelWise final : ResizedModule {
  Variable weight;
  bool has_second;
  explicit PixelWise(bool second) : has_second(second) {
    Tensor values = Tensor::empty({3, 2});
    for (int64_t i = 0; i < values.numel(); ++i)
      values.mut<float>()[i] = normal({4, 9}, static_cast<uint64_t>(i));
    weight = register_parameter("weight", values);
  }
  ResizedModule::Small before_resize(Variable x, Context& context) override {
    ResizedModule::Small small{linear(x, weight), 2 * x.size(1), 2 * x.size(2)};
    if (context.training && has_second) small.auxiliary = linear(x, weight);
    return small;
  }
};

}  // namespace

TEST_CASE("parts of a step give the gradient of the whole batch, whatever divides the loss") {
  Batch all;
  all.input = Tensor::empty({5, 4, 4, 2});
  for (int64_t i = 0; i < all.input.numel(); ++i)
    all.input.mut<float>()[i] = normal({4, 11}, static_cast<uint64_t>(i));
  // Later pictures have more of the last class, and fewer pixels that count.
  all.target = Tensor::empty({5, 8, 8}, DType::i64);
  for (int64_t i = 0; i < all.target.numel(); ++i) {
    const int64_t picture = i / 64, at = i % 64;
    all.target.mut<int64_t>()[i] = at % 6 < picture ? kIgnored : at % 10 < 2 * picture ? 2 : at % 2;
  }
  const std::vector<double> weights = {1, 0.25, 7};
  for (const Loss loss : {Loss::cross_entropy, Loss::focal})
    for (const auto& class_weights : {std::vector<double>{}, weights})
      for (const bool second : {false, true})
        for (const double smoothing : {0.0, 0.1}) {
          CAPTURE(static_cast<int>(loss));
          CAPTURE(class_weights.size());
          CAPTURE(second);
          CAPTURE(smoothing);
          const Segmentation task(spec_of(3), {.loss = loss, .class_weights = class_weights});
          PixelWise model(second);
          const auto gradient = [&](const std::vector<std::pair<int64_t, int64_t>>& parts) {
            model.zero_grad();
            PartWeights part_weights(task, static_cast<int64_t>(parts.size()));
            double mean = 0;
            for (const auto& [begin, end] : parts) {
              Context context;
              PassOptions how;
              Batch part = task.part(all, begin, end);
              how.label_smoothing = smoothing;
              how.weight = part_weights.next(part);
              mean += how.weight *
                      forward_backward(task, model, std::move(part), context, nullptr, how).loss;
            }
            std::vector<double> found = model.weight.grad().to_vector();
            for (double& each : found) each *= part_weights.factor();
            found.push_back(mean * part_weights.factor());
            return found;
          };
          const std::vector<double> whole = gradient({{0, 5}}),
                                    parts = gradient({{0, 1}, {1, 3}, {3, 5}});
          // Sums of 320 terms in f32.
          for (size_t i = 0; i < whole.size(); ++i)
            CHECK(parts[i] == doctest::Approx(whole[i]).epsilon(1e-4));
        }
}

TEST_CASE("label smoothing with weights of classes: all at once and in parts") {
  constexpr int64_t kSamples = 16, kSide = 80, kFactor = 8;  // logits of 75 MiB
  Small model(kSamples, 3, kSide, kFactor);
  const Batch batch = batch_of(kSamples, 3, kFactor * kSide);
  const Segmentation task(spec_of(3), {.class_weights = {1, 0.25, 7}});
  Context context;
  double losses[2];
  for (const bool whole : {false, true}) {
    Batch here = batch;
    losses[whole] =
        run_forward(task, model, here, context, {.label_smoothing = 0.1, .keep_output = whole})
            .result.loss;
  }
  CHECK(losses[0] == doctest::Approx(losses[1]).epsilon(1e-5));
}

TEST_CASE("the loss of a second head counts half, whatever the loss, and in training alone") {
  constexpr int64_t kClasses = 3;
  Small one(3, kClasses), two(3, kClasses);
  two.auxiliary = two.logits;  // both heads give the same answers
  const Batch batch = batch_of(3, kClasses);
  for (const Loss loss : {Loss::cross_entropy, Loss::focal, Loss::dice, Loss::cross_entropy_dice}) {
    for (const bool keep_output : {false, true}) {
      const Segmentation task(spec_of(kClasses), {.loss = loss, .class_weights = {1, 2, 3}});
      Context context;
      Batch here = batch, again = batch;
      const ForwardPass alone = forward_pass(task, one, here, context, {});
      const ForwardPass both =
          forward_pass(task, two, again, context, {.keep_output = keep_output});
      const double plain = alone.loss.value().item();
      CHECK(both.loss.value().item() == doctest::Approx(1.5 * plain));
      CHECK(both.output.defined() == keep_output);
      double sum = 0;
      for (const auto& [name, term] : both.terms) sum += term.item();
      CHECK(sum == doctest::Approx(1.5 * plain));
      CHECK(find_tensor(both.terms, "aux").item() == doctest::Approx(0.5 * plain));
      context.training = false;
      here = batch;
      again = batch;
      CHECK(forward_pass(task, two, again, context, {}).loss.value().item() ==
            forward_pass(task, one, here, context, {}).loss.value().item());
    }
  }
}

TEST_CASE("an evaluation reports the plain cross-entropy, whatever is trained with") {
  Small model(3, 3);
  const Batch batch = batch_of(3, 3);
  const double plain = trained(model, batch, {}).loss;
  Context context;
  context.training = false;
  for (const bool keep_output : {false, true}) {
    Batch here = batch;
    const Segmentation task(spec_of(3), {.loss = Loss::dice, .class_weights = {1, 2, 3}});
    const Outcome outcome = run_forward(task, model, here, context, {.keep_output = keep_output});
    CHECK(outcome.result.loss == doctest::Approx(plain));
    CHECK(outcome.output.defined() == keep_output);
  }
}

TEST_CASE("large logits of pixels are made in parts, with the loss and gradient of all at once") {
  constexpr int64_t kSamples = 16, kClasses = 3, kSide = 80, kFactor = 8;  // logits of 75 MiB
  Small model(kSamples, kClasses, kSide, kFactor);
  const Batch batch = batch_of(kSamples, kClasses, kFactor * kSide);
  const auto run = [&](bool whole, StepMemory& memory) {
    model.zero_grad();
    Context context;
    Batch here = batch;
    begin_peak(kCpu);
    Outcome outcome =
        run_forward(Segmentation(spec_of(kClasses)), model, here, context, {.keep_output = whole});
    outcome.output = {};
    backward(std::exchange(outcome.loss, {}));
    end_peak(kCpu, memory);
    return outcome.result;
  };
  SUBCASE("of one head") {}
  SUBCASE("of two heads") { model.auxiliary = model.logits; }
  StepMemory parts_memory, whole_memory;
  const BatchResult whole = run(true, whole_memory);
  const Tensor wanted = model.logits.grad();
  const BatchResult parts = run(false, parts_memory);
  CHECK(parts.loss == doctest::Approx(whole.loss));
  CHECK(parts.correct == whole.correct);
  CHECK(parts.counted == whole.counted);
  CHECK(parts_memory.peak < whole_memory.peak - (int64_t{50} << 20));
  double off = 0;
  for (int64_t i = 0; i < wanted.numel(); i += 97)
    off = std::max(off, std::abs(wanted.item(i) - model.logits.grad().item(i)));
  CHECK(off < 1e-9);
}

TEST_CASE("the last batch of an epoch makes large logits of pixels in parts, as whole ones do") {
  constexpr int64_t kSamples = 6, kClasses = 3, kSide = 80, kFactor = 8;  // logits of 28 MiB
  Small model(kSamples, kClasses, kSide, kFactor);
  SUBCASE("of one head") {}
  SUBCASE("of two heads") { model.auxiliary = model.logits; }
  const auto peak = [&](int64_t whole_batch) {
    model.zero_grad();
    BatchSpec spec = spec_of(kClasses);
    spec.whole_batch = whole_batch;
    Context context;
    Batch here = batch_of(kSamples, kClasses, kFactor * kSide);
    begin_peak(kCpu);
    backward(run_forward(Segmentation(spec), model, here, context, {}).loss);
    StepMemory memory;
    end_peak(kCpu, memory);
    return memory.peak;
  };
  CHECK(peak(16) < peak(0));
}

TEST_CASE("Dice and intersections over unions of the classes that occur") {
  const Segmentation task(spec_of(3));
  const auto metric = task.metric();
  Batch batch;
  batch.target = Tensor::from<int64_t>({0, 0, 1, kIgnored}, {1, 2, 2});
  metric->add(Tensor::from<float>({1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0}, {1, 2, 2, 3}), batch);
  CHECK(metric->value(0) == doctest::Approx(0.5));
  const auto details = metric->details();
  REQUIRE(details.size() == 5);  // class 2 occurs nowhere
  CHECK(details[0].first == "dice");
  CHECK(details[0].second == doctest::Approx(2.0 / 3));
  CHECK(details[2].first == "iou.0");
  CHECK(details[2].second == doctest::Approx(0.5));
}

TEST_CASE("weights of pixels that no classes have are refused") {
  CHECK_THROWS_WITH_AS(Segmentation(spec_of(3), {.class_weights = {1, 2}}),
                       doctest::Contains("3 classes, got 2"), Error);
  CHECK_THROWS_AS(Segmentation(spec_of(2), {.class_weights = {1, 0}}), Error);
  CHECK_THROWS_WITH_AS(Segmentation(spec_of(2), {.focal_gamma = -1}),
                       "[segmentation] expected a gamma of at least 0, got -1", Error);
}
