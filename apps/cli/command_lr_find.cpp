#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/plot.h"
#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/config/make_run.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"

namespace frugal::apps {
namespace {

Json range_json(const RateRange& found) {
  Json points = Json::array();
  for (const auto& point : found.points)
    points.push_back({{"lr", point.rate}, {"loss", point.loss}, {"smoothed", point.smoothed}});
  return {{"suggested", found.suggested ? Json(*found.suggested) : Json(nullptr)},
          {"lowest_at", found.lowest_at ? Json(*found.lowest_at) : Json(nullptr)},
          {"diverged", found.diverged},
          {"points", points}};
}

std::string curve_of(const RateRange& found) {
  Line curve;
  curve.name = "loss";
  PlotOptions options;
  options.log_x = true;
  options.x = "learning rate";
  options.y = "loss, smoothed";
  // Where it diverges, the rest is small.
  const double first = found.points.front().smoothed;
  double lowest = first;
  for (const auto& point : found.points) lowest = std::min(lowest, point.smoothed);
  options.most = first + std::max(std::abs(first), first - lowest) / 2;
  for (const auto& point : found.points) curve.points.emplace_back(point.rate, point.smoothed);
  return plot({curve}, options);
}

std::string verdict(const RateRange& found) {
  if (!found.suggested)
    return "no rate is suggested: the loss never fell. Try a lower --from, or more --steps\n";
  std::string text = fmt::format("optim.lr {:.2g}: a third of {:.2g}, where the loss is lowest\n",
                                 *found.suggested, *found.lowest_at);
  if (!found.diverged && *found.lowest_at >= 0.9 * found.points.back().rate)
    text += "The loss still fell at the highest rate; a higher --to may suggest a higher one.\n";
  return text;
}

}  // namespace

void lr_find_command(const LrFindArguments& arguments) {
  if (!(arguments.to > arguments.from))
    throw ConfigError("", fmt::format("--to: expected a rate above --from, {}, got {}",
                                      arguments.from, arguments.to));
  Config config = load_config(arguments.config, arguments.sets);
  resolve(config);
  set_up_computing_device(config.run, "trained");
  train::Run run = make_run(config);
  run.batches();
  catch_signals();
  try {
    RateRangeOptions range;
    range.first = arguments.from;
    range.last = arguments.to;
    range.steps = arguments.steps;
    const RateRange found = run.find_rate(range, [] { return signal_received() != 0; });
    if (found.interrupted)
      throw Interrupted(signal_received(),
                        fmt::format("at step {} of {}", found.points.size(), range.steps));
    FRUGAL_CHECK(!found.points.empty(),
                 "[lr-find] the loss is not finite at the first rate, {}; try a lower --from",
                 range.first);
    if (arguments.json)
      print_json(range_json(found));
    else
      std::printf("%s%s", curve_of(found).c_str(), verdict(found).c_str());
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

}  // namespace frugal::apps
