#include <cstdio>
#include <optional>

#include "apps/cli/commands.h"
#include "apps/cli/profile.h"
#include "apps/cli/report.h"
#include "apps/config/make_run.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "core/parallel.h"
#include "core/words/nouns.h"
#include "data/formats/atomic_file.h"
#include "train/planning/bytes.h"

namespace frugal::apps {
namespace {

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

// The two tables of times and of bytes, as both in one would be too wide.
std::vector<std::string> times_of(const ProfileRow& row, double step) {
  std::vector<std::string> cells = {row.name};
  for (const double ms :
       {row.forward, row.backward, row.pack, row.unpack, row.rebuild, row.total()})
    cells.push_back(ms > 0 ? fmt::format("{:.2f}", ms) : std::string());
  cells.push_back(step > 0 ? fmt::format("{:.1f}%", 100 * row.total() / step) : std::string());
  return cells;
}

std::vector<std::string> bytes_of(const ProfileRow& row) {
  std::vector<std::string> cells = {
      row.name, row.calls > 0 ? fmt::format("{:.6g}", row.calls) : std::string()};
  for (const int64_t bytes : {row.raw, row.stored})
    cells.push_back(bytes != 0 ? readable_bytes(bytes) : std::string());
  return cells;
}

void print(const Config& config, const ProfileArguments& arguments, const train::Profile& profile,
           const Planner* plan) {
  const std::vector<ProfileRow> rows =
      profile.rows(arguments.by == "layer" ? ProfileBy::layer : ProfileBy::op);
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
  const bool timed = profile.timed;
  if (arguments.json) {
    Json list = Json::array();
    for (const ProfileRow& row : rows) list.push_back(json_of(row, step, timed));
    const Json report = {{"model", config.model.name},
                         {"by", arguments.by},
                         {"steps", profile.steps},
                         {"batch_size", config.data.batch_size},
                         {"device", config.run.device},
                         {"precision", config.run.precision},
                         {"threads", num_threads()},
                         {"step_ms", timed ? Json(step) : Json()},
                         {"rows", list},
                         {"memory", memory_json(profile.memory)}};
    print_json(report);
    return;
  }
  std::vector<std::vector<std::string>> times = {
      {arguments.by, "forward", "backward", "pack", "unpack", "rebuild", "all", "share"}};
  std::vector<std::vector<std::string>> bytes = {{arguments.by, "calls", "raw", "stored"}};
  const auto add = [&](const ProfileRow& row) {
    if (row.total() > 0 || &row == &sum) times.push_back(times_of(row, step));
    if (row.calls > 0 || row.raw != 0 || row.stored != 0) bytes.push_back(bytes_of(row));
  };
  for (const ProfileRow& row : rows) add(row);
  add(sum);
  std::printf("%s, batch %lld, %s %s, %s, %s\n%s%s", run_title(config).c_str(),
              static_cast<long long>(config.data.batch_size), config.run.device.c_str(),
              config.run.precision.c_str(), with_noun(num_threads(), "thread").c_str(),
              with_noun(profile.steps, "step").c_str(),
              timed ? ("milliseconds of a step\n" + table(times) + "\n").c_str() : "",
              table(bytes).c_str());
  std::printf("peak %s\n", readable_bytes(profile.memory.peak).c_str());
  if (const std::string kept = kept_gradients(config, plan); !kept.empty())
    std::printf("%s\n", kept.c_str());
}

}  // namespace

void profile_command(const ProfileArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  resolve(config);
  if (config.run.cuda_graphs)
    throw ConfigError("cuda_graphs", "expected false: a captured step runs as a whole");
  if (config.run.device == "meta" && !arguments.trace.empty())
    throw ConfigError("", "--trace: expected device cpu or cuda; on meta nothing takes time");
  std::optional<data::AtomicFile> file;
  if (!arguments.trace.empty()) file.emplace(arguments.trace);  // before the work: it may fail
  try {
    set_up_device(config.run);
    train::Run run = make_run(config);
    const train::Profile profile = run.profile(arguments.steps, file.has_value());
    print(config, arguments, profile, run.planner().get());
    if (!file) return;
    const std::string text = trace_json(profile);
    file->write(text.data(), text.size());
    file->commit();
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

}  // namespace frugal::apps
