// What a configuration's compression adds to the gradient of its network, compared with the
// variance from the choice of the minibatch. Ref: Chen et al. 2021 (ActNN), section 6.1, "gradient
// variance".
#include <cstdio>

#include "apps/bench/gradient_bench.h"
#include "apps/cli/commands.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/make_policy.h"
#include "apps/config/resolve.h"
#include "train/gradient_noise.h"

namespace frugal::apps {

void bench_variance(const BenchArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  resolve(config);
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  const RngKey key = bench.rng();
  const double unit = bench.minibatch_variance(arguments.batches, key);
  const Batch batch = bench.next();
  const std::vector<float> exact = bench.gradient(batch, nullptr, 0, key);
  const int64_t whole = bench.memory().saved();
  const auto policy = make_policy(config.compression, static_cast<uint64_t>(config.run.seed));
  bench.let_learn(*policy, config, key);
  GradientNoise noise(exact);
  for (int64_t draw = 0; draw < arguments.draws; ++draw)
    noise.add(bench.gradient(batch, policy.get(), static_cast<uint64_t>(1000 + draw), key));
  const Estimate variance = noise.variance(), bias = noise.squared_bias();
  const int64_t bytes = bench.memory().saved();
  const double less = static_cast<double>(whole) / static_cast<double>(bytes);
  if (arguments.json) {
    const auto json = [&](const Estimate& e) {
      return Json{{"value", e.value / unit}, {"standard_error", e.error / unit}};
    };
    const Json document = {{"model", config.model.name},
                           {"batch_size", config.data.batch_size},
                           {"train_steps", arguments.train_steps},
                           {"batches", arguments.batches},
                           {"draws", arguments.draws},
                           {"minibatch_variance", unit},
                           {"activation_bytes", bytes},
                           {"L0_activations_over_these", less},
                           {"variance", json(variance)},
                           {"squared_bias", json(bias)}};
    std::printf("%s\n", document.dump(2).c_str());
    return;
  }
  const auto text = [&](const Estimate& e) {
    return fmt::format("{:.4f} +- {:.4f}", e.value / unit, 1.96 * e.error / unit);
  };
  std::printf("%s", table({{"", "activations", "L0's over these", "variance", "squared bias"},
                           {run_title(config), readable_bytes(bytes), fmt::format("{:.2f}x", less),
                            text(variance), text(bias)}})
                        .c_str());
  std::printf(
      "after %lld steps; %lld draws; over the variance of the gradient between minibatches (of "
      "%lld); intervals of 95 %%\n",
      static_cast<long long>(arguments.train_steps), static_cast<long long>(arguments.draws),
      static_cast<long long>(arguments.batches));
}

}  // namespace frugal::apps
