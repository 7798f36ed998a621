// States of checkpoints that no run has: they are refused, each with a message that says what is
// wrong, and nothing is changed.
#include "train/run/checkpoint.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/formats/safetensors.h"
#include "tests/train/temp_folder.h"
#include "tests/train/tiny_run.h"

namespace frugal::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;  // the written form of a state

// Six steps, and a checkpoint after every second one.
RunRecipe six_steps(const compress::Choice& choice, int64_t track, double guard = 0) {
  const std::vector<int64_t> hidden = {64, 32};
  RunRecipe recipe = tiny_run("mlp", {{"hidden", hidden}, {"dropout", 0.2}},
                              TinyImages{.side = 6, .channels = 1, .batch = 32, .samples = 1280});
  recipe.open_test = [](int64_t) {
    return std::make_unique<data::Loader>(
        noisy_images({.side = 6, .channels = 1, .batch = 32, .samples = 64}, 1),
        data::LoaderOptions{.batch_size = 64, .shuffle = false, .threads = 0});
  };
  TrainerOptions& options = recipe.options;
  options.compression.choice = choice;
  options.compression.choice.keep().min_elements = 96;
  if (track > 0)
    options.compression.tracking = TrackingOptions{.interval = track, .batch = 32, .guard = guard};
  options.steps = 6;
  options.log_interval = 1;
  options.checkpoint_interval = 2;
  return recipe;
}

std::string content(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Writes the state of a run again, with another position.
void rewrite(const std::string& state, const std::function<void(Json&)>& change) {
  const auto file = data::SafetensorsFile::open(state);
  data::Metadata metadata = file.metadata();
  Json run = Json::parse(metadata.at("run"));
  change(run);
  metadata["run"] = run.dump();
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : file.names()) tensors.emplace_back(name, file.read(name));
  data::write_safetensors(state, tensors, metadata);
}

}  // namespace

TEST_CASE("a state with values that no run has is refused, and says which") {
  const int64_t large = int64_t{1} << 62;
  struct Change {
    std::string what;  // what the message says
    std::function<void(Json&)> change;
  };
  const auto set = [](const char* path, const Json& value) {
    return [=](Json& run) { run[Json::json_pointer(path)] = value; };
  };
  const auto refuse = [&](const compress::Choice& choice, int64_t track,
                          const std::vector<Change>& changes, double guard = 0) {
    const TempFolder folder;
    const std::string whole = folder.path + "/run", cut = folder.path + "/cut";
    // The bytes of the last weights of a run in this folder.
    const auto train = [&](const std::string& out, const std::function<void(int64_t)>& saved) {
      Run run(six_steps(choice, track, guard));
      run.trainer([&](TrainerOptions& options) {
        options.folder = std::make_shared<RunFolder>(out, true);
        options.on_checkpoint = saved;
      });
      REQUIRE(run.train());
      return content(out + "/checkpoint/last.safetensors");
    };
    const std::string weights = train(whole, [&](int64_t) {
      if (!fs::exists(cut)) fs::copy(whole, cut, fs::copy_options::recursive);
    });
    const std::string state = cut + "/checkpoint/state.safetensors";
    const std::string good = content(state);
    for (const Change& each : changes) {
      CAPTURE(each.what);
      rewrite(state, each.change);
      std::string said;
      try {
        Run run(six_steps(choice, track, guard));
        run.trainer([&](TrainerOptions& options) {
          options.folder = std::make_shared<RunFolder>(cut, true);
        });
      } catch (const std::exception& e) {
        said = e.what();
      }
      CAPTURE(said);
      CHECK(said.find("[checkpoint]") == 0);
      CHECK(said.find("json.exception") == std::string::npos);
      CHECK(said.find(each.what) != std::string::npos);
      std::ofstream(state, std::ios::binary) << good;
    }
    CHECK((train(cut, {}) == weights));  // what was refused changed nothing
  };

  const auto evaluation = [](int64_t step) {
    return Json{{"epoch", 1},          {"step", step},     {"train_loss", 1.0},
                {"train_accuracy", 0}, {"test_loss", 1.0}, {"test_accuracy", 0},
                {"test_samples", 64}};
  };
  const auto without = [](const char* key) { return [=](Json& run) { run.erase(key); }; };
  refuse(
      compress::bits(4), 0,
      {{"version 4, got one of version 1", without("version")},
       {"version of frugal that wrote it", set("/version", 5)},
       {"version of frugal that wrote it", set("/version", 3)},
       {"\"step\"", set("/step", -1)},
       {"\"step\"", set("/step", large)},
       {"\"step\"", set("/step", 1.5)},
       {"\"step\"", set("/step", 1e300)},
       {"step of at most", set("/step", 7)},
       {"step and the batches", set("/step", 3)},
       {"step and the batches", set("/batches", 1)},
       {"\"batches\"", set("/batches", uint64_t{1} << 63)},
       {"\"epoch\"", set("/loader/epoch", std::numeric_limits<int64_t>::min())},
       {"epoch of at most", set("/loader/epoch", 1000)},
       {"batch in [0, ", set("/loader/next_batch", 1000)},
       {"\"next_batch\"", set("/loader/next_batch", -1)},
       {"a stream of the seed", set("/rng/seed", 5)},
       {"a stream of the seed", set("/rng/offset", 0)},
       {"\"offset\"", set("/rng/offset", -1)},
       {"\"loss\"", set("/epoch/loss", nullptr)},
       {"\"correct\"", set("/epoch/correct", large)},
       {"\"samples\"", set("/interval/samples", -1)},
       {"\"peak\"", set("/memory/peak", -1)},
       {"\"at_peak\"", set("/memory/at_peak", {1, 2})},
       {"\"kept\"", set("/kept", 3)},
       {"in \"kept\"", set("/kept", {nullptr})},
       {"weights of step 2 at the most, got of step 9", set("/kept", Json::array({evaluation(9)}))},
       {"an evaluation of step 2 at the most, got one of step 9", set("/last", evaluation(9))},
       {"an evaluation of step 2 at the most, got one of step 9", set("/best", evaluation(9))},
       {"at_peak\", got [\"\\xe2\\x80\\xae\"]", set("/memory/at_peak", {"\xe2\x80\xae"})},
       {"\"ended\", or nothing before that, got \"" + std::string(79, 'a') + "...",
        set("/ended", std::string(9000, 'a'))},
       {"\"waited\"", set("/early_stop/waited", -1)},
       {"\"ended\"", set("/ended", "rain")},
       {"\"ended\"", set("/finished", true)},
       {"\"metrics_bytes\"", set("/metrics_bytes", -1)},
       {"\"written\"", set("/offload/written", -1)},
       {"no numbers of a policy that learns",
        set("/learned", {{"policy", "acgc"}, {"version", 1}, {"lists", Json::object()}})},
       {"\"version\"", set("/learned", {{"policy", "acgc"}, {"version", 0}, {"lists", {}}})},
       {"no numbers of a tracker", set("/tracking", {1.0})},
       {"no numbers of a policy that learns",
        set("/adaptive", {{"average", 4}, {"items", Json::array()}, {"decisions", Json::array()}})},
       {"finished", without("finished")}});
  refuse({.policy = compress::AdaptiveOptions{}}, 1,
         {{"numbers of a policy that learns, got none", set("/adaptive", nullptr)},
          {"\"sensitivity\"", set("/adaptive/items/0/sensitivity", -1)},
          {"\"bits\"", set("/adaptive/items/0/bits", 33)},
          {"1 to 16 bits", set("/adaptive/items/0/bits", 17)},
          {"shape, elements", set("/adaptive/items/0/elements", 1)},
          {"\"shape\"", set("/adaptive/items/0/shape", {-4, 4})},
          {"\"what\"", set("/adaptive/decisions/0/what", 3)},
          {"bits on average", set("/adaptive/average", 99)},
          {"numbers of a tracker", set("/tracking", Json::array())},
          {"expected more than", set("/tracking", {1.0})},
          {"bits of the last measurement", set("/tracking/1", -1)}});
  refuse(compress::bits(4), 1,
         {{"[guard] expected 1 to 16 bits, got 17", set("/tracking/0", 17)},
          {"[guard] expected bits that were too low and measurements to wait, got -1",
           set("/tracking/3", -1)}},
         0.1);
  refuse(compress::paper("actnn", "L3"), 0,
         {{"numbers of a policy that learns, got none", set("/learned", nullptr)},
          {"[actnn] expected what version 3 of this policy learned, got what version 2",
           set("/learned/version", 2)},
          {"[actnn]", set("/learned/policy", "acgc")},
          {"[actnn]", set("/learned/lists/average", {77})},
          {"\"number\"", set("/learned/lists/average", {nullptr})}});
  refuse(compress::budget("1/6 activations"), 0,
         {{"state of a planner, got none", set("/planner", nullptr)},
          {"\"margin\"", set("/planner/margin", -1)},
          {"[budget] expected what one policy inside it learned", set("/adaptive", nullptr)},
          {"[budget] expected a plan with a width for tensor 99, got none",
           set("/planner/items/0/seq", 99)},
          {"[budget]", set("/learned/lists/mode", {7.0})},
          {"[budget]", set("/learned/lists/other", {7.0})}});
}

TEST_CASE("a metric that is not finite, which JSON has not, comes back") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double metric : {kInfinity, -kInfinity, std::nan("")}) {
    CAPTURE(metric);
    RunState state;
    state.step = 4;
    EpochResult result;
    result.epoch = 1;
    result.step = 4;
    result.test = {800, 0.5, 10, metric};
    result.validation = result.test;
    state.last = state.best = result;
    state.kept = {result};
    CompressionState none;
    const std::string text = text_of(state, none);
    // Runs of all versions write an infinite perplexity so.
    CHECK((text.find("\"test_metric\":null") != std::string::npos) == (metric == kInfinity));
    CHECK(text_of(run_state_from(text, none), none) == text);
    const RunState back = run_state_from(text, none);
    for (const EpochResult& each : {*back.last, *back.best, back.kept.at(0)})
      for (const double found : {each.test.metric.value(), each.validation->metric.value()})
        CHECK((std::isnan(metric) ? std::isnan(found) : found == metric));
  }
}

}  // namespace frugal::train
