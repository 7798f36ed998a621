#include <cmath>
#include <cstdio>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/given_path.h"
#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/config/data/make_data.h"
#include "apps/config/keys/value_named.h"
#include "apps/config/make_model.h"
#include "apps/config/make_run.h"
#include "apps/config/make_task.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/stored_run.h"
#include "core/log.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/text/chat/choice_questions.h"
#include "data/text/sequence_batches.h"
#include "train/evaluate.h"
#include "train/tasks/multiple_choice.h"

namespace frugal::apps {
namespace {

// The run to evaluate: its folder, or a configuration and weights.
StoredRun run_of(const EvalArguments& arguments) {
  must_be_there("RUN", arguments.config);
  if (is_folder(arguments.config)) {
    StoredRun run = read_run(arguments.config, arguments.sets);
    resolve_with_data(run, arguments.sets);
    return run;
  }
  if (arguments.checkpoint.empty())
    throw ConfigError("", fmt::format("eval: expected the folder of a run, or a configuration and "
                                      "--checkpoint with its weights, got {}",
                                      in_quotes(arguments.config)));
  StoredRun run;
  run.config = load_config(arguments.config, arguments.sets);
  resolve(run.config);
  run.description.spec = batch_spec(run.config);
  run.description.pictures = evaluated_pictures(run.config, run.description.spec);
  return run;
}

// Loss and accuracy of probabilities. Rows whose target is kIgnored do not count.
struct Judge {
  train::Totals totals;
  void add(const float* probabilities, int64_t classes, int64_t target) {
    if (target == kIgnored) return;
    int64_t highest = 0;
    for (int64_t i = 1; i < classes; ++i)
      if (probabilities[i] > probabilities[highest]) highest = i;
    constexpr double kLeast = 1e-12;  // in the place of a probability that f32 made 0
    totals.loss -= std::log(std::max(kLeast, static_cast<double>(probabilities[target])));
    totals.correct += highest == target ? 1 : 0;
    ++totals.samples;
    ++totals.weight;
  }
  Evaluation result() const { return {totals.mean_loss(), totals.accuracy(), totals.samples}; }
};

void stop_on_signal() {
  if (signal_received() != 0) throw Interrupted(signal_received(), "while evaluating");
}

// Each picture of the files is judged by the mean over its views.
Evaluation evaluate_files(const train::Model& model, const Config& config, Split split,
                          data::Views views) {
  const data::PictureList list = labelled_pictures(config, split);
  std::vector<std::string> paths;
  for (const auto& file : list.files) paths.push_back(file.path);
  train::PredictOptions options;
  options.top = *config.model.num_classes;
  options.views = views;
  options.batch_size = config.data.test_batch();
  options.threads = std::max(1, static_cast<int>(config.data.workers));
  Judge judge;
  model.predict_each(paths, options, [&](int64_t index, const train::Answer& answer) {
    stop_on_signal();
    if (!answer.error.empty()) {
      FRUGAL_CHECK(config.data.skip_bad, "{}", answer.error);
      return true;
    }
    std::vector<float> row(answer.prediction.size());
    for (const auto& guess : answer.prediction)
      row[static_cast<size_t>(guess.index)] = static_cast<float>(guess.probability);
    judge.add(row.data(), static_cast<int64_t>(row.size()),
              list.files[static_cast<size_t>(index)].label);
    return true;
  });
  return judge.result();
}

// Each picture in memory is judged by the mean over itself and its mirror image.
Evaluation evaluate_mirrored(const train::Model& model, data::BatchSource& batches) {
  Judge judge;
  while (std::optional<Batch> batch = batches.next()) {
    stop_on_signal();
    Batch mirrored;
    const Tensor target = batch->target;
    {
      const CategoryScope scope(Category::input);
      mirrored.input =
          Tensor::from(std::vector<float>(batch->input.data<float>(),
                                          batch->input.data<float>() + batch->input.numel()),
                       batch->input.shape());
    }
    const Shape& shape = mirrored.input.shape();
    data::mirror(mirrored.input.mut<float>(), shape[0], shape[1], shape[2], shape[3]);
    const Tensor one = model.probabilities(std::move(*batch)),
                 other = model.probabilities(std::move(mirrored));
    const int64_t classes = one.size(1);
    std::vector<float> row(static_cast<size_t>(classes));
    for (int64_t i = 0; i < one.size(0); ++i) {
      for (int64_t c = 0; c < classes; ++c)
        row[static_cast<size_t>(c)] =
            (one.data<float>()[i * classes + c] + other.data<float>()[i * classes + c]) / 2;
      judge.add(row.data(), classes, target.data<int64_t>()[i]);
    }
  }
  return judge.result();
}

void check_tta(const EvalArguments& arguments, const StoredRun& run) {
  const DataTraits traits = data_traits(run.config);
  const BatchSpec& spec = run.description.spec;
  if (is_self_supervised(run.config.model))
    throw ConfigError("", fmt::format("--tta: expected none with the network {}, which gives no "
                                      "classes",
                                      run.config.model.name));
  if (spec.kind != BatchSpec::Kind::images || spec.has_several_labels() || spec.has_values() ||
      spec.has_boxes() || spec.target_of_each_pixel())
    throw ConfigError("",
                      fmt::format("--tta: expected none with the data {}, which are no pictures "
                                  "of one class each",
                                  run.config.data.name));
  if (arguments.tta == "ten_crop" && !traits.of_picture_files)
    throw ConfigError("",
                      fmt::format("--tta: expected none or flip with the data {}, whose pictures "
                                  "have the network's size; ten crops need larger ones",
                                  run.config.data.name));
}

void print_evaluation(const Evaluation& result, const train::Task& task, const std::string& weights,
                      bool json) {
  if (json) {
    Json printed = to_json(result, task.spec());
    printed["weights"] = weights;
    return print_json(printed, true);
  }
  std::string text = fmt::format("loss {:.4f}", result.loss);
  if (task.has_accuracy()) text += fmt::format("  accuracy {:.2f} %", 100 * result.accuracy);
  text += fmt::format("  samples {}", result.samples);
  if (result.metric) text += fmt::format("  {} {:.4f}", task.spec().metric, *result.metric);
  for (const auto& [name, value] : result.details)
    text += fmt::format("\n  {} {:.4f}", name, value);
  std::printf("%s\n", text.c_str());
}

// A network that guesses tokens, and what turns lines into them.
struct LineReader {
  const Config& config;
  data::SampleEncoder encoder;
  std::shared_ptr<Module> network;
  std::string weights;
};

data::SampleEncoder encoder_of(const StoredRun& run) {
  const auto tokenizer = run.description.text.tokenizer;
  if (family_of(run.config.model) != Family::decoder || tokenizer == nullptr)
    throw ConfigError("", fmt::format("--data: expected the run of a language model and text, got "
                                      "{} and {}; --set data.dir=PATH evaluates other data",
                                      run.config.model.name, run.config.data.name));
  return sample_encoder(run);
}

Evaluation evaluate_sequences(const train::Task& task, const LineReader& of,
                              std::vector<data::Sequence> samples) {
  data::SequenceBatchOptions options;
  options.batch_size = of.config.data.test_batch();
  options.shuffle = false;
  options.padding = of.encoder.end.value_or(0);
  options.next_tokens = true;
  data::SequenceBatches batches(std::move(samples), options);
  const auto found = evaluate(task, *of.network, batches, [] { return signal_received() != 0; });
  stop_on_signal();
  return *found;
}

void evaluate_questions(const LineReader& of, const BatchSpec& spec, const std::string& path,
                        const data::TextSampleOptions& options, bool json) {
  data::ChoiceQuestions read = data::read_choice_questions(path, of.encoder, options);
  if (read.cut > 0)
    log().warn("[eval] {}: without their beginnings, because of data.max_length {}: {}",
               in_quotes(path), options.max_length, with_noun(read.cut, "prompt"));
  const size_t questions = read.questions.size(), choices = read.samples.size();
  const train::MultipleChoice task(spec, std::move(read.questions), std::move(read.bytes));
  const Evaluation result = evaluate_sequences(task, of, std::move(read.samples));
  const double accuracy = *result.metric;
  if (!json) {
    std::string text = fmt::format("accuracy {:.2f} %", 100 * accuracy);
    for (const auto& [name, value] : result.details)
      text += fmt::format("  {} {:.2f} %", name, 100 * value);
    std::printf("%s  questions %zu  choices %zu\n", text.c_str(), questions, choices);
    return;
  }
  Json printed = {{"accuracy", accuracy}};
  for (const auto& [name, value] : result.details) printed[name] = value;
  printed["questions"] = questions;
  printed["choices"] = choices;
  printed["weights"] = of.weights;
  print_json(printed, true);
}

// All lines of a file, for the network of a run's folder. The run's data may be gone.
void evaluate_lines(const EvalArguments& arguments) {
  if (arguments.split != "test")
    throw ConfigError("", fmt::format("--split: expected none with --data, whose lines are all "
                                      "evaluated, got {}",
                                      arguments.split));
  const StoredRun run = read_run(arguments.config, arguments.sets);
  const Config& config = run.config;
  LineReader of{config, encoder_of(run), nullptr, arguments.checkpoint};
  if (arguments.tta != "none") check_tta(arguments, run);
  must_be_there("--data", arguments.data);
  if (is_folder(arguments.data))
    throw ConfigError("", fmt::format("--data: expected a file of JSON lines, got the folder {}; "
                                      "--set data.dir=PATH evaluates other data",
                                      in_quotes(arguments.data)));
  const Device device = set_up_computing_device(config.run, "evaluated");
  catch_signals();
  if (of.weights.empty()) of.weights = weights_file(run, arguments.weights);
  const BatchSpec& spec = run.description.spec;
  const std::string& path = arguments.data;
  const data::TextSampleOptions options{config.data.max_length, config.data.answers_only,
                                        config.data.truncate};
  try {
    of.network = stored_network(run, of.weights, device);
    if (data::are_questions(path))
      return evaluate_questions(of, spec, path, options, arguments.json);
    data::TextSampleCounts counts;
    std::vector<data::Sequence> samples =
        data::read_text_samples(path, of.encoder, options, counts);
    if (counts.cut > 0 || counts.without_answers > 0)
      log().warn("[eval] {}: cut at data.max_length {}: {}; left out without an answer: {}",
                 in_quotes(path), options.max_length, with_noun(counts.cut, "sample"),
                 with_noun(counts.without_answers, "sample"));
    const train::TaskPtr task = make_task(config, spec);
    print_evaluation(evaluate_sequences(*task, of, std::move(samples)), *task, of.weights,
                     arguments.json);
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(explain(e, config), e.report);
  }
}

}  // namespace

void eval_command(const EvalArguments& arguments) {
  if (!arguments.data.empty()) return evaluate_lines(arguments);
  const StoredRun run = run_of(arguments);
  const Config& config = run.config;
  if (arguments.tta != "none") check_tta(arguments, run);
  set_up_computing_device(config.run, "evaluated");
  catch_signals();
  const Split split =
      value_named<Split>(arguments.split, {{"test", Split::test}, {"val", Split::validation}});
  const std::string weights =
      arguments.checkpoint.empty() ? weights_file(run, arguments.weights) : arguments.checkpoint;
  try {
    train::RunRecipe recipe = run_recipe(config);
    recipe.make_model = [&](Device on) { return stored_network(run, weights, on); };
    recipe.make_planner = {};
    recipe.options.compression = {};  // an evaluation saves nothing
    train::Run evaluated(recipe);
    Module& network = evaluated.model();
    data::BatchSource* const batches =
        split == Split::test ? evaluated.test() : evaluated.validation();
    if (batches == nullptr)
      throw ConfigError("", fmt::format("--split: expected test, since {} has no validation set",
                                        config.data.name));
    const train::Task& task = evaluated.task();
    Evaluation result;
    if (arguments.tta == "none") {
      const auto found = evaluate(task, network, *batches, [] { return signal_received() != 0; });
      stop_on_signal();
      result = *found;
    } else {
      const train::Model model(evaluated.shared_model(), run.description);
      const bool files = data_traits(config).of_picture_files;
      result = files ? evaluate_files(model, config, split, views_named(arguments.tta))
                     : evaluate_mirrored(model, *batches);
    }
    print_evaluation(result, task, weights, arguments.json);
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(explain(e, config), e.report);
  }
}

}  // namespace frugal::apps
