// `frugal plan --ranks`: what one of several processes takes that train together.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/config/config.h"
#include "apps/config/resolve.h"
#include "tests/apps/mpirun.h"

namespace frugal::apps {
namespace {

constexpr const char* kLittleResNet = R"({"model": {"name": "resnet20"},
    "optim": {"name": "adamw", "lr": 0.001},
    "data": {"name": "random", "shape": [32, 32, 3], "batch_size": 32, "train_samples": 64,
             "workers": 0}})";

Json rows_of(const TempFolder& folder, const std::string& arguments) {
  const Ran ran = frugal("plan --json " + folder / "c.json" + " " + arguments);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out).at("levels");
}

int64_t optimizer_bytes(const Json& row) {
  return row.at("memory").at("at_peak").at("optimizer").get<int64_t>();
}

Config ranked_config(const std::vector<std::string>& sets) {
  Json document = Json::parse(kLittleResNet);
  apply_sets(document, sets);
  return parse_config(document);
}

}  // namespace

TEST_CASE("a plan of one of four ranks: a quarter of the state, and of the batch") {
  const TempFolder folder;
  write_file(folder / "c.json", kLittleResNet);
  const Json alone = rows_of(folder, ""), quarter = rows_of(folder, "--set data.batch_size=8");
  const Json whole = rows_of(folder, "--ranks 4"),
             shared = rows_of(folder, "--ranks 4 --set distributed.sharding=optimizer");
  REQUIRE(shared.size() == alone.size());
  for (size_t i = 0; i < shared.size(); ++i) {
    CAPTURE(shared[i].at("name"));
    const int64_t all = optimizer_bytes(whole[i]);
    CHECK(all == optimizer_bytes(alone[i]));
    CHECK(std::abs(4.0 * static_cast<double>(optimizer_bytes(shared[i])) / double(all) - 1) < 0.02);
    for (const char* key : {"activation_bytes", "packed_bytes"}) {
      CHECK(shared[i].at("memory").at(key) == quarter[i].at("memory").at(key));
      CHECK(whole[i].at("memory").at(key) == quarter[i].at("memory").at(key));
    }
    CHECK(whole[i].at("memory").at("activation_bytes") <
          alone[i].at("memory").at("activation_bytes"));
  }
  const Ran text = frugal("plan --ranks 4 " + folder / "c.json");
  CHECK(text.out.starts_with("resnet20, batch 8 of [32, 32, 3], cpu f32, one of 4 ranks\n"));
  CHECK(longest_line(text.out) <= 80);
}

TEST_CASE("a plan of one of two ranks is within 1 % of real ranks") {
  if (const std::string why = why_no_mpirun(); !why.empty()) {
    MESSAGE("left out: ", why);
    return;
  }
  const TempFolder folder;
  write_file(folder / "c.json", kLittleResNet);
  for (const auto& [sets, sharding] : std::initializer_list<std::pair<const char*, const char*>>{
           {"compression.bits=4", "optimizer"},
           {"compression.bits=0", "none"},
           {"train.checkpointing=true", "optimizer"},
           {"distributed.bucket_bytes=100000", "none"}}) {
    const auto& this_sets = sets;
    CAPTURE(this_sets);
    const std::string arguments = fmt::format(
        "{} --json --set data.test_samples=2 --set train.steps=2 --set threads=1 "
        "--set {} --set distributed.sharding={}",
        folder / "c.json", sets, sharding);
    const Ran plan = frugal("plan --ranks 2 " + arguments);
    REQUIRE_MESSAGE(plan.status == 0, plan.err);
    const Ran real =
        shell(std::string(kMpiEnvironment) + "mpirun -np 2 FRUGAL train --quiet " + arguments);
    REQUIRE_MESSAGE(real.status == 0, real.err);
    const Json planned = Json::parse(plan.out).at("levels").at(0).at("memory");
    const Json taken = Json::parse(real.out).at("memory");
    CHECK(planned.at("activation_bytes") == taken.at("activation_bytes"));
    CHECK(planned.at("peak_bytes").get<double>() ==
          doctest::Approx(taken.at("peak_bytes").get<double>()).epsilon(0.01));
  }
}

TEST_CASE("the largest batch of several ranks is that of all, and shared state leaves more room") {
  const TempFolder folder;
  write_file(folder / "c.json", kLittleResNet);
  const auto largest = [&](const std::string& arguments) {
    const Ran ran = frugal("plan --json --memory 16MiB --max batch --only " + folder / "c.json" +
                           " " + arguments);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out).at("levels").at(0).at("largest").get<int64_t>();
  };
  const int64_t alone = largest(""), four = largest("--ranks 4"),
                shared = largest("--ranks 4 --set distributed.sharding=optimizer");
  CHECK(four % 4 == 0);
  CHECK(four > 2 * alone);
  CHECK(shared > four);
}

// Rank 0 begins before it looks for the others, so no mpirun is needed.
TEST_CASE("what several ranks cannot do is an error of the configuration") {
  const TempFolder folder;
  write_file(folder / "c.json", kLittleResNet);
  const std::string gradients =
      " --set compression.policy=actnn --set compression.level=L3"
      " --set compression.actnn.use_gradient=true";
  const auto check = [&](const std::string& key, const std::string& expected,
                         const std::string& sets) {
    CAPTURE(key);
    CHECK(frugal("plan " + folder / "c.json" + sets).status == 0);
    for (const char* command : {"FRUGAL plan --ranks 2 ", "PMI_SIZE=2 PMI_RANK=0 FRUGAL train "}) {
      const Ran ran = shell(command + (folder / "c.json") + sets);
      CHECK_MESSAGE(ran.status == 2, ran.err);
      CHECK_MESSAGE(ran.err.find("error: " + key + ": expected " + expected) != std::string::npos,
                    ran.err);
    }
  };
  check("compression.actnn.use_gradient", "false with 2 ranks", gradients);
  check("distributed.compress_gradients", "0 with optim.in_backward",
        " --set optim.in_backward=true --set distributed.compress_gradients=8");
  Config config = ranked_config({});
  config.run.cuda_graphs = true;
  CHECK_NOTHROW(resolve(config));
  config = ranked_config({});
  config.run.cuda_graphs = true;
  config.distributed.ranks = 2;
  CHECK_THROWS_WITH_AS(resolve(config), doctest::Contains("cuda_graphs: expected false with 2"),
                       ConfigError);
}

}  // namespace frugal::apps
