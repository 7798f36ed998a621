#include "train/noise/convergence.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/train/find_in.h"
#include "tests/train/gradient_of.h"
#include "tests/train/tiny_run.h"
#include "train/noise/gradient_noise.h"
#include "train/option_error.h"

using namespace frugal;
using namespace frugal::train;

namespace {

// A small network on noise, its weights moved by plain steps.
struct Tracked : PolicyRun {
  compress::Choice choice;
  TrackingOptions options;

  Tracked(const compress::Choice& of, int64_t interval)
      : Tracked(of, interval, tiny_run("resnet20", {{"shortcut", "A"}}, kImages), 8192) {}
  // A whole batch's tensors are larger than so many elements, a part's are not.
  Tracked(const compress::Choice& of, int64_t interval, RunRecipe recipe, int64_t min_elements)
      : PolicyRun(std::move(recipe), with(of, min_elements)), choice(with(of, min_elements)) {
    options.interval = interval;
    options.batch = kImages.batch;
    options.momentum = 0.9;
  }
  static Tracked mlp(const compress::Choice& of, int64_t interval) {
    const std::vector<int64_t> hidden = {128, 64};
    return {of, interval, tiny_run("mlp", {{"hidden", hidden}}, kImages), 4095};
  }
  // Packs of half a batch what the first one packs of a whole batch.
  static Tracked half(const compress::Choice& of) {
    return {of, 1, tiny_run("resnet20", {{"shortcut", "A"}}, kImages), 4096};
  }
  Tracking tracking() { return Tracking(task(), model(), *policy, options); }
  // Whether the tracking changed bits.
  bool step(Tracking& tracking, int64_t number, bool track, double lr) {
    const Batch batch = next();
    model().zero_grad();
    if (track) tracking.before(batch, number);
    gradient(batch, static_cast<uint64_t>(number));
    run.optimizer().step(lr);
    tracking.stepped(lr, 1);
    return track && tracking.after(number);
  }

 private:
  static constexpr TinyImages kImages{.samples = 2048};
  static compress::Choice with(compress::Choice choice, int64_t min_elements) {
    choice.keep().min_elements = min_elements;
    return choice;
  }
};

compress::Choice adaptive_bits(double average) {
  return {.policy = compress::AdaptiveOptions{.average = average}};
}

}  // namespace

TEST_CASE("a few samples tell the variances of whole batches") {
  for (const compress::Choice& choice : {compress::bits(2), adaptive_bits(2)}) {
    CAPTURE(choice.is_adaptive());
    Tracked p(choice, 1);
    p.options.samples = 16;
    Tracking tracking = p.tracking();
    for (int64_t i = 1; i <= 8; ++i) p.step(tracking, i, true, 1e-4);  // weights hardly move
    const Batch batch = p.next();
    GradientNoise rounding(p.gradient(batch, 0, false));
    for (uint64_t draw = 0; draw < 12; ++draw) rounding.add(p.gradient(batch, draw));
    const std::vector<float> first = p.gradient(p.next(), 0, false);
    GradientNoise sampling(std::vector<float>(first.size(), 0.0f));
    for (int i = 0; i < 16; ++i) sampling.add(p.gradient(p.next(), 0, false));
    check_within(tracking.tracker().added_variance(), rounding.variance().value);
    check_within(tracking.tracker().minibatch_variance(), sampling.variance().value);
  }
}

TEST_CASE("tracking tells the squared bias of a rounding from its variance") {
  // Rounding to nearest has no variance: its whole error is bias. Codes of 2 bits have none.
  for (const bool nearest : {true, false}) {
    CAPTURE(nearest);
    const compress::Choice choice = compress::bits(
        2, {.rounding = nearest ? compress::Rounding::nearest : compress::Rounding::dithered});
    Tracked p(choice, 1);
    Tracking tracking = p.tracking();
    // At weights that do not move, with one batch, whose first half is measured.
    const Batch batch = p.next(), part{batch.input.slice(0, 0, 32), batch.target.slice(0, 0, 32)};
    constexpr int kTimes = 12;
    for (int i = 1; i <= kTimes; ++i) {
      tracking.before(batch, i);
      tracking.after(i);
    }
    const Convergence found = tracking.report().value();
    REQUIRE(found.squared_bias);
    const double bias = *found.squared_bias, variance = found.added_variance;
    Tracked half = Tracked::half(choice);
    const std::vector<float> exact = half.gradient(part, 0, false);
    if (nearest) {
      const std::vector<float> rounded = half.gradient(part, 0);
      double square = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        const double by = static_cast<double>(rounded[i]) - static_cast<double>(exact[i]);
        square += by * by;
      }
      CHECK(variance == 0);
      CHECK(bias == doctest::Approx(square).epsilon(0.1));
      CHECK(found.added_share == found.bias_share.value());
    } else {
      // How far products of independent errors lie from 0; the average has the weight of 9.
      std::vector<std::vector<float>> draws;
      for (uint64_t draw = 0; draw < 12; ++draw) draws.push_back(half.gradient(part, draw));
      double squares = 0, pairs = 0;
      for (size_t a = 0; a < draws.size(); ++a)
        for (size_t b = 0; b < a; ++b) {
          double product = 0;
          for (size_t i = 0; i < exact.size(); ++i)
            product += (static_cast<double>(draws[a][i]) - exact[i]) *
                       (static_cast<double>(draws[b][i]) - exact[i]);
          squares += product * product;
          ++pairs;
        }
      const double deviation = std::sqrt(squares / pairs / 9);
      CAPTURE(deviation);
      CHECK(variance > 8 * deviation);  // else this would show nothing
      CHECK(std::abs(bias) < 4 * deviation);
    }
  }
}

TEST_CASE("smoothness is the change of the exact gradient over that of the weights") {
  Tracked p(compress::bits(0), 1);
  Tracking tracking = p.tracking();
  const Batch batch = p.next(), part{batch.input.slice(0, 0, 32), batch.target.slice(0, 0, 32)};
  auto squares = [](const auto& a, const auto& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i)
      sum += (static_cast<double>(a[i]) - static_cast<double>(b[i])) *
             (static_cast<double>(a[i]) - static_cast<double>(b[i]));
    return sum;
  };
  const std::vector<double> w0 = p.weights();
  const std::vector<float> g0 = p.gradient(part, 0, false);
  p.model().zero_grad();
  tracking.before(batch, 1);
  p.gradient(batch, 1, false);
  p.run.optimizer().step(1e-3);
  tracking.after(1);
  const double beta = std::sqrt(squares(p.gradient(part, 0, false), g0) / squares(p.weights(), w0));
  CHECK(tracking.tracker().smoothness() == doctest::Approx(beta).epsilon(0.1));
  CHECK(tracking.tracker().added_variance() == 0);
  CHECK(!tracking.report()->bits);
}

TEST_CASE("measuring leaves no trace") {
  Tracked p(adaptive_bits(2), 1);
  Tracking tracking = p.tracking();
  const Batch batch = p.next();
  p.gradient(batch, 0);
  p.model().zero_grad();
  const std::vector<double> before = p.weights();
  const auto* adaptive = find_in<compress::AdaptivePolicy>(*p.policy);
  const size_t items = adaptive->items().size();
  int64_t gradients = 0;
  for (const auto& each : p.model().parameters()) gradients += each.parameter->value().nbytes();
  allocator(kCpu).reset_peak();
  tracking.before(batch, 1);
  tracking.after(1);
  const MemoryReport report = allocator(kCpu).report();
  CHECK(p.weights() == before);
  CHECK(adaptive->items().size() == items);
  CHECK(report.of(Category::gradient) == 0);
  CHECK(report.of(Category::packed) == 0);
  // No copy of the gradients, nor ever all of them.
  const int64_t activations = 4 * 32 * 8 * 8 * 16 * 4;
  CHECK(report.peak[static_cast<size_t>(Category::gradient)] < gradients + activations);
  CHECK(tracking.tracker().measurements() == 1);
  // One sample cannot be cut in two.
  tracking.before({batch.input.slice(0, 0, 1), batch.target.slice(0, 0, 1)}, 2);
  CHECK(!tracking.after(2));
  CHECK(tracking.tracker().measurements() == 1);
  // Values that are not finite are not measured either.
  Tensor(p.model().parameters().front().parameter->value()).mut<float>()[0] = NAN;
  tracking.before(batch, 3);
  CHECK(!tracking.after(3));
  CHECK(tracking.tracker().measurements() == 1);
}

TEST_CASE("the guard raises bits that are too few, lowers those that are too many, and resumes") {
  struct Row {
    compress::Choice choice;
    int64_t interval;
    bool rises;
  };
  for (const Row& row : {Row{compress::bits(1), 1, true}, Row{compress::bits(12), 1, false},
                         Row{adaptive_bits(10), 200, false}}) {
    CAPTURE(row.choice.bits());
    constexpr double kLr = 1e-4;
    Tracked p = Tracked::mlp(row.choice, row.interval), q = Tracked::mlp(row.choice, row.interval);
    p.options.guard = q.options.guard = 0.02;
    Tracking tracking = p.tracking();
    const auto restarted = [&] {
      return std::make_unique<Tracking>(q.task(), q.model(), *q.policy, q.options);
    };
    auto resumed = restarted();
    p.step(tracking, 1, false, kLr);
    q.step(*resumed, 1, false, kLr);
    const double start = tracking.state()[0];
    for (int64_t i = 2; i <= 24; ++i) {
      p.step(tracking, i, true, kLr);
      q.step(*resumed, i, true, kLr);
      if (i != 9) continue;
      const std::vector<double> state = resumed->state();
      const auto* adaptive = find_in<compress::AdaptivePolicy>(*q.policy);
      const auto widths = adaptive != nullptr ? std::optional(adaptive->state()) : std::nullopt;
      q.policy = compress::make_policy(q.choice, kCpu, 0);
      resumed = restarted();
      resumed->restore(state);
      if (widths) find_in<compress::AdaptivePolicy>(*q.policy)->restore(*widths);
      CHECK_THROWS_AS(resumed->restore({1, 2}), Error);
    }
    CHECK(resumed->state() == tracking.state());
    const Convergence found = tracking.report().value();
    CHECK((numbers_of(resumed->report().value()) == numbers_of(found)));
    CAPTURE(found.added_share);
    CHECK(found.added_share < 0.02 * 1.3);
    CHECK(found.added_share > 0.0002);
    CHECK((found.bits > start) == row.rises);
  }
}

TEST_CASE("when to measure, and settings that contradict each other") {
  Tracked p(compress::bits(4), 40), guarded(compress::bits(4), 200);
  guarded.options.guard = 0.1;
  const Tracking tracking = p.tracking();
  CHECK(!tracking.due(1));
  CHECK(!tracking.due(20));
  CHECK(tracking.due(40));
  CHECK(tracking.due(80));
  const Tracking early = guarded.tracking();
  for (const int64_t step : {25, 50, 100, 200, 400}) CHECK(early.due(step));
  CHECK(!early.due(300));
  using compress::AcgcOptions;
  const AcgcOptions nearest{.rounding = compress::Rounding::nearest},
      published{.rule = compress::acgc::Rule::published, .rounding = compress::Rounding::nearest};
  for (const compress::Choice& choice :
       {compress::bits(0), compress::Choice{.policy = compress::ActnnOptions{.average = 0}},
        compress::Choice{.policy = nearest}, compress::Choice{.policy = published}}) {
    Tracked raw(choice, 1);
    raw.options.guard = 0.1;
    CHECK_THROWS_WITH_AS(raw.tracking(),
                         doctest::Contains("tracking.guard: expected a policy with a width"),
                         OptionError);
  }
  guarded.options.least_bits = 6;
  CHECK_THROWS_WITH_AS(guarded.tracking(),
                       doctest::Contains("tracking.guard_min_bits: expected at most the 4 bits"),
                       OptionError);
}
