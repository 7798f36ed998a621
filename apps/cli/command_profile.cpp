#include <cstdio>
#include <optional>

#include "apps/bench/workloads.h"
#include "apps/cli/commands.h"
#include "apps/cli/plan_levels.h"
#include "apps/cli/profile.h"
#include "apps/cli/report.h"
#include "apps/config/make_run.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/train_options.h"
#include "core/parallel.h"
#include "data/formats/atomic_file.h"
#include "train/planning/bytes.h"

namespace frugal::apps {
namespace {

struct Profiled {
  Config config;
  Device device;
  // On meta, where shapes are enough.
  std::unique_ptr<PlanSteps> steps;
  // Elsewhere.
  std::unique_ptr<train::Run> run;
  std::unique_ptr<train::TrialRun> trial;
  bool computes() const { return device.type != DeviceType::meta; }
  Module& network() { return computes() ? run->model() : steps->model(); }
};

// given: the configuration before resolve().
void prepare(Profiled& p, const Config& given) {
  p.device = set_up_device(p.config.run);
  if (!p.computes()) {
    p.steps = std::make_unique<PlanSteps>(given);
    return;
  }
  p.run = std::make_unique<train::Run>(run_recipe(p.config));
  p.trial = p.run->trial();
}

StepMemory run_step(Profiled& p, const Config& given, uint64_t number) {
  return p.computes() ? p.trial->step(number).memory : p.steps->step(given);
}

// The first step makes the optimizer's state and the widths.
void warm_up(Profiled& p) {
  if (!p.computes()) return;
  p.trial->step(0);
  p.trial->adapt(p.run->next_batch(), sensitivity_options(p.config).first);
  p.trial->step(kFirstMeasuredStep);
}

struct Measured {
  StepMemory memory;
  std::vector<MemoryTrace::Event> live;
  double shift = 0;
};

Measured run_steps(Profiled& p, const Config& given, Timeline& timeline, int64_t steps,
                   bool traces) {
  for (const auto& each : p.network().parameters()) {
    const size_t dot = each.name.rfind('.');
    timeline.name_layer(each.parameter->value().storage()->id(),
                        dot == std::string::npos ? each.name : each.name.substr(0, dot));
  }
  Measured measured;
  std::optional<MemoryTrace> live;
  if (traces) live.emplace(p.device);
  measured.shift = timeline.milliseconds();
  const TimelineScope scope(timeline);
  for (int64_t i = 0; i < steps; ++i)
    measured.memory = run_step(p, given, kFirstMeasuredStep + 1 + static_cast<uint64_t>(i));
  if (traces) measured.live = live->events();
  return measured;
}

Json json_of(const ProfileRow& row, double step, bool timed) {
  Json json = {{"name", row.name}, {"calls", row.calls}};
  const auto time = [&](const char* key, double ms) { json[key] = timed ? Json(ms) : Json(); };
  time("forward_ms", row.forward);
  time("backward_ms", row.backward);
  time("pack_ms", row.pack);
  time("unpack_ms", row.unpack);
  time("rebuild_ms", row.rebuild);
  time("total_ms", row.total());
  time("share", timed && step > 0 ? row.total() / step : 0);
  json["raw_bytes"] = row.raw;
  json["stored_bytes"] = row.stored;
  return json;
}

std::vector<std::string> cells_of(const ProfileRow& row, double step, bool timed) {
  std::vector<std::string> cells = {
      row.name, row.calls > 0 ? fmt::format("{:.6g}", row.calls) : std::string()};
  const auto time = [&](double ms) {
    cells.push_back(ms > 0 ? fmt::format("{:.2f}", ms) : std::string());
  };
  if (timed) {
    for (const double ms : {row.forward, row.backward, row.pack, row.unpack, row.rebuild}) time(ms);
    time(row.total());
    cells.push_back(step > 0 ? fmt::format("{:.1f}%", 100 * row.total() / step) : std::string());
  }
  const auto bytes = [&](int64_t n) {
    cells.push_back(n != 0 ? readable_bytes(n) : std::string());
  };
  bytes(row.raw);
  bytes(row.stored);
  return cells;
}

void print(const Profiled& p, const ProfileArguments& arguments,
           const std::vector<ProfileRow>& rows, const Measured& measured) {
  ProfileRow sum;
  sum.name = "step";
  double step = 0;
  for (const ProfileRow& row : rows) {
    step += row.total();
    sum.calls += row.calls;
    sum.forward += row.forward, sum.backward += row.backward, sum.pack += row.pack;
    sum.unpack += row.unpack, sum.rebuild += row.rebuild, sum.other += row.other;
    sum.raw += row.raw, sum.stored += row.stored;
  }
  const bool timed = p.computes();
  const Config& config = p.config;
  if (arguments.json) {
    Json list = Json::array();
    for (const ProfileRow& row : rows) list.push_back(json_of(row, step, timed));
    const Json report = {{"model", config.model.name},
                         {"by", arguments.by},
                         {"steps", arguments.steps},
                         {"batch_size", config.data.batch_size},
                         {"device", config.run.device},
                         {"precision", config.run.precision},
                         {"threads", num_threads()},
                         {"step_ms", timed ? Json(step) : Json()},
                         {"rows", list},
                         {"memory", memory_json(measured.memory)}};
    print_json(report);
    return;
  }
  std::vector<std::vector<std::string>> cells = {{arguments.by, "calls"}};
  if (timed)
    for (const char* heading :
         {"forward ms", "backward ms", "pack", "unpack", "rebuild", "all", "share"})
      cells[0].emplace_back(heading);
  for (const char* heading : {"raw", "stored"}) cells[0].emplace_back(heading);
  for (const ProfileRow& row : rows) cells.push_back(cells_of(row, step, timed));
  cells.push_back(cells_of(sum, step, timed));
  std::printf("%s, batch %lld, %s %s, %d threads, %lld steps\n%s", run_title(config).c_str(),
              static_cast<long long>(config.data.batch_size), config.run.device.c_str(),
              config.run.precision.c_str(), num_threads(), static_cast<long long>(arguments.steps),
              table(cells).c_str());
  std::printf("peak %s\n", readable_bytes(measured.memory.peak).c_str());
}

}  // namespace

void profile_command(const ProfileArguments& given) {
  ProfileArguments arguments = given;
  Profiled profiled;
  const Config unresolved = load_config(arguments.config, arguments.sets);
  profiled.config = unresolved;
  resolve(profiled.config);
  const Config& config = profiled.config;
  if (config.run.cuda_graphs)
    throw ConfigError("cuda_graphs", "expected false: a captured step runs as a whole");
  if (config.run.device == "meta" && !arguments.trace.empty())
    throw ConfigError("", "--trace: expected device cpu or cuda; on meta nothing takes time");
  std::optional<data::AtomicFile> file;
  if (!arguments.trace.empty()) file.emplace(arguments.trace);  // before the work: it may fail
  try {
    prepare(profiled, unresolved);
    warm_up(profiled);
    if (!profiled.computes()) arguments.steps = 1;  // all steps are the same
    Timeline timeline(profiled.device);
    const Measured measured =
        run_steps(profiled, unresolved, timeline, arguments.steps, file.has_value());
    print(profiled, arguments,
          profile_rows(timeline, arguments.steps, measured.memory,
                       arguments.by == "layer" ? ProfileBy::layer : ProfileBy::op),
          measured);
    if (!file) return;
    const std::string text = trace_json(timeline, measured.live, measured.shift);
    file->write(text.data(), text.size());
    file->commit();
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

}  // namespace frugal::apps
