// A run that is cut and goes on ends with the bits of one that was not, whatever it decides while
// it trains, and also where batches change in shape: every policy, wrapper, guard and tracker with
// short last batches, sampled graphs and sentences of different lengths.
//
// A compact version runs with the other tests. The whole campaign, each pair cut at each step:
//   test_train -tc="*resume campaign*" --no-skip
#include <doctest/doctest.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "data/image/transforms.h"
#include "optim/optimizers.h"
#include "tests/train/temp_folder.h"
#include "tests/train/tiny_run.h"
#include "train/compression_state.h"
#include "train/run/run_state.h"

namespace frugal::train {
namespace {

namespace fs = std::filesystem;
using compress::AcgcOptions;
using compress::ActnnOptions;
using compress::Choice;

constexpr int64_t kCampaignSteps = 20;

// ---- what decides
struct Variant {
  const char* name;
  Choice choice;
  int64_t track = 0;  // steps between measurements; 0: nothing is measured
  double guard = 0;
  bool moved = false;       // packed bytes go to a file
  bool recomputed = false;  // blocks are recomputed
  bool bf16 = false;        // activations are bf16
  // A policy that learns in a few steps. A budget may leave so much that no width matters.
  bool learns() const {
    if (const auto* actnn = std::get_if<compress::ActnnOptions>(&choice.policy))
      return actnn->mixed;
    return std::holds_alternative<compress::AcgcOptions>(choice.policy) ||
           std::holds_alternative<compress::AdaptiveOptions>(choice.policy);
  }
};

Choice by_sensitivity(double average, int64_t interval, int64_t samples, double share) {
  return {
      .policy = compress::AdaptiveOptions{.average = average},
      .measuring = {.interval = interval, .first = interval, .samples = samples, .share = share}};
}

Choice within(const char* memory, int64_t interval, int64_t samples, double share = 1) {
  Choice choice = compress::budget(memory);
  choice.measuring = {.interval = interval, .first = interval, .samples = samples, .share = share};
  return choice;
}

Choice coded(Choice choice) {
  choice.entropy = true;
  return choice;
}

// A level or a preset, with other steps between observations.
Choice observed(Choice choice, int64_t interval) {
  if (auto* actnn = std::get_if<ActnnOptions>(&choice.policy)) actnn->interval = interval;
  if (auto* acgc = std::get_if<AcgcOptions>(&choice.policy)) acgc->interval = interval;
  choice.measuring.interval = interval;
  choice.measuring.first = std::min(choice.measuring.first, interval);
  return choice;
}
Choice actnn(const char* level, int64_t interval) {
  return observed(compress::paper("actnn", level), interval);
}
Choice without_recipes(Choice choice) {
  choice.keep().recipes = false;
  return choice;
}
Choice acgc(const AcgcOptions& options) { return {.policy = options}; }

// Budgets that depend on the data: see choice_of().
constexpr const char *kTight = "tight", *kOfPeak = "of the peak";

Choice published_gact() {
  Choice choice = observed(compress::preset("gact_paper"), 3);
  choice.measuring.samples = 4;
  return choice;
}

std::vector<Variant> variants() {
  using compress::Rounding;
  const auto expected = compress::acgc::Count::expected;
  return {
      {"raw", compress::bits(0)},
      {"raw, moved", compress::bits(0), 0, 0, true},
      {"fixed", compress::bits(4)},
      {"fixed, guard", compress::bits(4), 2, 0.05},
      {"fixed, coded and moved", coded(compress::bits(2)), 0, 0, true},
      {"adaptive, 4 bits", by_sensitivity(4, 5, 4, 1)},
      {"adaptive, 3 bits, tracker", by_sensitivity(3, 4, 2, 0.3), 3},
      {"adaptive, 2 bits, guard", by_sensitivity(2, 3, 2, 0.5), 2, 0.05},
      {"adaptive, coded", coded(by_sensitivity(4, 5, 4, 1))},
      {"adaptive, moved, guard", by_sensitivity(4, 4, 2, 1), 3, 0.02, true},
      {"actnn L1", actnn("L1", 1000)},
      {"actnn L2, guard", actnn("L2", 1000), 3, 0.05},
      {"actnn L3", actnn("L3", 4)},
      {"actnn L3, guard", actnn("L3", 3), 2, 0.05},
      {"actnn L3, coded, tracker", coded(actnn("L3", 3)), 3},
      {"actnn L4, moved", actnn("L3", 5), 0, 0, true},
      {"actnn L4, moved, recipes off", without_recipes(actnn("L3", 3)), 0, 0, true},
      {"acgc", acgc({.interval = 4})},
      {"acgc expected, guard",
       acgc({.count = expected, .rounding = Rounding::stochastic, .interval = 3}), 2, 0.05},
      {"acgc, coded codec, tracker",
       acgc({.codec = "entropy", .rounding = Rounding::nearest, .interval = 3}), 4},
      {"acgc, predicted codec",
       acgc({.codec = "predicted", .rounding = Rounding::stochastic, .interval = 3})},
      {"acgc, moved", acgc({.interval = 3}), 0, 0, true},
      {"budget of activations", within("1/6 activations", 4, 4)},
      {"budget of the peak, tracker", within(kOfPeak, 5, 2), 3},
      {"budget, coded", coded(within("1/8 activations", 3, 4))},
      {"budget, guard", within("1/4 activations", 5, 2), 2, 0.05},
      {"budget, coded and moved, guard", coded(within(kTight, 4, 2)), 3, 0.05, true},
      {"actnn L2.5", actnn("L2.5", 3)},
      {"actnn as published", observed(compress::preset("actnn_paper"), 3)},
      {"gact as published, guard", published_gact(), 2, 0.05},
      {"acgc as published", observed(compress::preset("acgc_paper"), 3)},
  };
}

// Gradients of samples are kept from epoch to epoch, of data that have samples.
Variant by_sample() {
  Choice choice = actnn("L3", 1);
  std::get<ActnnOptions>(choice.policy).use_gradient = true;
  return {"actnn, gradients of samples, tracker", choice, 3};
}

// Activations are bf16, under every kind of policy.
std::vector<Variant> in_bf16() {
  std::vector<Variant> all = {
      {"raw, bf16", compress::bits(0)},
      {"fixed, tracker, bf16", compress::bits(4), 3},
      {"fixed, coded and moved, bf16", coded(compress::bits(2)), 0, 0, true},
      {"adaptive, guard, bf16", by_sensitivity(3, 4, 2, 0.5), 2, 0.05},
      {"actnn L3, guard, bf16", actnn("L3", 3), 2, 0.05},
      {"acgc, bf16", acgc({.interval = 3})},
      {"budget of activations, bf16", within("1/4 activations", 4, 4)},
  };
  for (Variant& each : all) each.bf16 = true;
  return all;
}

// What recomputed blocks keep is packed, and has widths by sensitivity. Graph networks have no such
// blocks.
Variant recomputed() {
  return {"gact as published, blocks recomputed", published_gact(), 3, 0, false, true};
}

// ---- what it trains on
const std::vector<std::string> kData = {"images",     "node",     "edge",     "random_walk",
                                        "neighbours", "clusters", "sentences"};

// Noise of five batches, the last of which has 5 samples instead of 16. mixed: samples of one batch
// are mixed, and a step has two batches.
RunRecipe images(bool mixed) {
  const TinyImages train{.classes = 3, .batch = 16, .samples = 69};
  TinyImages test = train;
  test.samples = 16;
  RunRecipe recipe = tiny_run("resnet20", {{"layers", 8}}, train);
  recipe.open_train = [train, mixed] {
    const auto flipped = std::make_shared<data::HorizontalFlip>(noisy_images(train));
    data::LoaderOptions options{.batch_size = train.batch, .threads = 0};
    if (mixed) options.mix = {.mixup = 0.4, .cutmix = 1};
    return std::make_unique<data::Loader>(std::make_shared<data::PadCrop>(flipped, 1), options);
  };
  recipe.open_test = [test](int64_t) {
    return std::make_unique<data::Loader>(
        noisy_images(test, 1),
        data::LoaderOptions{.batch_size = test.batch, .shuffle = false, .threads = 0});
  };
  recipe.options.spec.mixes = mixed;
  recipe.options.task = make_task(recipe.options.spec);
  recipe.options.clip_norm = 5;
  if (mixed) recipe.options.gradient_accumulation = 2;
  return recipe;
}

std::unique_ptr<data::BatchSource> batches_of(const data::GraphData& graph,
                                              const std::string& sampler) {
  const data::GraphPart part = data::GraphPart::train;
  if (sampler == "neighbours")
    return std::make_unique<data::NeighbourBatches>(
        graph, part, data::NeighbourOptions{.fanouts = {3, 3, 3}, .batch_size = 68});
  if (sampler == "clusters")
    return std::make_unique<data::ClusterBatches>(
        graph, part, data::ClusterOptions{.clusters = 20, .clusters_per_batch = 6});
  data::SaintOptions options{.roots = 75,
                             .nodes = 225,
                             .edges = 75,
                             .aggregate = data::GraphAggregate::symmetric_loops,
                             .batches = 6};
  using data::SaintSampler;
  options.sampler = sampler == "node"   ? SaintSampler::node
                    : sampler == "edge" ? SaintSampler::edge
                                        : SaintSampler::walk;
  return std::make_unique<data::SaintBatches>(graph, part, options);
}

RunRecipe graph(const std::string& sampler) {
  const TinyGraph nodes{.nodes = 500, .edges = 1500, .features = 32};
  const bool saint = sampler != "neighbours" && sampler != "clusters";
  RunRecipe recipe = tiny_run(saint ? "gcn" : "sage", {{"width", 32}, {"layers", 3}}, nodes);
  recipe.open_train = [nodes, sampler] { return batches_of(noisy_graph(nodes), sampler); };
  recipe.open_test = [nodes](int64_t) {
    return std::make_unique<data::GraphBatches>(noisy_graph(nodes), data::GraphPart::test);
  };
  recipe.open_validation = [nodes](int64_t) {
    return std::make_unique<data::GraphBatches>(noisy_graph(nodes), data::GraphPart::val);
  };
  return recipe;
}

// Sentences of 3 to 13 tokens, as many as a batch does not divide.
RunRecipe sentences() {
  constexpr int64_t kWords = 7;
  BatchSpec spec;
  spec.sample = {16};
  spec.classes = 2;
  spec.kind = BatchSpec::Kind::sequences;
  spec.vocabulary = kWords;
  spec.token_extras = {"attention_mask", "token_type_ids"};
  RunRecipe recipe = tiny_run("bert_tiny",
                              {{"layers", 1},
                               {"width", 16},
                               {"heads", 2},
                               {"max_positions", 16},
                               {"vocab_size", kWords},
                               {"num_classes", 2}},
                              spec);
  const auto open = [](int64_t batch, bool shuffle) {
    std::vector<data::Sequence> all(44);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].ids = {2};
      for (size_t k = 0; k <= i * 7 % 11; ++k) all[i].ids.push_back(k * i % 3 == 0 ? 5 : 6);
      all[i].ids.push_back(3);
      all[i].second = static_cast<int32_t>(all[i].ids.size());
      all[i].label = static_cast<int64_t>(i % 2);
    }
    return std::make_unique<data::SequenceBatches>(
        all, data::SequenceBatchOptions{.batch_size = batch, .shuffle = shuffle});
  };
  recipe.open_train = [open] { return open(7, true); };
  recipe.open_test = [open](int64_t) { return open(44, false); };
  return recipe;
}

Choice choice_of(const std::string& data, const Variant& variant) {
  Choice choice = variant.choice;
  choice.keep().min_elements = data == "images" ? 400 : data == "sentences" ? 96 : 512;
  choice.measuring.batch = data == "sentences" ? 7 : 16;
  if (auto* budget = std::get_if<compress::BudgetPolicyOptions>(&choice.policy)) {
    // Masks and indices, which nothing makes smaller, are more of what other networks keep.
    if (budget->memory == kTight)
      budget->memory = data == "images" ? "1/30 activations" : "1/8 activations";
    // Elsewhere transient tensors are more than what compression takes away.
    if (budget->memory == kOfPeak) budget->memory = data == "images" ? "0.95/1" : "1/1";
  }
  if (variant.moved)
    choice.offload =
        compress::OffloadOptions{.directory = fs::temp_directory_path().string(), .window = 4096};
  return choice;
}

RunRecipe recipe_of(const std::string& data, const Variant& variant, int64_t steps) {
  RunRecipe recipe = data == "images" || data == "mixed" ? images(data == "mixed")
                     : data == "sentences"               ? sentences()
                                                         : graph(data);
  TrackingOptions tracking;
  tracking.batch = data == "sentences" ? 7 : 16;
  tracking.momentum = 0.9;
  if (data != "images" && data != "mixed") {
    tracking.sgd = false;
    tracking.momentum = 0;
    recipe.make_optimizer = [](Module& model) {
      return std::make_unique<optim::Adam>(model.parameters());
    };
    recipe.lr = 0.01;
  }
  if (recipe.options.spec.kind == BatchSpec::Kind::graph) {
    tracking.batch = 1;
    tracking.other = other_batches(recipe);
  }
  recipe.make_schedule = [lr = recipe.lr](int64_t, int64_t all) {
    return optim::cosine_schedule(lr, 0, all);
  };
  TrainerOptions& options = recipe.options;
  options.compression.choice = choice_of(data, variant);
  if (variant.bf16)
    recipe.make_model = [make = recipe.make_model](Device device) {
      std::shared_ptr<Module> model = make(device);
      model->set_activations(DType::bf16);
      return model;
    };
  if (variant.recomputed) options.checkpointed_blocks = kAllBlocks;
  if (variant.track > 0) {
    tracking.interval = variant.track;
    tracking.samples = 2;
    tracking.guard = variant.guard;
    options.compression.tracking = tracking;
  }
  options.steps = steps;
  options.log_interval = 1;
  options.checkpoint_interval = 1;
  return recipe;
}

// ---- cuts
std::string bytes_of_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string text_of(const Compression::Event& event) {
  if (const auto* widths = std::get_if<Compression::Widths>(&event))
    return fmt::format("widths {} {} {} {}", fmt::join(widths->bits, ","),
                       fmt::join(widths->seqs, ","), widths->average_bits,
                       widths->predicted_variance);
  if (const auto* found = std::get_if<Convergence>(&event))
    return fmt::format("convergence {} {} {} {} {} {}", found->gradient_square,
                       found->minibatch_variance, found->added_variance,
                       found->squared_bias.value_or(0), found->smoothness,
                       found->next_bits.value_or(0));
  const auto& plan = std::get<PlanReport>(event);
  return fmt::format("plan {} {} {} {}", plan.kind, plan.activation_bytes, plan.predicted_variance,
                     plan.average_bits);
}

// What a finished run leaves, and what it said on the way. The state holds what it would decide by,
// if it went on.
struct Left {
  std::map<int64_t, std::string> said;  // what was reported of each step
  std::string last, best, state;
  std::string metrics;  // metrics.jsonl, with the lines before the cut
  compress::Learned learned;
  // Which parts of it another one has otherwise, which began after step `cut`.
  std::string differs(const Left& other, int64_t cut) const {
    std::string names;
    const auto add = [&](const char* name, bool differs) {
      if (differs) names += fmt::format(" {}", name);
    };
    std::map<int64_t, std::string> later = said;
    later.erase(later.begin(), later.upper_bound(cut));
    add("reports", later != other.said);
    add("last", last != other.last);
    add("best", best != other.best);
    add("state", state != other.state);
    add("metrics", metrics != other.metrics);
    add("learned", learned != other.learned);
    return names;
  }
};

struct Watch {
  Left left;
  int records = 0, with_curves = 0;
  std::function<void(int64_t step)> saved = {};
};

Left trained(const RunRecipe& recipe, const std::string& folder, bool moved, Watch& watch) {
  Run run(recipe);
  std::map<int64_t, std::string>& said = watch.left.said;
  const auto out = std::make_shared<RunFolder>(folder, true);
  const auto say = [&](int64_t step, const std::string& line) {
    said[step] += line + "\n";
    out->append_metrics(line);
  };
  Trainer& trainer = run.trainer([&](TrainerOptions& options) {
    options.folder = out;
    options.on_step = [&](const StepReport& step) {
      say(step.step, fmt::format("{} {} {} {} {} {}", step.epoch, step.lr, step.loss, step.accuracy,
                                 step.gradient_norm, moved ? 0 : step.mean_bits));
      return true;
    };
    options.on_epoch = [&](const EpochReport& epoch) {
      say(epoch.step, fmt::format("epoch {} {} {}", epoch.epoch, epoch.train_loss,
                                  epoch.result ? epoch.result->test.loss : 0));
      return true;
    };
    options.on_event = [&](const Compression::Event& event, int64_t step) {
      say(step, text_of(event));
    };
    options.on_record = [&](const StepRecord& record, int64_t step) {
      ++watch.records;
      watch.with_curves += record.curve.has_value();
      say(step, fmt::format("tensors {}", record.tensors.size()));
    };
    options.on_checkpoint = watch.saved;
  });
  REQUIRE(trainer.run());
  Left left = watch.left;
  RunState state = trainer.state();
  CompressionState compression = trainer.compression().state();
  left.learned = compression.learned;
  // With a file, what lies in memory beside it goes with the speed of the disk, as its reads do.
  compression.offload = {};
  if (moved) state.memory = {}, state.last_step = {state.last_step.lr};
  left.state = train::text_of(state, compression);
  left.metrics = bytes_of_file(folder + "/metrics.jsonl");
  left.last = bytes_of_file(folder + "/checkpoint/last.safetensors");
  left.best = bytes_of_file(folder + "/checkpoint/best.safetensors");
  REQUIRE(!left.last.empty());
  REQUIRE(!left.best.empty());
  return left;
}

// Whether a policy knows something of a tensor that it did not know before the first step.
bool has_learned(const compress::Learned& learned) {
  const auto any = [&](const char* name) {
    const auto found = learned.lists.find(name);
    return found != learned.lists.end() &&
           std::any_of(found->second.begin(), found->second.end(), [](double x) { return x > 0; });
  };
  return any("sensitivities") || any("bounds2") ||
         std::any_of(learned.inside.begin(), learned.inside.end(), has_learned);
}

// Trains without a stop, then again from the checkpoint of each step of `cuts`; the steps after
// which a cut made a difference, and what differs.
std::vector<std::string> differences(const std::string& data, const Variant& variant, int64_t steps,
                                     const std::function<bool(int64_t)>& cuts, int& resumes) {
  const TempFolder folder;
  const RunRecipe recipe = recipe_of(data, variant, steps);
  const std::string whole = folder.path + "/whole";
  std::vector<int64_t> at;
  Watch watch;
  watch.saved = [&](int64_t step) {
    const std::string copy = folder.path + "/" + std::to_string(step);
    if (!cuts(step) || fs::exists(copy)) return;
    fs::copy(whole, copy, fs::copy_options::recursive);
    // A process that is killed later leaves lines of later steps.
    std::ofstream(copy + "/metrics.jsonl", std::ios::app) << "of a step that is done again\n";
    at.push_back(step);
  };
  const Left expected = trained(recipe, whole, variant.moved, watch);
  CHECK(static_cast<int64_t>(expected.said.size()) == steps);
  if (variant.learns()) CHECK(has_learned(expected.learned));
  REQUIRE(watch.records > 0);
  REQUIRE(watch.with_curves == (variant.moved ? 0 : watch.records));
  std::vector<std::string> wrong;
  for (const int64_t step : at) {
    Watch resumed;
    const std::string out = folder.path + "/" + std::to_string(step);
    const Left left = trained(recipe, out, variant.moved, resumed);
    ++resumes;
    const std::string differs = expected.differs(left, step);
    if (!differs.empty()) wrong.push_back(fmt::format("{}:{}", step, differs));
  }
  return wrong;
}

void check_cuts(const std::string& data, const Variant& variant, int64_t steps,
                const std::function<bool(int64_t)>& cuts, int& resumes, int& wrong) {
  CAPTURE(data);
  CAPTURE(std::string(variant.name));
  const std::vector<std::string> found = differences(data, variant, steps, cuts, resumes);
  wrong += static_cast<int>(found.size());
  INFO("steps after which a cut makes a difference: " << fmt::format("{}", fmt::join(found, "; ")));
  CHECK(found.empty());
}

}  // namespace

// Each variant once, with one kind of data after the other: cut before and after a batch of another
// shape, and in a later epoch.
TEST_CASE("runs that are cut go on to the same bits, also where batches change in shape") {
  int resumes = 0, wrong = 0;
  const std::vector<Variant> all = variants();
  const auto thrice = [](int64_t step) { return step == 4 || step == 6 || step == 11; };
  for (size_t i = 0; i < all.size(); ++i)
    check_cuts(kData[i % kData.size()], all[i], 12, thrice, resumes, wrong);
  for (const char* data : {"images", "mixed", "sentences", "node"})  // what differed most often
    check_cuts(
        data, all[5], 12, [](int64_t step) { return step % 5 == 1; }, resumes, wrong);
  for (const char* data : {"images", "mixed", "sentences"})
    check_cuts(data, by_sample(), 12, thrice, resumes, wrong);
  for (const char* data : {"images", "sentences"})
    check_cuts(data, recomputed(), 12, thrice, resumes, wrong);
  CHECK(resumes >= 3 * static_cast<int>(all.size()));
  CHECK(wrong == 0);
}

TEST_CASE("runs in bf16 that are cut go on to the same bits") {
  int resumes = 0, wrong = 0;
  const std::vector<Variant> all = in_bf16();
  const std::vector<std::string> data = {"images", "sentences", "neighbours"};
  for (size_t i = 0; i < all.size(); ++i)
    check_cuts(
        data[i % data.size()], all[i], 8, [](int64_t step) { return step == 4 || step == 6; },
        resumes, wrong);
  CHECK(resumes == 2 * static_cast<int>(all.size()));
  CHECK(wrong == 0);
}

TEST_CASE("resume campaign: every policy, every kind of batch, cut at each step" *
          doctest::skip()) {
  int resumes = 0, wrong = 0;
  const auto each = [](int64_t) { return true; };
  const char* only = std::getenv("FRUGAL_CAMPAIGN_DATA");  // one kind of data
  for (const std::string& data : kData) {
    if (only != nullptr && data != only) continue;
    for (const Variant& variant : variants())
      check_cuts(data, variant, kCampaignSteps, each, resumes, wrong);
    if (data == "images" || data == "sentences")
      for (const Variant& variant : {by_sample(), recomputed()})
        check_cuts(data, variant, kCampaignSteps, each, resumes, wrong);
    for (const Variant& variant : in_bf16())
      check_cuts(data, variant, kCampaignSteps, each, resumes, wrong);
    MESSAGE(fmt::format("up to {}: {} resumed runs, {} differ", data, resumes, wrong));
  }
  MESSAGE(fmt::format("{} resumed runs, {} differ", resumes, wrong));
}

}  // namespace frugal::train
