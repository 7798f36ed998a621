#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "apps/cli/commands.h"
#include "apps/cli/plot.h"
#include "apps/report/chart.h"
#include "apps/report/run_data.h"
#include "data/formats/atomic_file.h"
#include "data/formats/file_bytes.h"

namespace frugal::apps {
namespace {

// The values at `pointer` of the lines of a type, over the steps.
Line curve_of(const std::vector<Json>& lines, const std::string& name, const std::string& type,
              const std::string& pointer) {
  Line curve;
  curve.name = name;
  const Json::json_pointer at(pointer);
  for (const Json& line : lines) {
    if (!line.is_object() || line.value("type", Json()) != type || !line.contains("step") ||
        !line["step"].is_number() || !line.contains(at) || !line.at(at).is_number())
      continue;
    const auto value = line.at(at).get<double>();
    if (std::isfinite(value)) curve.points.emplace_back(line["step"].get<double>(), value);
  }
  return curve;
}

// Lines of steps alone have it.
bool is_of_steps(const std::string& what) { return what == "lr" || what == "grad_norm"; }

// Why the runs have no points.
std::string why_none(const CurveArguments& arguments) {
  const std::string& what = arguments.of;
  const bool finished = std::all_of(
      arguments.folders.begin(), arguments.folders.end(),
      [](const std::string& folder) { return data::is_file(folder + "/summary.json"); });
  if (is_of_steps(what))
    return fmt::format("the runs have noted no {}{}: it is noted each train.log_interval steps{}",
                       what, finished ? "" : " yet",
                       finished ? ", and the runs have fewer steps than that" : "");
  if (!finished) return fmt::format("the runs have measured no {} yet", what);
  return fmt::format("the runs measure no {}{}", what,
                     what == "loss" ? "" : "; --of loss draws their loss");
}

// The curves of one run. `only`: the one that runs are compared by.
std::vector<Line> curves_of(const std::vector<Json>& lines, const std::string& what, bool only) {
  if (is_of_steps(what)) return {curve_of(lines, "train", "step", "/" + what)};
  std::vector<Line> all = {curve_of(lines, "test", "epoch", "/test_" + what),
                           curve_of(lines, "validation", "epoch", "/validation/" + what),
                           curve_of(lines, "train", "step", "/" + what)};
  std::erase_if(all, [](const Line& curve) { return curve.points.empty(); });
  if (only && all.size() > 1) all.resize(1);
  return all;
}

}  // namespace

void curve_command(const CurveArguments& arguments) {
  std::vector<Line> curves;
  Json document = Json::object();
  for (const std::string& folder : arguments.folders) {
    const std::vector<Json> lines = read_metrics("curve", folder);
    const bool several = arguments.folders.size() > 1;
    for (Line& curve : curves_of(lines, arguments.of, several)) {
      document[folder][curve.name] = curve.points;
      if (several) curve.name = fmt::format("{}: {}", curve.name, folder);
      curve.colour = static_cast<int>(curves.size());
      curves.push_back(std::move(curve));
    }
  }
  PlotOptions options;
  options.x = "step";
  options.y = arguments.of;
  const std::string text = plot(curves, options);
  FRUGAL_CHECK(!text.empty(), "[curve] {}", why_none(arguments));
  if (!arguments.svg.empty())
    data::atomic_write(arguments.svg, line_svg(curves, {.y = arguments.of}));
  if (arguments.json)
    std::printf("%s\n", document.dump(2, ' ', true, Json::error_handler_t::replace).c_str());
  else
    std::printf("%s", text.c_str());
}

}  // namespace frugal::apps
