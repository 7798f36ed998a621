#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "apps/bench/workloads.h"
#include "apps/cli/commands.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/data/make_data.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_run.h"
#include "apps/config/planned_run.h"
#include "apps/config/profile_file.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/starting_weights.h"
#include "apps/config/train_options.h"
#include "apps/text/csv.h"
#include "compress/policies/learner.h"
#include "compress/policies/width_profile.h"
#include "core/memory/memory_trace.h"
#include "core/memory/synchronize.h"
#include "core/parallel.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"
#include "models/pack.h"
#include "ops/dense/copy.h"
#include "ops/library_fallbacks.h"
#include "train/captured_step.h"
#include "train/noise/sensitivity.h"
#include "train/planning/planner.h"
#include "train/statistics.h"

namespace frugal::apps {
namespace {

constexpr const char* kBase =
    "L0 without recipes: compression.preset=lossless compression.recipes=false";
const std::vector<std::string> kUsual = {"L0: compression.level=L0 compression.recipes=true",
                                         "L1: compression.level=L1 compression.recipes=true",
                                         "L1.2: compression.level=L1.2 compression.recipes=true"};

// Where no level of GACT says how activations are kept, the usual row is the configuration itself.
const std::vector<std::string> kAsConfigured = {"as configured:"};

const std::vector<std::string>& usual_rows(const Config& config) {
  return config.compression.policy == PolicyKind::gact ? kUsual : kAsConfigured;
}

// A row of the table: the configuration of the benchmark, with keys that the row changes.
struct Variant {
  std::string name;
  std::vector<std::string> sets;
  std::vector<UnreadKey> unread;              // keys of `config`
  std::unique_ptr<train::TrialRun> trial;     // null on meta
  compress::MeteringPolicy* meter = nullptr;  // in its policy, with --record-profile
  Config config;                              // resolved
  std::vector<double> milliseconds;
  double adapting = 0;  // milliseconds a step, of measuring now and then
  StepMemory memory;
  int64_t process = 0;  // bytes of the whole process in a step at most; 0: not known
  std::string failed;   // why memory did not suffice, or empty
};

// Splits at spaces, except those inside double quotes, which JSON texts have.
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  bool quoted = false, inside = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (c == ' ' && !quoted) {
      inside = false;
      continue;
    }
    if (!inside) all.emplace_back();
    inside = true;
    all.back() += c;
  }
  return all;
}

// is_usual: the user did not write the row.
// Errors: a key that does not say how activations are kept or how steps are run.
Variant parse_variant(const std::string& text, const Json& document, const Config& base,
                      bool is_usual) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw ConfigError(
        "", fmt::format("--variant: expected NAME: PATH=VALUE ..., got {}", in_quotes(text)));
  Variant variant;
  variant.name = text.substr(0, colon);
  Json own = document;
  for (const std::string& set : words(text.substr(colon + 1))) {
    if (set.rfind("compression.", 0) != 0 && set.rfind("train.checkpointing=", 0) != 0 &&
        set.rfind("optim.in_backward=", 0) != 0 && set.rfind("cuda_graphs=", 0) != 0)
      throw ConfigError("", fmt::format("--variant: expected keys of compression, "
                                        "train.checkpointing, optim.in_backward or cuda_graphs, "
                                        "got '{}'",
                                        set));
    variant.sets.push_back(set);
  }
  apply_sets(own, variant.sets);
  variant.config = parse_config(own);
  variant.config.data.opened = base.data.opened;
  variant.unread = unread_keys(variant.config);
  // In rows that the user did not name, keys of the configuration may have no reader.
  if (!is_usual) check_set_keys(variant.config, variant.sets);
  resolve(variant.config);
  const Config& c = variant.config;
  if (c.run.cuda_graphs &&
      (!c.run.on_cuda() || c.train.in_backward.value_or(false) || !c.compression.offload.empty()))
    throw ConfigError("cuda_graphs",
                      "expected false without CUDA, and with optim.in_backward or "
                      "compression.offload");
  return variant;
}

// Errors: no row reads the key either.
void check_unread(const UnreadKey& key, std::span<const Variant> variants) {
  const auto is_unread = [&](const Variant& variant) {
    return std::any_of(variant.unread.begin(), variant.unread.end(),
                       [&](const UnreadKey& other) { return other.path == key.path; });
  };
  if (std::all_of(variants.begin(), variants.end(), is_unread))
    throw ConfigError(key.path, key.what);
}

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Gives an adaptive policy its widths. Returns the time of a refresh, divided by the steps of an
// interval. It measures the second refresh, because the first one does more. REQUIRES: the policy
// decided step 0.
double adapt(Variant& v, const Batch& batch) {
  const SensitivityOptions options = sensitivity_options(v.config);
  if (!v.trial->adapt(batch, options.first)) return 0;
  const auto begin = Clock::now();
  v.trial->adapt(batch, options.interval);
  return milliseconds_since(begin) / static_cast<double>(options.interval);
}

// The batches of a step. Errors: the data have fewer samples than a whole batch.
std::vector<Batch> first_batches(const Config& config) {
  const auto source = make_batches(config, Split::train);
  std::vector<Batch> batches;
  while (static_cast<int64_t>(batches.size()) < config.train.gradient_accumulation) {
    std::optional<Batch> batch = source->next();
    if (!batch) break;  // a step takes no more batches than an epoch has
    const bool drawn = config.data.name == "random" || config.data.name == "random_tokens";
    if (drawn && batch->input.size(0) != config.data.batch_size)
      throw ConfigError("data.train_samples",
                        fmt::format("expected a batch of {} at least, got {}",
                                    config.data.batch_size, config.data.train_samples));
    batches.push_back(std::move(*batch));
  }
  return batches;
}

Tensor copy_on_host(const Tensor& tensor) {
  const CategoryScope scope(Category::input);
  return tensor.defined() ? ops::clone(tensor) : tensor;
}

Batch copy_of(const Batch& batch) {
  if (batch.held) return batch;
  Batch made = batch;
  for (Tensor* tensor : {&made.input, &made.target, &made.samples}) *tensor = copy_on_host(*tensor);
  for (auto& [name, tensor] : made.extras) tensor = copy_on_host(tensor);
  return made;
}

// What all variants share: the network, and the batches of a step. Each part of a step gets a copy,
// as it would get a batch of its own from the loader. A step must not wait for the data.
struct Bench {
  Config config;
  Device device;
  std::unique_ptr<train::WaySteps> steps;  // on meta
  std::unique_ptr<train::Run> run;         // elsewhere
  std::vector<Batch> batches;              // on the host
  std::optional<Batch> first;              // a copy that is made before the time is taken
  size_t taken = 0;                        // parts of the step that have their batch
  std::vector<Batch> ahead;                // without values: those that a loader prepares meanwhile
  int64_t copied_bytes = 0;  // what `batches` take beside the run's own; 0: a run holds them, too
  int64_t process = 0;       // the highest memory of the process until the system forgot it

  void make_batches_of_steps() {
    const int64_t before = allocator(kCpu).report().of(Category::input);
    batches = first_batches(config);
    if (!batches[0].held) copied_bytes = allocator(kCpu).report().of(Category::input) - before;
    for (const int64_t samples : samples_ahead(config, batches[0].input.size(0)))
      ahead.push_back(run->task().shape(samples, kCpu));
  }
  void begin_step() {
    run->model().zero_grad();  // another row may have kept its gradients
    if (!first) first = copy_of(batches[0]);
    taken = 0;
  }
  Batch take() {
    const size_t part = taken++ % batches.size();
    if (part > 0 || !first) return copy_of(batches[part]);
    Batch batch = std::move(*first);
    first.reset();
    return batch;
  }
  // What the run itself would take, without the batches that are copied.
  CategoryBytes of_run(CategoryBytes bytes) const {
    if (device == kCpu) bytes[static_cast<size_t>(Category::input)] -= copied_bytes;
    return bytes;
  }
  StepMemory of_run(StepMemory memory) const {
    if (device == kCpu) memory.peak -= copied_bytes;
    memory.at_peak = of_run(memory.at_peak);
    return memory;
  }
};

void prepare(Variant& v, Bench& bench, bool records) {
  if (bench.steps != nullptr) return;
  TrainerOptions all = trainer_options(v.config, make_plan(v.config));
  all.gradient_accumulation = static_cast<int64_t>(bench.batches.size());
  train::TrialOptions options = train::trial_options(all, bench.device);
  if (records)
    options.compression.choice = {
        .policy =
            compress::OwnPolicy{[&v, choice = options.compression.choice](
                                    Device device, uint64_t seed) -> std::unique_ptr<SavePolicy> {
              auto policy =
                  std::make_unique<compress::MeteringPolicy>(make_policy(choice, device, seed));
              v.meter = policy.get();
              return policy;
            }},
        .measuring = options.compression.choice.measuring};
  v.trial = std::make_unique<train::TrialRun>(
      bench.run->task(), bench.run->model(), bench.run->optimizer(),
      [&bench] { return bench.take(); }, options, bench.run->rng());
}

// Runs a step and returns its milliseconds and bytes.
std::pair<double, StepMemory> run_step(Variant& v, Bench& bench, uint64_t number) {
  if (bench.steps != nullptr) {
    Config counted = v.config;
    counted.compression.entropy = false;  // what it saves depends on values
    if (v.config.train.in_backward != bench.config.train.in_backward) {
      train::WaySteps own(planned_run(v.config));
      return {0, own.step(way_of(v.config), make_plan(counted).get())};
    }
    return {0, bench.steps->step(way_of(v.config), make_plan(counted).get())};
  }
  bench.begin_step();
  const auto begin = Clock::now();
  const StepMemory memory = bench.of_run(v.trial->step(number).memory);
  synchronize(bench.device);
  return {milliseconds_since(begin), memory};
}

// Makes the system count the highest memory of the process from now on. Returns false if it cannot.
bool reset_process_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << '5' << std::flush;
  return file.good();
}

// Runs a step after free pages were given back, so that the memory of earlier steps does not count.
StepMemory run_weighed_step(Variant& v, Bench& bench, uint64_t number) {
  allocator(bench.device).trim();
  bench.process = std::max(bench.process, host_peak_rss());  // the system is about to forget it
  const bool counts = reset_process_peak();
  StepMemory memory = run_step(v, bench, number).second;
  const int64_t highest = host_peak_rss();
  bench.process = std::max(bench.process, highest);
  if (counts) v.process = highest;
  return memory;
}

// NVIDIA's libraries have their own messages.
bool is_out_of_memory(const Error& error) {
  const std::string text = error.what();
  return dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
         text.find("ALLOC_FAILED") != std::string::npos ||
         text.find("ALLOCATION_FAILED") != std::string::npos ||
         text.find("out of memory") != std::string::npos;
}

// Runs `work` for a variant. If memory does not suffice, the variant takes part no more.
template <class F>
void attempt(Variant& v, Bench& bench, F&& work) {
  if (!v.failed.empty()) return;
  try {
    work();
    return;
  } catch (const OutOfMemory& e) {
    v.failed = explain(e, v.config);
  } catch (const Error& e) {
    if (!is_out_of_memory(e)) throw;
    v.failed = fmt::format("out of memory: {}", e.what());
  }
  v.trial.reset();
  bench.first.reset();
  if (bench.run != nullptr) bench.run->model().zero_grad();
  allocator(bench.device).trim();
}

// The variants take turns, so that a slow moment of the machine meets each of them. Rounds below 0
// warm up. The first round makes the optimizer's state and the widths. All variants run the second.
// Captures begin with the third.
void measure(std::vector<Variant>& variants, Bench& bench, int64_t repeats) {
  const bool runs = bench.device.type != DeviceType::meta;
  const bool captures = std::any_of(variants.begin(), variants.end(),
                                    [](const Variant& v) { return v.config.run.cuda_graphs; });
  const int64_t warm = !runs ? 1 : bench.device.type == DeviceType::cuda ? 3 : 2;
  uint64_t step = kFirstMeasuredStep;
  for (int64_t round = -warm; round < repeats; ++round)
    for (Variant& v : variants) {
      const uint64_t number = round == -warm ? 0 : step++;
      attempt(v, bench, [&] {
        if (round == -1 && bench.device == kCpu)
          return v.memory.raise(run_weighed_step(v, bench, number));
        const auto [took, memory] = run_step(v, bench, number);
        if (round == -warm) {
          if (runs) v.adapting = adapt(v, bench.batches[0]);
          return;
        }
        // The memory of captured steps would count for every variant.
        if (!captures || round == 1 - warm) v.memory.raise(memory);
        if (round >= 0) v.milliseconds.push_back(took);
      });
    }
}

// Errors: nowhere are there widths to record.
void check_profile_option(const std::string& path, const std::vector<Variant>& variants,
                          bool runs) {
  if (path.empty()) return;
  if (!runs)
    throw ConfigError("", "--record-profile: expected a device with values, cpu or cuda, got meta");
  for (const Variant& v : variants)
    if (!v.config.compression.offload.empty() || v.config.run.cuda_graphs)
      throw ConfigError("", fmt::format("--record-profile: expected no compression.offload and no "
                                        "cuda_graphs, got one in the row {}",
                                        in_quotes(v.name)));
}

// Writes the widths of the rows that packed something.
void record(const std::string& path, const std::vector<Variant>& variants) {
  std::vector<RecordedRun> runs;
  for (const Variant& v : variants)
    if (v.failed.empty() && !v.meter->profile().tensors.empty())
      runs.push_back({v.config, v.meter->profile()});
  if (runs.empty())
    throw ConfigError("", "--record-profile: expected a row that packs tensors, got none");
  write_profiles(path, runs);
}

// Runs one more step of each variant and writes its allocations and releases to `file`: CSV, a line
// for each.
void trace(std::vector<Variant>& variants, Bench& bench, data::AtomicFile& file) {
  std::string text = "variant,event,milliseconds,phase";
  for (size_t i = 0; i < kCategories; ++i) {
    text += ',';
    text += name_of(static_cast<Category>(i));
  }
  text += ",total\n";
  for (Variant& v : variants)
    attempt(v, bench, [&] {
      if (bench.run != nullptr) bench.begin_step();  // a step on meta has no batch
      const MemoryTrace recorded(bench.device);
      run_step(v, bench, 2 * kFirstMeasuredStep);
      size_t number = 0;
      for (MemoryTrace::Event event : recorded.events()) {
        event.live = bench.of_run(event.live);
        text += csv_field(v.name) +
                fmt::format(",{},{:.3f},{}", number++, event.milliseconds, event.phase);
        int64_t total = 0;
        for (const int64_t bytes : event.live) {
          text += fmt::format(",{}", bytes);
          total += bytes;
        }
        text += fmt::format(",{}\n", total);
      }
    });
  file.write(text.data(), text.size());
  file.commit();
}

// Prints the variants in the order of the rows, as JSON or as a table. `based`: ratios are those to
// the first variant.
struct Results {
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"", "step", "time", "activations", "less", "packed", "peak", "less", "process"}};
};

Results results_of(const std::vector<Variant>& variants, bool based, bool runs, int64_t process) {
  Results results;
  const Variant& base = variants.front();
  const bool compared = based && base.failed.empty();
  for (const Variant& v : variants) {
    Json row = {{"name", v.name},
                {"level", level_name(v.config.compression)},
                {"recipes", v.config.compression.recipes},
                {"cuda_graphs", v.config.run.cuda_graphs},
                {"sets", v.sets},
                {"out_of_memory", !v.failed.empty()}};
    for (const char* key : {"step_ms_median", "adapting_ms", "time_over_L0",
                            "L0_activations_over_these", "L0_peak_over_this", "memory"})
      row[key] = nullptr;
    if (!v.failed.empty()) {
      row["why"] = v.failed;
      results.list.push_back(row);
      results.rows.push_back({v.name, "out of memory", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    // a / b as text; empty if a or b is unknown.
    const auto over = [&](double a, double b) {
      return compared && b > 0 ? std::optional(a / b) : std::nullopt;
    };
    const auto number = [](const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); };
    const auto times = [](const std::optional<double>& x) {
      return x ? fmt::format("{:.2f}x", *x) : "-";
    };
    const double ms = median(v.milliseconds) + v.adapting;
    const auto slower = runs ? over(ms, median(base.milliseconds)) : std::nullopt;
    const auto less =
        over(static_cast<double>(base.memory.saved()), static_cast<double>(v.memory.saved()));
    const auto lower =
        over(static_cast<double>(base.memory.peak), static_cast<double>(v.memory.peak));
    if (runs) row["step_ms_median"] = ms;
    row["adapting_ms"] = v.adapting;
    if (!runs) row["widths"] = widths_on_meta(v.config);
    row["time_over_L0"] = number(slower);
    row["L0_activations_over_these"] = number(less);
    row["L0_peak_over_this"] = number(lower);
    row["memory"] = memory_json(v.memory);
    row["memory"]["host_peak_rss"] = std::max(process, host_peak_rss());
    row["memory"]["process_peak"] = v.process > 0 ? Json(v.process) : Json(nullptr);
    if constexpr (kHasCuda)
      if (v.trial != nullptr && v.trial->captured() != nullptr) {
        row["reruns"] = v.trial->captured()->reruns();
        row["obstacle"] = v.trial->captured()->obstacle();
      }
    results.list.push_back(row);
    results.rows.push_back({v.name, runs ? fmt::format("{:.1f} ms", ms) : "-", times(slower),
                            readable_bytes(v.memory.saved()), times(less),
                            readable_bytes(v.memory.packed), readable_bytes(v.memory.peak),
                            times(lower),
                            v.process > 0 ? readable_bytes(v.process) : std::string("-")});
  }
  return results;
}

// What NVIDIA's libraries did not take, in all variants and steps together.
Json fallbacks_json() {
  Json list = Json::array();
  for (const ops::LibraryFallback& one : ops::library_fallbacks())
    list.push_back({{"what", one.what}, {"instead", one.instead}, {"count", one.count}});
  return list;
}

}  // namespace

void bench_step(const BenchArguments& arguments) {
  Json document = arguments.config.empty()
                      ? workload(arguments.workload.empty() ? "r20" : arguments.workload)
                      : read_json(arguments.config);
  const Json file = document;
  apply_sets(document, arguments.sets);
  Bench bench;
  bench.config = parse_config(document);
  const Config& config = bench.config;
  const std::vector<UnreadKey> refused = refused_keys(config, file, arguments.sets);
  resolve(bench.config);
  std::vector<Variant> variants;
  const bool usual = arguments.variants.empty();
  if (!arguments.only) variants.push_back(parse_variant(kBase, document, config, true));
  for (const std::string& text : usual ? usual_rows(config) : arguments.variants)
    variants.push_back(parse_variant(text, document, config, usual));
  // The row of raw activations takes no key that says how they are kept.
  const auto rows = std::span<const Variant>(variants).subspan(arguments.only ? 0 : 1);
  for (const UnreadKey& key : refused) check_unread(key, rows);
  bench.device = set_up_device(config.run);
  const bool runs = bench.device.type != DeviceType::meta;
  const int64_t repeats = !runs ? 1 : arguments.repeats > 0 ? arguments.repeats : 5;
  int64_t parameter_count = 0;
  try {
    if (runs) {
      bench.run = std::make_unique<train::Run>(starting_recipe(config));
      bench.run->optimizer();
      bench.make_batches_of_steps();
    } else {
      check_starting_weights(config);
      bench.steps = std::make_unique<train::WaySteps>(planned_run(config));
    }
    Module& model = runs ? bench.run->model() : bench.steps->model();
    for (const auto& p : model.parameters()) parameter_count += p.parameter->value().numel();
    parameter_count += models::packed_weights(model);
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
  check_profile_option(arguments.profile, variants, runs);
  for (Variant& v : variants) prepare(v, bench, !arguments.profile.empty());
  std::optional<data::AtomicFile> csv;
  if (!arguments.trace.empty()) csv.emplace(arguments.trace);  // before the work: it may fail
  measure(variants, bench, repeats);
  if (csv) trace(variants, bench, *csv);
  if (!arguments.profile.empty()) record(arguments.profile, variants);
  if (std::all_of(variants.begin(), variants.end(),
                  [](const Variant& v) { return !v.failed.empty(); }))
    throw Error(variants.back().failed);
  const Results results = results_of(variants, !arguments.only, runs, bench.process);
  const BatchSpec spec = batch_spec(config);
  // Sequences of a batch are as long as its longest, which may be shorter than data.max_length.
  const bool measured = spec.kind == BatchSpec::Kind::sequences && !bench.batches.empty();
  const Shape sample = measured ? Shape{bench.batches[0].input.size(1)} : spec.sample;
  if (arguments.json) {
    const Json report = {{"model", config.model.name},
                         {"parameters", parameter_count},
                         {"batch_size", config.data.batch_size},
                         {"sample", std::vector<int64_t>(sample.begin(), sample.end())},
                         {"device", config.run.device},
                         {"precision", config.run.precision},
                         {"threads", num_threads()},
                         {"repeats", repeats},
                         {"reserved_bytes", allocator(bench.device).report().reserved},
                         {"library_fallbacks", fallbacks_json()},
                         {"variants", results.list}};
    print_json(report);
    return;
  }
  std::printf("%s, batch %lld of %s, %s %s, %s\n%s", config.model.name.c_str(),
              static_cast<long long>(config.data.batch_size), sample.str().c_str(),
              config.run.device.c_str(), config.run.precision.c_str(),
              with_noun(num_threads(), "thread").c_str(), table(results.rows).c_str());
  if (!runs)
    for (const Variant& v : variants)
      if (const std::string widths = widths_on_meta(v.config); !widths.empty())
        std::printf("%s: %s\n", v.name.c_str(), widths.c_str());
  for (const ops::LibraryFallback& one : ops::library_fallbacks())
    std::printf("slower, %s: %s: %s instead\n", with_noun(one.count, "time").c_str(),
                one.what.c_str(), one.instead.c_str());
  if (const std::string kept = kept_gradients(config); !kept.empty())
    std::printf("%s\n", kept.c_str());
  if (bench.device == kCpu)
    std::printf(
        "peak: tensors. process: all that the program takes in a step; beside tensors\n"
        "that is code, libraries, the data set and up to 3 %% and 8 MiB of free pages for\n"
        "the next tensors.\n");
}

}  // namespace frugal::apps
