#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "apps/bench/workloads.h"
#include "apps/cli/child_process.h"
#include "apps/cli/commands.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/config/planned_run.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "core/stopwatch.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/json_strict.h"
#include "distributed/mpi_all_reduce.h"
#include "train/statistics.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWarm = 3;         // steps
constexpr int64_t kMemorySteps = 3;  // the state of the optimizer is there after the first
constexpr int64_t kSums = 10;        // sums in a round
constexpr int kPlanned[] = {8, 64};  // ranks

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (!fs::is_directory(file) && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

class Folder {
 public:
  Folder() {
    path_ = (fs::temp_directory_path() / "frugal_bench_XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr)
      throw Error(
          fmt::format("cannot make a folder in {}", in_quotes(fs::temp_directory_path().string())));
  }
  ~Folder() {
    std::error_code none;
    fs::remove_all(path_, none);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs of this program, on one rank or on several.
class Runs {
 public:
  // Errors: no MPI, or no mpirun.
  Runs() {
    library_ = distributed::mpi_library();
    if (library_.empty())
      throw Error(
          "[bench distributed] expected a program that was built with MPI. Install libopenmpi-dev "
          "and openmpi-bin, and build again");
    mpirun_ = find_program("mpirun");
    if (mpirun_.empty()) mpirun_ = find_program("mpiexec");
    if (mpirun_.empty())
      throw Error(fmt::format(
          "[bench distributed] expected mpirun in PATH, got none. This program uses {}; on Debian "
          "the package openmpi-bin has its mpirun",
          library_));
    // Else the children would take over what this process found out about the load of the cores.
    unsetenv("GOMP_SPINCOUNT");
    catch_signals();
  }

  const std::string& library() const { return library_; }
  const std::string& folder() const { return folder_.path(); }

  // The JSON that the command prints. `what` is for people who wait.
  Json run(int64_t ranks, const std::vector<std::string>& command, const std::string& what) {
    if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "%s\n", what.c_str());
    std::vector<std::string> words;
    if (ranks > 1) {
      words = {mpirun_, "-np", std::to_string(ranks)};
      if (library_.starts_with("Open MPI") && ranks > int64_t{std::thread::hardware_concurrency()})
        words.emplace_back("--oversubscribe");
    }
    words.push_back(this_program());
    words.insert(words.end(), command.begin(), command.end());
    const ChildResult ended =
        run_child(words, folder(), "in " + what + "; nothing of a benchmark is kept");
    if (ended.status == 0) return data::parse_json<Json>(ended.out);
    throw Error(fmt::format("`{}` ended with {}{}\n{}", shell_line(words),
                            status_text(ended.status), ended.err.empty() ? "" : ": " + ended.err,
                            ranks > 1 ? kHint : ""));
  }

 private:
  static constexpr const char* kHint =
      "where mpirun does not start: Open MPI runs as root only with OMPI_ALLOW_RUN_AS_ROOT=1 and "
      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 in the environment, and more ranks than cores only with "
      "OMPI_MCA_rmaps_base_oversubscribe=1 (docs/guide/distributed.md)";

  Folder folder_;
  std::string library_, mpirun_;
};

// The network of the benchmark, as a run of `steps` steps with one evaluation of a batch.
Json document_of(const DistributedBenchArguments& arguments, const std::vector<std::string>& more,
                 int64_t steps) {
  Json document = workload(arguments.workload);
  document["optim"]["lr"] = 0.001;
  for (const std::string& set : more) apply_set(document, set);
  apply_sets(document, arguments.sets);
  const int64_t batch = document["data"]["batch_size"].get<int64_t>();
  document["data"]["train_samples"] = batch * steps;
  document["data"]["test_samples"] = batch;
  document["train"]["epochs"] = 1;
  parse_config(document);  // before anything is started
  return document;
}

std::string written(const Runs& runs, const std::string& name, const Json& document) {
  const std::string path = runs.folder() + "/" + name;
  std::ofstream file(path);
  file << document.dump(2) << "\n" << std::flush;
  if (!file) throw Error(fmt::format("cannot write {}", in_quotes(path)));
  return path;
}

Json train(Runs& runs, int64_t ranks, int64_t threads, const std::string& config,
           const std::string& what, const std::vector<std::string>& sets = {}) {
  std::vector<std::string> command = {"train",   config,  "--json",
                                      "--quiet", "--set", fmt::format("threads={}", threads)};
  for (const std::string& set : sets) command.insert(command.end(), {"--set", set});
  return runs.run(ranks, command, what);
}

// ---- Speed

// "2 ranks x 1 thread"
std::string counted(int64_t ranks, int64_t threads) {
  return with_noun(ranks, "rank") + " x " + with_noun(threads, "thread");
}

Json measure_scaling(Runs& runs, const DistributedBenchArguments& arguments) {
  struct Row {
    int64_t ranks, threads;
    std::vector<double> rates = {};
    std::vector<double> communication = {}, waiting = {}, hidden = {};
  };
  std::vector<Row> rows = {{1, arguments.ranks}, {1, 1}, {arguments.ranks, 1}};
  const Json document = document_of(arguments, {}, arguments.steps + kWarm);
  const std::string config = written(runs, "scaling.json", document);
  const double batch = document["data"]["batch_size"].get<double>();
  // The kinds of runs take turns, so that a slow moment of the machine meets each of them.
  for (int64_t round = 1; round <= arguments.rounds; ++round)
    for (Row& row : rows) {
      const Json summary = train(runs, row.ranks, row.threads, config,
                                 fmt::format("scaling, round {} of {}: {}", round, arguments.rounds,
                                             counted(row.ranks, row.threads)));
      // Not samples_per_second, in which the first steps count.
      row.rates.push_back(1000 * batch / summary["speed"]["step_ms_median"].get<double>());
      if (row.ranks == 1) continue;
      row.communication.push_back(summary["ranks"]["communication_share"].get<double>());
      row.waiting.push_back(summary["ranks"]["waiting_share"].get<double>());
      row.hidden.push_back(summary["ranks"]["hidden_share"].get<double>());
    }
  Json list = Json::array();
  for (const Row& row : rows) {
    const auto share = [&](const std::vector<double>& values) {
      return values.empty() ? Json(nullptr) : Json(train::median(values));
    };
    list.push_back({{"ranks", row.ranks},
                    {"threads", row.threads},
                    {"samples_per_second", train::median(row.rates)},
                    {"lowest", *std::min_element(row.rates.begin(), row.rates.end())},
                    {"highest", *std::max_element(row.rates.begin(), row.rates.end())},
                    {"over_first", train::median(row.rates) / train::median(rows[0].rates)},
                    {"over_one_thread", train::median(row.rates) / train::median(rows[1].rates)},
                    {"communication_share", share(row.communication)},
                    {"waiting_share", share(row.waiting)},
                    {"hidden_share", share(row.hidden)}});
  }
  return list;
}

std::string scaling_text(const Json& list) {
  std::vector<std::vector<std::string>> rows = {
      {"speed", "samples/s", "lowest", "highest", "ratio", "adding", "waiting", "hidden"}};
  for (const Json& row : list) {
    const auto rate = [&](const char* key) {
      const double value = row[key].get<double>();
      return fmt::format("{:.{}f}", value, value < 100 ? 1 : 0);
    };
    const auto share = [&](const char* key) {
      return row[key].is_null() ? "-" : fmt::format("{:.1f} %", 100 * row[key].get<double>());
    };
    rows.push_back({counted(row["ranks"].get<int64_t>(), row["threads"].get<int64_t>()),
                    rate("samples_per_second"), rate("lowest"), rate("highest"),
                    fmt::format("{:.2f}", row["over_first"].get<double>()),
                    share("communication_share"), share("waiting_share"), share("hidden_share")});
  }
  return table(rows) +
         "ratio: to the first row. adding: sums of gradients over the ranks, of a step;\n"
         "waiting: of a step, for these sums; hidden: of them, behind the backward pass\n";
}

// ---- The sum of gradients

// All ranks call it.
Json measure_sums(const DistributedBenchArguments& arguments) {
  const distributed::CommunicatorPtr all = distributed::from_environment();
  const Tensor x = Tensor::zeros({arguments.mebibytes << 18});
  std::vector<double> ours, plain;
  for (int64_t i = -2; i < kSums * arguments.rounds; ++i) {  // the first two warm up
    all->barrier();
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      all->all_reduce(x);
    }
    all->barrier();
    const double other = distributed::seconds_of_mpi_all_reduce(x);
    const double slowest = all->all_reduce(seconds, distributed::Reduction::max);
    const double slowest_other = all->all_reduce(other, distributed::Reduction::max);
    if (i < 0) continue;
    ours.push_back(slowest);
    plain.push_back(slowest_other);
  }
  const auto bytes = static_cast<double>(x.nbytes());
  const double mine = train::median(ours), theirs = train::median(plain);
  return {{"ranks", all->size()},
          {"bytes", x.nbytes()},
          {"seconds", mine},
          {"bytes_per_second", bytes / mine},
          {"mpi_seconds", theirs},
          {"mpi_bytes_per_second", bytes / theirs},
          {"speed_over_mpi", theirs / mine}};
}

std::string sums_text(const Json& sums) {
  const auto row = [&](const char* name, const char* seconds, const char* rate, double ratio) {
    return std::vector<std::string>{
        name, fmt::format("{:.2f} ms", 1000 * sums[seconds].get<double>()),
        fmt::format("{:.2f} GiB/s", sums[rate].get<double>() / (int64_t{1} << 30)),
        fmt::format("{:.2f}", ratio)};
  };
  return table({{fmt::format("sum of {} f32 over {} ranks",
                             readable_bytes(sums["bytes"].get<int64_t>()),
                             sums["ranks"].get<int64_t>()),
                 "time", "bytes a second", "ratio"},
                row("Communicator", "seconds", "bytes_per_second",
                    sums["speed_over_mpi"].get<double>()),
                row("MPI_Allreduce", "mpi_seconds", "mpi_bytes_per_second", 1)}) +
         "ratio: of the speed, to that of MPI_Allreduce, which promises no equal bits\n";
}

// ---- Memory

Json memory_row(int64_t ranks, const std::string& sharding, bool measured, int64_t batch,
                int64_t optimizer, int64_t peak) {
  return {{"ranks", ranks},           {"sharding", sharding},         {"measured", measured},
          {"batch_of_a_rank", batch}, {"optimizer_bytes", optimizer}, {"peak_bytes", peak}};
}

// Measures ranks that run, and plans more ranks on `meta`. Shares of a batch have equal sizes.
Json measure_memory(Runs& runs, const DistributedBenchArguments& arguments) {
  const Json document = document_of(arguments, {"optim.name=adamw"}, kMemorySteps);
  const std::string config = written(runs, "memory.json", document);
  const int64_t batch = document["data"]["batch_size"].get<int64_t>();
  const int64_t each = (batch + arguments.ranks - 1) / arguments.ranks;
  const std::string kinds[] = {"none", "optimizer", "gradients"};
  Json list = Json::array();
  for (const std::string& sharding : kinds) {
    const Json summary =
        train(runs, arguments.ranks, 1, config, "memory of a rank, sharding " + sharding,
              {"distributed.sharding=" + sharding});
    const Json& memory = summary["memory"];
    list.push_back(memory_row(arguments.ranks, sharding, true, each,
                              memory["at_peak"]["optimizer"].get<int64_t>(),
                              memory["peak_bytes"].get<int64_t>()));
  }
  const Config one = parse_config(document);
  for (const int ranks : kPlanned)
    for (const std::string& sharding : kinds) {
      Config planned = one;
      planned.distributed.sharding = sharding;
      planned.distributed.ranks = ranks;
      planned.data.batch_size = each;
      resolve(planned);
      train::WaySteps steps(planned_run(planned));
      const StepMemory memory = steps.step(way_of(planned));
      list.push_back(memory_row(ranks, sharding, false, each,
                                memory.at_peak[static_cast<size_t>(Category::optimizer)],
                                memory.peak));
    }
  return list;
}

std::string memory_text(const Json& list) {
  std::vector<std::vector<std::string>> rows = {
      {"memory of a rank, adamw", "sharding", "its samples", "optimizer", "peak"}};
  for (const Json& row : list)
    rows.push_back({fmt::format("{} ranks, {}", row["ranks"].get<int64_t>(),
                                row["measured"].get<bool>() ? "measured" : "planned"),
                    row["sharding"].get<std::string>(),
                    std::to_string(row["batch_of_a_rank"].get<int64_t>()),
                    readable_bytes(row["optimizer_bytes"].get<int64_t>()),
                    readable_bytes(row["peak_bytes"].get<int64_t>())});
  return table(rows);
}

void print_parts(const Json& report, bool json) {
  if (json) {
    print_json(report);
    return;
  }
  std::vector<std::string> parts;
  if (report.contains("scaling")) parts.push_back(scaling_text(report["scaling"]));
  if (report.contains("all_reduce")) parts.push_back(sums_text(report["all_reduce"]));
  if (report.contains("memory")) parts.push_back(memory_text(report["memory"]));
  std::printf("%s", fmt::format("{}", fmt::join(parts, "\n")).c_str());
}

}  // namespace

void bench_distributed(const DistributedBenchArguments& arguments) {
  const auto wanted = [&](const char* part) {
    return arguments.only.empty() || arguments.only == part;
  };
  if (const distributed::Launch launched = distributed::launch(); launched.ranks > 1) {
    if (arguments.only != "all-reduce")
      throw ConfigError("", fmt::format("bench distributed: expected one process, which starts "
                                        "mpirun itself, or --only all-reduce; got one of {} ({})",
                                        launched.ranks, launched.variable));
    const Json sums = measure_sums(arguments);
    if (launched.rank == 0) print_parts({{"all_reduce", sums}}, arguments.json);
    return;
  }
  const Config config = parse_config(document_of(arguments, {}, 1));
  Runs runs;
  Json report = {{"workload", arguments.workload},
                 {"model", config.model.name},
                 {"batch_size", config.data.batch_size},
                 {"ranks", arguments.ranks},
                 {"rounds", arguments.rounds},
                 {"steps", arguments.steps},
                 {"sets", arguments.sets},
                 {"mpi", runs.library()},
                 {"nccl", distributed::nccl_library()}};
  if (wanted("scaling")) report["scaling"] = measure_scaling(runs, arguments);
  if (wanted("all-reduce"))
    report["all_reduce"] = runs.run(arguments.ranks,
                                    {"bench", "distributed", "--only", "all-reduce", "--json",
                                     "--mebibytes", std::to_string(arguments.mebibytes), "--rounds",
                                     std::to_string(arguments.rounds)},
                                    "sums of gradients")
                               .at("all_reduce");
  if (wanted("memory")) report["memory"] = measure_memory(runs, arguments);
  const std::string nccl = distributed::nccl_library();
  const char* const without = kHasCuda ? ", no NCCL" : "";
  if (!arguments.json)
    std::printf("%s, batch %lld; %lld rounds of %lld steps; %s%s\n\n", config.model.name.c_str(),
                static_cast<long long>(config.data.batch_size),
                static_cast<long long>(arguments.rounds), static_cast<long long>(arguments.steps),
                runs.library().c_str(), nccl.empty() ? without : (", " + nccl).c_str());
  print_parts(report, arguments.json);
}

}  // namespace frugal::apps
