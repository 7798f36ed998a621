// A study of measured sensitivities: GACT's algorithm 1 on whole batches, the estimate from a few
// samples that training uses, and the variance of the gradient that each of them predicts.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "apps/bench/gradient_bench.h"
#include "apps/cli/report.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "lab/commands.h"
#include "train/noise/sensitivity.h"
#include "train/statistics.h"

namespace frugal::lab {

using namespace apps;

namespace {

using Clock = std::chrono::steady_clock;
using Item = compress::AdaptivePolicy::Item;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double predicted(const std::vector<Item>& items, const std::vector<double>& c) {
  double sum = 0;
  for (size_t i = 0; i < items.size(); ++i)
    sum += c[i] * compress::AdaptivePolicy::variance(items[i], items[i].bits);
  return sum;
}

}  // namespace

void study_sensitivity(const LabArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets, "compression");
  if (!has_adaptive_widths(config.compression)) {
    config.compression.bits = 4;
    config.compression.gact_adaptive = true;
  }
  config.compression.offload.clear();
  resolve(config);
  const int64_t draws = arguments.repeats > 0 ? arguments.repeats : 32;
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  bench.begin(0);
  const RngKey key = bench.rng();
  const Batch& batch = bench.batch();
  const int64_t n = batch.input.size(0);
  const int64_t samples = std::min(n, config.compression.measuring.samples);

  const auto policy =
      make_policy(make_choice(config.compression), kCpu, static_cast<uint64_t>(config.run.seed));
  compress::AdaptivePolicy& adaptive = *PolicyParts(*policy).adaptive;
  const int64_t blocks = bench.checkpointed_blocks();
  bench.gradient(batch, policy.get(), 0, key, blocks);  // the policy sees what there is
  auto begin = Clock::now();
  bench.gradient(batch, policy.get(), 0, key, blocks);
  const double step_seconds = seconds_since(begin);
  const std::vector<Item> items = adaptive.items();
  std::vector<uint64_t> seqs;
  for (const Item& item : items) seqs.push_back(item.seq);
  const Batch part = bench.task().part(batch, 0, samples);
  auto measure = [&](const Batch& by, uint64_t number) {
    const auto found =
        measure_sensitivity(bench.task(), bench.model(), adaptive, by, n,
                            {number, key, config.train.label_smoothing, blocks}, seqs);
    FRUGAL_CHECK(found, "[sensitivity] expected a finite loss and gradient, got others");
    return *found;
  };
  // One pair of gradients estimates c_l with an error of a few percent. The mean of several pairs
  // counts as exact.
  std::vector<double> reference(items.size(), 0.0);
  for (int64_t r = 0; r < arguments.references; ++r) {
    const std::vector<double> each = measure(batch, static_cast<uint64_t>(r));
    for (size_t i = 0; i < each.size(); ++i)
      reference[i] += each[i] / static_cast<double>(arguments.references);
    std::fprintf(stderr, "reference %lld of %lld: done\n", static_cast<long long>(r + 1),
                 static_cast<long long>(arguments.references));
  }
  begin = Clock::now();
  const std::vector<double> cheap = measure(part, 0);
  const double cheap_seconds = seconds_since(begin);

  const double uniform_reference = predicted(items, reference), uniform = predicted(items, cheap);
  const Estimate uniform_drawn = bench.measure(adaptive, draws).rounding;
  for (size_t i = 0; i < seqs.size(); ++i) adaptive.measured(seqs[i], cheap[i], 0);
  adaptive.allocate();
  const std::vector<Item> allocated = adaptive.items();
  const double best_reference = predicted(allocated, reference), best = predicted(allocated, cheap);
  const Estimate best_drawn = bench.measure(adaptive, draws).rounding;

  const double rank = rank_correlation(reference, cheap);
  const Spread spread = ratio_spread(cheap, reference);
  const double share =
      cheap_seconds / step_seconds / static_cast<double>(config.compression.measuring.interval);
  if (arguments.json) {
    Json tensors = Json::array();
    for (size_t i = 0; i < items.size(); ++i)
      tensors.push_back({{"seq", items[i].seq},
                         {"elements", items[i].elements},
                         {"reference", reference[i]},
                         {"cheap", cheap[i]},
                         {"bits", allocated[i].bits}});
    auto at = [](double by_reference, double by_cheap, const Estimate& drawn) {
      return Json{{"predicted_by_reference", by_reference},
                  {"predicted_by_cheap", by_cheap},
                  {"drawn", drawn.value},
                  {"standard_error", drawn.error}};
    };
    const Json document = {
        {"model", config.model.name},
        {"batch_size", n},
        {"samples", samples},
        {"train_steps", arguments.train_steps},
        {"references", arguments.references},
        {"draws", draws},
        {"rank_correlation", rank},
        {"ratio", {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}}},
        {"steps_of_time", cheap_seconds / step_seconds},
        {"share_of_time", share},
        {"average_bits", adaptive.average_bits()},
        {"uniform", at(uniform_reference, uniform, uniform_drawn)},
        {"allocated", at(best_reference, best, best_drawn)},
        {"tensors", tensors}};
    print_json(document);
    return;
  }
  auto row = [&](const char* name, double by_reference, double by_cheap, const Estimate& drawn) {
    return std::vector<std::string>{
        name, fmt::format("{:.4g} +- {:.2g}", drawn.value, 1.96 * drawn.error),
        fmt::format("{:.3f}", by_reference / drawn.value),
        fmt::format("{:.3f}", by_cheap / drawn.value)};
  };
  std::printf(
      "%s, batch %lld, after %lld steps, %zu packed tensors, %.2f bits on average\n"
      "c from %lld samples over c from whole batches (mean of %lld): median %.3f, 10 %% below "
      "%.3f, "
      "10 %% above %.3f; rank correlation %.4f\n"
      "measuring all: %.2f steps of time, %.3f %% of an interval of %lld\n%s",
      config.model.name.c_str(), static_cast<long long>(n),
      static_cast<long long>(arguments.train_steps), items.size(), adaptive.average_bits(),
      static_cast<long long>(samples), static_cast<long long>(arguments.references), spread.median,
      spread.low, spread.high, rank, cheap_seconds / step_seconds, 100 * share,
      static_cast<long long>(config.compression.measuring.interval),
      table({{"variance of the gradient", "drawn", "by whole batches", "by samples"},
             row("one width", uniform_reference, uniform, uniform_drawn),
             row("widths by samples", best_reference, best, best_drawn)})
          .c_str());
}

}  // namespace frugal::lab
