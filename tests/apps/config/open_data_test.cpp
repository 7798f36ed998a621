// What is read of a data set belongs to the configuration that opened it and to its copies.
#include "apps/config/data/open_data.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "apps/config/data/make_data.h"
#include "apps/config/planned_run.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "core/memory.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRandomGraph = R"({
  "model": {"name": "gcn", "width": 16, "layers": 2},
  "data": {"name": "random_graph", "nodes": 2000, "edges": 6000, "features": 64, "classes": 4}})";

// Data in files, and a network for them.
struct OwnData {
  const char* name;
  std::vector<std::pair<std::string, std::string>> files;
  Json data, model;
};

std::string rows(int count, const char* yes) {
  std::string text = "size,answer\n";
  for (int i = 0; i < count; ++i) text += fmt::format("{}.5,{}\n", i, i % 2 == 0 ? yes : "no");
  return text;
}

std::vector<OwnData> own_data() {
  std::string text, lines;
  for (int i = 0; i < 40; ++i) {
    text += "a good movie. ";
    lines += fmt::format("{{\"text\": \"a {} movie\", \"label\": \"{}\"}}\n",
                         i % 2 == 0 ? "good" : "bad", i % 2 == 0 ? "yes" : "no");
  }
  const std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\na\nmovie\n";
  const Json small = {{"layers", 1}, {"width", 16}, {"heads", 2}, {"max_positions", 16}};
  Json decoder = small, encoder = small;
  decoder["name"] = "gpt2";
  encoder["name"] = "bert_tiny";
  return {
      {"a table",
       {{"rows.csv", rows(40, "yes")}},
       {{"name", "csv"}, {"target", "answer"}},
       {{"name", "mlp"}, {"hidden", {8}}}},
      {"a text", {{"text.txt", text}}, {{"name", "text"}, {"max_length", 8}}, decoder},
      {"lines with labels",
       {{"lines.jsonl", lines}, {"vocab.txt", words}},
       {{"name", "jsonl"}, {"max_length", 8}},
       encoder},
  };
}

Config config_of(const OwnData& own, const TempFolder& folder) {
  Json data = own.data;
  data["dir"] = folder / own.files.front().first;
  data["batch_size"] = 8;
  if (own.files.size() > 1) data["vocabulary"] = folder / own.files[1].first;
  Config config = parse_config({{"model", own.model}, {"data", data}, {"threads", 1}});
  resolve(config);
  return config;
}

// All values of a split's batches.
std::vector<double> values_of(const Config& config, Split split) {
  std::vector<double> values;
  const auto batches = make_batches(config, split);
  REQUIRE(batches != nullptr);
  while (const auto batch = batches->next())
    for (const Tensor& tensor : {batch->input, batch->target})
      for (int64_t i = 0; i < tensor.numel(); ++i)
        values.push_back(tensor.dtype() == DType::f32
                             ? static_cast<double>(tensor.data<float>()[i])
                             : static_cast<double>(tensor.data<int64_t>()[i]));
  return values;
}

}  // namespace

TEST_CASE("a run and its plan open a file once") {
  for (const OwnData& own : own_data()) {
    CAPTURE(own.name);
    const TempFolder folder;
    for (const auto& [name, content] : own.files) write_file(folder / name, content);
    Config before = config_of(own, folder);
    const std::vector<double> train = values_of(before, Split::train),
                              test = values_of(before, Split::test);
    const auto files = describing_files(before);

    Config config = config_of(own, folder);
    for (const auto& [name, content] : own.files) fs::remove(folder / name);
    CHECK(values_of(config, Split::train) == train);
    CHECK(values_of(config, Split::test) == test);
    const auto described = describing_files(config);
    for (const char* name : {"classes.json", "columns.json"}) {
      REQUIRE(described.count(name) == files.count(name));
      if (files.count(name) > 0) CHECK(described.at(name) == files.at(name));
    }
    // A share of a rank, a plan, and a run that is resolved again.
    config.distributed.ranks = 2;
    const Config share = share_of_rank(config);
    CHECK(batch_spec(share).classes == batch_spec(config).classes);
    CHECK(open_data(share) == open_data(config));
    CHECK_NOTHROW(train::WaySteps(planned_run(share)));
    Config again = config;
    CHECK_NOTHROW(resolve(again));
    CHECK(open_data(again) == open_data(config));
    const auto batches = make_batches(config, Split::test, 3);
    CHECK(batches->next()->input.size(0) == 3);
  }
}

TEST_CASE("two configurations do not share what they read") {
  const TempFolder folder;
  const OwnData own = own_data().front();
  const std::string path = folder / own.files.front().first;
  write_file(path, rows(40, "yes"));
  const auto time = fs::last_write_time(path);
  const Config before = config_of(own, folder);
  const auto names = [](const Config& config) {
    return Json::parse(describing_files(config).at("classes.json"));
  };
  CHECK(names(before) == Json({"no", "yes"}));
  write_file(path, rows(40, "may"));  // as many bytes
  fs::last_write_time(path, time);
  const Config after = config_of(own, folder);
  CHECK(names(after) == Json({"may", "no"}));
  CHECK(names(before) == Json({"no", "yes"}));
  CHECK(open_data(before) != open_data(after));
}

TEST_CASE("a copy whose data are others opens these, and closes what was open") {
  const TempFolder folder;
  const OwnData own = own_data().front();
  write_file(folder / own.files.front().first, rows(40, "yes"));
  write_file(folder / "other.csv", rows(60, "may"));
  const Config config = config_of(own, folder);
  const std::weak_ptr<OpenData> opened = open_data(config);
  Config other = config;
  other.data.dir = folder / "other.csv";
  CHECK(describing_files(other).at("classes.json").find("may") != std::string::npos);
  CHECK(opened.expired());
  CHECK(describing_files(config).at("classes.json").find("yes") != std::string::npos);
  for (const auto& change : std::vector<std::function<void(Config&)>>{
           [](Config& c) { c.run.seed = 7; }, [](Config& c) { c.data.target = "size"; },
           [](Config& c) { c.data.known = std::make_shared<RunEncoding>(); }}) {
    const std::shared_ptr<OpenData> own_one = open_data(config);
    Config changed = config;
    change(changed);
    CHECK(open_data(changed) != own_one);
  }
}

TEST_CASE("what was read is freed with the last copy of the configuration") {
  const int64_t before = allocator(kCpu).report().live_total;
  std::weak_ptr<OpenData> opened;
  {
    Config config = parse_config(Json::parse(kRandomGraph));
    resolve(config);
    opened = open_data(config);
    const int64_t features = int64_t{2000} * 64 * 4;
    CHECK(allocator(kCpu).report().live_total - before > features);
    const Config copy = config;
    config = {};
    CHECK(!opened.expired());
    CHECK(open_data(copy) == opened.lock());
    CHECK(allocator(kCpu).report().live_total - before < 3 * features / 2);
  }
  CHECK(opened.expired());
  CHECK(allocator(kCpu).report().live_total == before);
}

}  // namespace frugal::apps
