#include "apps/cli/training_run.h"

#include <csignal>

#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/config/data/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/make_run.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/starting_weights.h"
#include "apps/config/stored_run.h"
#include "apps/config/train_options.h"
#include "apps/report/page.h"
#include "apps/report/record_json.h"
#include "core/log.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"
#include "models/adapters/adapters.h"
#include "models/pack.h"
#include "ops/image/batch_norm.h"
#include "train/run/weights.h"
#include "train/step_times.h"

namespace frugal::apps {
namespace {

void check_events(const TrainOptions& options, const Config& config) {
  if (!config.train.tensorboard) return;
  if (!can_write_events())
    throw ConfigError("train.tensorboard",
                      "expected false: this build has no protobuf and ISA-L, which write event "
                      "files (docs/guide/install.md)");
  if (options.out.empty())
    throw ConfigError("train.tensorboard",
                      "expected false without --out, whose folder gets the event files");
}

std::shared_ptr<RunFolder> open_folder(const TrainOptions& options, const Config& config) {
  check_events(options, config);
  if (options.out.empty()) return nullptr;
  auto folder = std::make_shared<RunFolder>(options.out, options.resume, options.overwrite);
  folder->describe(to_json(config).dump(), [config, options,
                                            out = options.out](const std::string& text) {
    Config before = parse_config(data::parse_json<Json>(text));
    drop_unread(before);
    before.distributed.ranks = config.distributed.ranks;  // any number of ranks goes on
    if (options.extend) {
      const auto raise = [&](const char* path, int64_t& from, int64_t to) {
        if (to < from)
          throw ConfigError(path, fmt::format("--extend: expected at least the {} of the run in "
                                              "{}, got {}",
                                              from, out, to));
        from = to;
      };
      if (config.train.steps > 0)
        raise("train.steps", before.train.steps, config.train.steps);
      else
        raise("train.epochs", before.train.epochs, config.train.epochs);
    }
    // Its files of weights then hold the adapter alone, from which --init-from cannot start.
    const bool is_adapter_alone =
        before.adapter.type != models::AdapterType::none && before.model.weights.has_value();
    // The frozen weights may have another place, because base.json has their digest.
    if (is_adapter_alone && config.model.weights && has_base(out))
      before.model.weights = config.model.weights;
    const std::string difference = first_difference(before, config);
    const bool is_length = difference == "train.epochs" || difference == "train.steps";
    if (!difference.empty())
      throw ConfigError(
          difference, fmt::format("the run in {} was made with another value; results would "
                                  "belong to neither configuration. {}{}",
                                  out,
                                  is_length ? "--resume --extend N lets the run go on to N epochs "
                                              "(or train.steps) in all. "
                                            : "",
                                  is_adapter_alone
                                      ? fmt::format("A new run with another --out starts from what "
                                                    "it has learned: `frugal export {} --format "
                                                    "merged --output FOLDER` and --set "
                                                    "model.weights=FOLDER",
                                                    out)
                                      : fmt::format("A new run with another --out and --init-from "
                                                    "{} starts from its weights",
                                                    out)));
  });
  return folder;
}

std::string stopping_metric(const Config& config, const BatchSpec& spec) {
  const std::string which = config.train.stopping().metric;
  return which == "metric" ? spec.metric : which;
}

}  // namespace

// The folder comes before the data: what cannot be written should say so before data are read.
TrainingRun::TrainingRun(const Config& config, const TrainOptions& options)
    : config_(config),
      options_(options),
      device_(set_up_computing_device(config.run, "trained")),
      planner_(make_plan(config)),
      folder_(is_first() ? open_folder(options, config) : nullptr),
      spec_(batch_spec(config)),
      run_(run_recipe(config, planner_, options.ranks)) {
  check_metric(config, spec_, spec_.metric);
  run_.batches();
  if (config.train.patience > 0 && run_.validation() == nullptr)
    throw ConfigError("train.patience",
                      fmt::format("expected 0, since {} has no validation set, got {}",
                                  config.data.name, config.train.patience));
  load_start();
  trainer_ = &run_.trainer([&](TrainerOptions& all) { add_reports(all); });
  const RunState& state = trainer_->state();
  if (folder_ != nullptr) write_starting_files();
  first_step_ = state.step;
  if (folder_ != nullptr) csv_ = std::make_unique<MetricsCsv>(folder_, state);
  if (state.metrics_bytes == 0)
    if (const auto plan = trainer_->compression().plan()) show(*plan, state.step);
  if (!options.quiet && is_first()) progress_ = std::make_unique<Progress>();
  if (progress_ != nullptr && !config.model.is_named)
    progress_->say(
        fmt::format("network: {}, since the configuration has no model.name", config.model.name));
  if (progress_ != nullptr && !started_from_.empty()) progress_->say(started_from_);
  const bool adapts = config.adapter.type != models::AdapterType::none;
  if (progress_ != nullptr && (adapts || !config.train.freeze.empty()))
    progress_->say(frozen_text());
  if (progress_ != nullptr)
    if (const std::string kept = kept_gradients(config, planner_.get()); !kept.empty())
      progress_->say(kept);
  if (progress_ != nullptr && state.step > 0)
    progress_->say(fmt::format("resumed at step {} of {}", state.step, trainer_->steps()));
  else if (progress_ != nullptr && options.resume && !folder_->has_checkpoint())
    progress_->say(fmt::format("no checkpoint in {}, so a new run begins", printable(options.out)));
}

// The files come after all that can fail: a start that fails leaves nothing. A run that goes on
// writes those again that its folder has lost.
void TrainingRun::write_starting_files() {
  constexpr auto with_checkpoint = RunFolder::Lasting::with_checkpoint;
  const bool resumes = folder_->has_checkpoint();
  const auto is_new = [&](const std::string& name) {
    return !resumes || !data::is_file(options_.out + "/" + name);
  };
  std::vector<std::string> lost;
  const auto write = [&](const std::string& name, const std::string& text) {
    folder_->write(name, text, with_checkpoint);
    if (resumes) lost.push_back(name);
  };
  // Before the file comes that says otherwise.
  const std::string changed =
      resumes && options_.data_changed ? data_json_now(config_, options_.out) : "";
  if (!changed.empty()) folder_->write("data.json", changed, with_checkpoint);
  const std::string config = to_json(config_).dump(2) + "\n";
  if (is_new("config.json"))
    write("config.json", config);
  else if (options_.extend)
    folder_->write("config.json", config, with_checkpoint);
  for (const auto& [name, text] :
       starting_files(config_, spec_, run_.model().leaves_out_frozen(), is_new))
    write(name, text);
  if (!lost.empty())
    log().warn(
        "[run] {} has no {}: written as the configuration and the data as they are now say it",
        in_quotes(options_.out), fmt::format("{}", fmt::join(lost, ", ")));
}

// A run with a checkpoint takes from it what it trains.
void TrainingRun::load_start() {
  Module& model = run_.model();
  const bool resumes = folder_ != nullptr
                           ? folder_->has_checkpoint()
                           : !is_first() && options_.resume && has_checkpoint(options_.out);
  if (config_.model.weights && resumes && model.leaves_out_frozen())
    load_base(model, open_base_again(options_.out, config_), config_);
  if (resumes) return;
  started_from_ = load_starting_weights(model, config_);
}

std::string TrainingRun::frozen_text() {
  int64_t frozen = 0, all = 0;
  for (const auto& p : run_.model().parameters()) {
    all += p.parameter->value().numel();
    if (!p.parameter->requires_grad()) frozen += p.parameter->value().numel();
  }
  const int64_t packed = models::packed_weights(run_.model());
  all += packed, frozen += packed;
  if (const size_t layers = models::adapted_layers(run_.model()).size(); layers > 0)
    return fmt::format("adapters in {}: {} of {} weights are trained", with_noun(layers, "layer"),
                       all - frozen, all);
  const int64_t epochs = config_.train.freeze_epochs;
  return fmt::format(
      "frozen: {} of {} weights{}", frozen, all,
      frozen > 0 && epochs > 0 ? fmt::format(", until epoch {} ends", epochs) : std::string());
}

void TrainingRun::add_reports(TrainerOptions& options) {
  options.folder = folder_;
  options.extend = options_.extend;
  options.data_changed = options_.data_changed;
  options.stop = [] { return signal_received() != 0; };
  if (!is_first()) return;
  options.on_step = [this](const StepReport& report) {
    show(report);
    return options_.callbacks.on_step == nullptr || options_.callbacks.on_step(report);
  };
  options.on_epoch = [this](const EpochReport& report) {
    show(report);
    return options_.callbacks.on_epoch == nullptr || options_.callbacks.on_epoch(report);
  };
  options.on_event = [this](const Compression::Event& event, int64_t step) { show(event, step); };
  if (folder_ != nullptr)
    options.on_record = [this](const StepRecord& record, int64_t step) { show(record, step); };
  options.on_checkpoint = options_.saved;
}

bool TrainingRun::train_all() {
  try {
    return trainer_->run();
  } catch (const ops::TooFewRows& e) {
    const int64_t samples = run_.batches().samples(), batch = config_.data.batch_size;
    if (samples % batch != 1 || batch == 1) throw;
    throw Error(fmt::format(
        "{}. The last batch of an epoch has 1 of {} samples. data.drop_last=true leaves it out; "
        "another data.batch_size than {} avoids it",
        e.what(), samples, batch));
  }
}

// This process ran no step of a run that had ended: what another one measured stays.
void TrainingRun::keep_measured(Json& summary) const {
  const std::string path = folder_->path() + "/summary.json";
  if (!data::is_file(path)) return;
  try {
    const Json before = read_json(path);
    summary["memory"]["host_peak_rss"] = before.at("memory").at("host_peak_rss");
    for (const char* key : {"speed", "ranks", "offload"})
      if (before.contains(key)) summary[key] = before.at(key);
  } catch (const std::exception& e) {
    log().warn("{} is no summary of a run, and is written anew: {}", in_quotes(path),
               data::json_reason(e));
  }
}

Json TrainingRun::run() {
  const bool had_ended = trainer_->state().finished;
  const bool ended = train_all();
  const RunState& state = trainer_->state();
  if (!ended) {
    std::string at = fmt::format("at step {} of {}", state.step, trainer_->steps());
    // With several ranks, another one may have got the signal.
    if (signal_received() == 0 && config_.train.max_seconds > 0)
      at += fmt::format(" by train.max_seconds={}{}", config_.train.max_seconds,
                        trainer_->ranks_report() ? ", or by a signal to another rank" : "");
    const int signal = signal_received() != 0 ? signal_received() : SIGTERM;
    throw Interrupted(signal,
                      options_.out.empty()
                          ? at + "; without --out nothing was saved"
                          : fmt::format("{}; the checkpoint is in {}/checkpoint. The same command "
                                        "with --resume goes on from it",
                                        at, options_.out));
  }
  const Compression& compression = trainer_->compression();
  Json summary = summary_json(config_, state, trainer_->speed(), compression.offload_stats());
  if (config_.compression.track_interval > 0 || config_.compression.tracking.guard > 0)
    summary["convergence"] = to_json(compression.convergence());
  if (const auto ranks = trainer_->ranks_report()) summary["ranks"] = to_json(*ranks);
  if (had_ended && folder_ != nullptr) keep_measured(summary);
  if (folder_ != nullptr) folder_->write("summary.json", summary.dump(2) + "\n");
  write_report();
  return summary;
}

// A run is as good without its report.
void TrainingRun::write_report() const {
  if (folder_ == nullptr) return;
  try {
    folder_->write(kReportFile, report_page(read_report_run(folder_->path(), RunStatus::finished)),
                   RunFolder::Lasting::never);
  } catch (const Error& e) {
    const std::string why = fmt::format("{} was not written: {}", kReportFile, e.what());
    if (progress_ != nullptr)
      progress_->say(why);
    else
      log().error("{}", why);  // a quiet run says it, too
  }
}

void TrainingRun::show(const StepRecord& record, int64_t step) {
  // With offload, another thread decides when memory is free: the bytes are by chance.
  if (record.curve) append("memory", step, memory_line(record));
  append("tensors", step, tensors_line(record));
  Json times = read_tensor_times(folder_->path());
  times[std::to_string(step)] = tensor_times(record);
  folder_->write(kTensorTimesFile, times.dump() + "\n", RunFolder::Lasting::never);
}

void TrainingRun::append(const char* type, int64_t step, const Json& values) {
  if (folder_ == nullptr) return;
  Json line = values;
  line["type"] = type;
  line["step"] = step;
  folder_->append_metrics(line.dump());
}

void TrainingRun::show(const StepReport& report) {
  if (progress_ != nullptr && progress_->live()) progress_->show(progress_line(report));
  if (folder_ != nullptr && !report.layer_norms.empty()) {
    Json norms = Json::object();
    for (const auto& [layer, norm] : report.layer_norms) norms[layer] = norm;
    append("grad_norms", report.step, {{"norms", norms}});
    Scalars scalars;
    for (const auto& [layer, norm] : report.layer_norms)
      scalars.emplace_back("grad_norm/" + layer, norm);
    add_event(report.step, scalars);
  }
  if (!report.logs) return;
  if (folder_ != nullptr) {
    Json line = {{"type", "step"},      {"epoch", report.epoch},
                 {"step", report.step}, {"loss", report.loss},
                 {"lr", report.lr},     {"grad_norm", report.gradient_norm}};
    if (run_.task().has_accuracy()) line["accuracy"] = report.accuracy;
    folder_->append_metrics(line.dump());
  }
  Scalars scalars = {{"loss/train", report.loss},
                     {"lr", report.lr},
                     {"grad_norm", report.gradient_norm},
                     {"memory/peak", static_cast<double>(report.memory.peak)},
                     {"memory/activations", static_cast<double>(report.memory.saved())}};
  if (run_.task().has_accuracy()) scalars.emplace_back("accuracy/train", report.accuracy);
  if (report.mean_bits > 0) scalars.emplace_back("bits/mean", report.mean_bits);
  add_event(report.step, scalars);
  if (progress_ != nullptr && !progress_->live())
    progress_->say(progress_text(progress_line(report)));
}

ProgressLine TrainingRun::progress_line(const StepReport& report) const {
  const StepTimes& times = trainer_->times();
  ProgressLine line;
  line.epoch = report.epoch;
  line.epochs = trainer_->epochs();
  line.step = report.step;
  line.steps = trainer_->steps();
  line.loss = report.loss;
  if (run_.task().has_accuracy()) line.accuracy = report.accuracy;
  line.metric = spec_.metric;
  if (const auto& last = trainer_->state().last) line.measured = last->test.metric;
  line.unit = unit_of(spec_);
  line.memory_now = report.memory.peak;
  line.memory_peak = trainer_->state().memory.peak;
  line.bits = report.mean_bits;
  if (times.steps() < 2) return line;  // the first step also makes what all others use
  line.units_per_second = times.recent_units_per_second();
  line.seconds_left = times.recent() * static_cast<double>(line.steps - line.step);
  return line;
}

void TrainingRun::show(const EpochReport& report) {
  Json line = {{"type", "epoch"},
               {"epoch", report.epoch},
               {"step", report.step},
               {"train_loss", report.train_loss}};
  if (run_.task().has_accuracy()) line["train_accuracy"] = report.train_accuracy;
  // Where the targets are numbers, nothing is counted as right.
  const auto accuracy = [&](double value) {
    return !run_.task().has_accuracy() ? std::string() : fmt::format("  acc {:.2f}%", 100 * value);
  };
  std::string text =
      fmt::format("epoch {}/{}  train loss {:.4f}{}", report.epoch, trainer_->epochs(),
                  report.train_loss, accuracy(report.train_accuracy));
  if (report.result) {
    const Evaluation& test = report.result->test;
    const auto& validation = report.result->validation;
    line["test_loss"] = test.loss;
    if (run_.task().has_accuracy()) line["test_accuracy"] = test.accuracy;
    if (test.metric) line["test_" + spec_.metric] = *test.metric;
    for (const auto& [name, value] : test.details) line["test_details"][name] = value;
    if (test.metric) text += fmt::format("  {} {:.4f}", spec_.metric, *test.metric);
    if (validation) line["validation"] = to_json(*validation, spec_);
    if (validation && !run_.task().has_accuracy())
      text += fmt::format("  val {} {:.4f}", spec_.metric, *validation->metric);
    else if (validation)
      text += fmt::format("  val acc {:.2f}%", 100 * validation->accuracy);
    text += fmt::format("  test loss {:.4f}{}", test.loss, accuracy(test.accuracy));
  }
  if (folder_ != nullptr) folder_->append_metrics(line.dump());
  add_event(report);
  add_row(report);
  if (progress_ == nullptr) return;
  progress_->say(text);
  if (!report.stopped_early || report.last) return;
  const EarlyStopOptions stopping = config_.train.stopping();
  const int64_t best = trainer_->state().best->epoch;
  if (config_.train.patience > 0)
    progress_->say(fmt::format("stopped: {} without a lower validation loss than epoch {}'s",
                               with_noun(stopping.patience, "epoch"), best));
  else
    progress_->say(fmt::format(
        "stopped: {} without a better {} than epoch {}'s",
        with_noun(stopping.patience,
                  stopping.unit == EarlyStopOptions::Unit::epochs ? "epoch" : "evaluation"),
        stopping_metric(config_, spec_), best));
}

void TrainingRun::add_event(int64_t step, const Scalars& scalars) {
  if (!config_.train.tensorboard) return;
  if (events_ == nullptr)
    events_ = std::make_unique<EventFile>(options_.out + "/tensorboard", first_step_);
  events_->add(step, scalars);
}

void TrainingRun::add_event(const EpochReport& report) {
  if (!report.result) return;
  Scalars scalars;
  const auto add = [&](const Evaluation& evaluation, const std::string& split) {
    scalars.emplace_back("loss/" + split, evaluation.loss);
    if (run_.task().has_accuracy()) scalars.emplace_back("accuracy/" + split, evaluation.accuracy);
    if (evaluation.metric) scalars.emplace_back(spec_.metric + "/" + split, *evaluation.metric);
  };
  add(report.result->test, "test");
  if (report.result->validation) add(*report.result->validation, "validation");
  add_event(report.step, scalars);
}

void TrainingRun::add_row(const EpochReport& report) {
  if (csv_ == nullptr) return;
  csv_->add({report, trainer_->state().memory, run_.task().has_accuracy()});
}

void TrainingRun::show(const Compression::Event& event, int64_t step) {
  if (const auto* plan = std::get_if<PlanReport>(&event)) append("plan", step, to_json(*plan));
  if (const auto* found = std::get_if<Convergence>(&event)) {
    const Json values = to_json(*found);
    if (progress_ != nullptr) progress_->say(noise_text(values, step));
    append("convergence", step, values);
  }
  const auto* widths = std::get_if<Compression::Widths>(&event);
  if (widths == nullptr || folder_ == nullptr) return;
  append("widths", step, to_json(*widths));
}

}  // namespace frugal::apps
