#include "apps/cli/event_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/config/config.h"
#include "tests/apps/event_reader.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  return names;
}

// What TensorBoard shows: the values of each name by step, of all files in the order of their
// names. A START forgets what was said of its step and of later ones.
std::map<std::string, std::map<int64_t, std::vector<float>>> shown(const std::string& folder) {
  std::map<std::string, std::map<int64_t, std::vector<float>>> all;
  for (const std::string& file : files_in(folder))
    for (const ReadEvent& event : events_of(read_file(file))) {
      if (event.starts)
        for (auto& [name, values] : all) values.erase(values.lower_bound(event.step), values.end());
      for (const auto& [name, value] : event.scalars) all[name][event.step].push_back(value);
    }
  return all;
}

// The scalars of metrics.jsonl by step.
std::map<int64_t, float> logged(const std::string& folder, const std::string& type,
                                const std::string& key) {
  std::map<int64_t, float> values;
  std::istringstream lines(read_file(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json["type"] == type && json.contains(key))
      values[json["step"].get<int64_t>()] = json[key].get<float>();
  }
  return values;
}

void check_same(const std::string& run) {
  auto all = shown(run + "/tensorboard");
  const auto check = [&](const std::string& name, const std::string& type, const std::string& key) {
    CAPTURE(name);
    std::map<int64_t, float> once;
    for (const auto& [step, values] : all[name]) {
      REQUIRE_MESSAGE(values.size() == 1, "step ", step);
      once[step] = values[0];
    }
    CHECK_FALSE(once.empty());
    CHECK(once == logged(run, type, key));
  };
  check("loss/train", "step", "loss");
  check("accuracy/train", "step", "accuracy");
  check("lr", "step", "lr");
  check("grad_norm", "step", "grad_norm");
  check("loss/test", "epoch", "test_loss");
  check("accuracy/test", "epoch", "test_accuracy");
  for (const char* name : {"memory/peak", "memory/activations", "bits/mean", "grad_norm/fc1"}) {
    CAPTURE(name);
    CHECK_FALSE(all[name].empty());
    for (const auto& [step, values] : all[name]) CHECK(values.size() == 1);
  }
}

const char* const kSets =
    " --set train.tensorboard=true --set train.grad_norms=5 --set train.checkpoint_interval=7";

}  // namespace

TEST_CASE("event files: the checksum is CRC-32C") {
  CHECK(crc32c("123456789") == 0xE3069283U);  // the polynomial's published check value
}

TEST_CASE("event files: what was added comes back, and a new file begins with START") {
  if (!can_write_events()) return;
  const TempFolder folder;
  const double huge = 3e38, none = std::nan("");
  {
    EventFile first(folder / "a/b", 0);
    first.add(3, {{"loss/train", 0.5}, {"lr", 1e-9}});
    first.add(int64_t{1} << 40, {{"x", huge}, {"y", none}});
    first.add(4, {});
  }
  EventFile second(folder / "a/b", 17);
  second.add(18, {{"lr", 2}});
  const auto files = files_in(folder / "a/b");
  REQUIRE(files.size() == 2);
  CHECK(files[1] == second.path());
  CHECK(fs::path(files[0]).filename().string().starts_with("events.out.tfevents."));
  const auto events = events_of(read_file(files[0])), later = events_of(read_file(files[1]));
  REQUIRE(events.size() == 4);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].wall_time > 1.6e9);
  CHECK_FALSE(events[1].starts);
  CHECK(events[1].step == 3);
  CHECK(events[1].scalars == decltype(events[1].scalars){{"loss/train", 0.5f}, {"lr", 1e-9f}});
  CHECK(events[2].step == int64_t{1} << 40);
  CHECK(events[2].scalars[0].second == static_cast<float>(huge));
  CHECK(std::isnan(events[2].scalars[1].second));
  REQUIRE(later.size() == 3);
  CHECK(later[1].starts);
  CHECK(later[1].step == 18);
  std::string damaged = read_file(files[0]);
  damaged[damaged.size() / 2] ^= 1;
  CHECK_THROWS(events_of(damaged));
  write_file(folder / "file", "");
  CHECK_THROWS_AS(EventFile(folder / "file", 0), Error);
}

TEST_CASE("train.tensorboard: the values of metrics.jsonl, also after SIGKILL") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string run = "train " + folder / "c.json" + kSets;
  if (!can_write_events()) {
    const Ran ran = frugal(run + " --out " + folder / "none");
    CHECK(ran.status == 2);
    CHECK(ran.err.find("train.tensorboard") != std::string::npos);
    return;
  }
  const Ran whole = frugal(run + " --out " + folder / "whole");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  CHECK(files_in(folder / "whole/tensorboard").size() == 1);
  check_same(folder / "whole");
  const std::string out = folder / "cut";
  REQUIRE(cut_run(run, out, "checkpoint/state.safetensors", 0, SIGKILL) == 128 + SIGKILL);
  const Ran resumed = frugal(run + " --resume --out " + out);
  REQUIRE_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(files_in(out + "/tensorboard").size() == 2);
  check_same(out);
  CHECK(read_file(out + "/metrics.jsonl") == read_file(folder / "whole/metrics.jsonl"));
  CHECK_FALSE(fs::exists(folder / "plain"));
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / "plain").status == 0);
  CHECK_FALSE(fs::exists(folder / "plain/tensorboard"));
}

TEST_CASE("train.tensorboard needs a folder") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const Ran ran = frugal("train " + folder / "c.json" + " --set train.tensorboard=true");
  CHECK(ran.status == 2);
  CHECK(ran.err.find("train.tensorboard") != std::string::npos);
  CHECK(frugal("train " + folder / "c.json" + " --set train.tensorboard=3").status == 2);
}

}  // namespace frugal::apps
