// `frugal plan` counts the phase of a run that takes most, keeps to a budget that the configuration
// has, leaves out rows that save nothing, and needs no file.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/json.h"
#include "core/error.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

Json phases_config() {
  return Json::parse(R"({"model": {"name": "resnet20"},
      "data": {"name": "random", "shape": [16, 16, 3], "batch_size": 16, "train_samples": 32,
               "test_samples": 16, "workers": 0},
      "train": {"epochs": 4}, "threads": 1})");
}

Json plan_of(const TempFolder& folder, const Json& config, const std::string& more = "") {
  write_file(folder / "c.json", config.dump());
  const Ran ran = frugal("plan --json --memory 1GiB " + (folder / "c.json") + more);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

const Json& row_called(const Json& plan, const std::string& name) {
  for (const Json& row : plan.at("levels"))
    if (row.at("name") == name) return row;
  throw Error("no row " + name);
}
int64_t peak_called(const Json& plan, const std::string& name) {
  return row_called(plan, name).at("memory").at("peak_bytes").get<int64_t>();
}

}  // namespace

TEST_CASE("with train.freeze_epochs the plan is that of the phase in which all is trained") {
  const TempFolder folder;
  const Json free = phases_config();
  Json frozen = free;
  frozen["train"]["freeze"] = {"all but head"};
  Json thawed = frozen;
  thawed["train"]["freeze_epochs"] = 2;
  const Json plan = plan_of(folder, thawed), whole = plan_of(folder, free);
  CHECK(plan.at("levels") == whole.at("levels"));
  CHECK(plan.at("from_epoch") == 3);
  CHECK(plan.at("recommended").at("presets") == whole.at("recommended").at("presets"));
  CHECK(2 * peak_called(plan, "this config") >
        3 * peak_called(plan_of(folder, frozen), "this config"));
  // A run that ends before that never has this phase.
  thawed["train"]["epochs"] = 2;
  CHECK(plan_of(folder, thawed).at("levels") == plan_of(folder, frozen).at("levels"));
  thawed["train"]["epochs"] = 4;
  // The run itself takes what the plan says.
  write_file(folder / "c.json", thawed.dump());
  const Ran ran = frugal("train --json --quiet " + (folder / "c.json"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const auto took = Json::parse(ran.out).at("memory").at("peak_bytes").get<double>();
  CHECK(std::abs(static_cast<double>(peak_called(plan, "this config")) - took) < 0.01 * took);
  const Ran text = frugal("plan --memory 1GiB " + (folder / "c.json"));
  CHECK(has(text.out, "steps are those from epoch 3 on"));
}

TEST_CASE("a plan of bf16 that is computed in f32 counts the copies in f32") {
  const TempFolder folder;
  Json config = phases_config();
  config["precision"] = "bf16_in_f32";
  config["train"] = {{"epochs", 1}};
  const int64_t planned = peak_called(plan_of(folder, config), "this config");
  const Ran ran = frugal("train --json --quiet " + (folder / "c.json"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(Json::parse(ran.out).at("memory").at("peak_bytes") == planned);
}

TEST_CASE("a plan does not recommend against the budget of the configuration") {
  const TempFolder folder;
  Json config = phases_config();
  config["compression"]["memory_budget"] = "8 MiB";
  const Json fits = plan_of(folder, config).at("recommended");
  CHECK(fits.at("fits") == true);
  CHECK(fits.at("preset").is_null());
  CHECK(fits.at("set") == "");
  CHECK(fits.at("presets").size() == 1);
  CHECK(has(fits.at("reason"), "compression.memory_budget as it is"));
  const Ran less = frugal("plan --memory 6MiB " + (folder / "c.json"));
  REQUIRE_MESSAGE(less.status == 0, less.err);
  CHECK(has(less.out, "recommended: --set compression.memory_budget="));
  const Ran none = frugal("plan --memory 1MiB " + (folder / "c.json"));
  REQUIRE_MESSAGE(none.status == 0, none.err);
  CHECK(has(none.out, "recommended: nothing fits"));
  CHECK(has(none.out, "there is no plan for a budget"));
}

TEST_CASE("recomputed and offload rows are shown where they lower the peak, and named elsewhere") {
  const TempFolder folder;
  write_file(folder / "c.json", phases_config().dump());
  const Json plan = plan_of(folder, phases_config());
  int idle = 0;
  for (const Json& row : plan.at("levels")) {
    if (!row.contains("lowers_peak")) continue;
    const std::string name = row.at("name"), without = name.substr(0, name.find(','));
    CAPTURE(name);
    CHECK((peak_called(plan, name) < peak_called(plan, without)) ==
          row.at("lowers_peak").get<bool>());
    const Ran text = frugal("plan --memory 1GiB " + (folder / "c.json"));
    if (row.at("lowers_peak")) {
      CHECK(has(text.out, "\n" + name + " "));
    } else {
      ++idle;
      CHECK(lacks(text.out, "\n" + name + " "));
      CHECK(has(text.out, "left out, as these do not lower the peak:"));
    }
  }
  // Inputs of blocks are kept whole, so codes of 4 bits take less without recomputation.
  CHECK(row_called(plan, "4 bits, recomputed").at("lowers_peak") == false);
  CHECK(idle > 0);
  // The window of offload follows from what there is to move.
  CHECK(has(row_called(plan, "whole, offload").at("set"),
            "compression.advanced.offload_window=1MiB"));
  CHECK(row_called(plan, "whole, offload").at("lowers_peak") == true);
}

TEST_CASE("a plan of a network needs no file") {
  const TempFolder folder;
  Json config = phases_config();
  config["data"] = {{"name", "random"}, {"shape", {16, 16, 3}}, {"batch_size", 8}};
  config.erase("train");
  config.erase("threads");
  const Ran ran = frugal("plan --model resnet20 --shape 16,16,3 --batch 8 --memory 1GiB --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(Json::parse(ran.out).at("levels") == plan_of(folder, config).at("levels"));
  CHECK(frugal("plan --model gpt2 --shape 16 --batch 2 --memory 1GiB --set model.layers=1 --set "
               "model.width=32 --set model.heads=2 --set model.vocab_size=50")
            .status == 0);
  CHECK(frugal("plan --model gcn --shape 100,8 --memory 1GiB").status == 0);
  struct Wrong {
    const char *arguments, *said;
  };
  for (const auto& [arguments, said] :
       {Wrong{"plan", "expected a CONFIG file, or --model"},
        Wrong{"plan --model resnet20 --shape 16,16", "--shape: expected height"},
        Wrong{"plan --model renset20", "expected a known model"},
        Wrong{"plan --model retinanet_resnet50_fpn", "depend on the boxes"},
        Wrong{"plan --model gcn --batch 8", "takes a whole graph"},
        Wrong{"plan --shape 16,16,3 c.json", "--model"}}) {
    const auto& this_arguments = arguments;
    CAPTURE(this_arguments);
    const Ran wrong = frugal(arguments);
    CHECK(wrong.status == 2);
    CHECK(has(wrong.err, said));
  }
}

}  // namespace frugal::apps
