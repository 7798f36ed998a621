// What a run knows of its data belongs to its folder: other data are encoded as the run encoded its
// own, and a digest tells that they are others.
#include <doctest/doctest.h>

#include <set>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "data/image/picture.h"
#include "tests/apps/run.h"
#include "tests/data/formats/arrays.h"
#include "tests/data/image/picture_files.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

struct Study {
  TempFolder folder;
  std::string config, run = folder / "run", data = folder / "data";
  Study(const Json& model, const Json& of_data) {
    Json all = {{"model", model},
                {"data", of_data},
                {"optim", {{"name", "adamw"}, {"lr", 0.02}}},
                {"schedule", {{"name", "constant"}}},
                {"train", {{"epochs", 2}}},
                {"threads", 1}};
    all["data"]["dir"] = data;
    config = folder / "c.json";
    fs::create_directories(data);
    write_file(config, all.dump());
  }
  Ran train(const std::string& more = "") const {
    return frugal("train " + config + " --quiet --out " + run + more);
  }
  // Loss and accuracy, without the name of the weights.
  Json eval(bool changed, const std::string& more = "") const {
    const Ran ran = frugal("eval " + run + " --json" + more);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    CAPTURE(ran.err);
    CHECK((ran.err.find("the data have changed") != std::string::npos) == changed);
    Json json = Json::parse(ran.out);
    json.erase("weights");
    return json;
  }
  // The evaluation is the same before and after `change`, which changes what is trained on alone.
  // A resumed run says that data have changed, and goes on if it is told to.
  void check(const std::function<void()>& change) const {
    const Ran trained = train();
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    const Json before = eval(false);
    change();
    CHECK(eval(true) == before);
    const Ran refused = train(" --resume --extend 3");
    CHECK(refused.status == 2);
    CHECK(has(refused.err, "--data-changed"));
    CHECK(Json::parse(read_file(run + "/summary.json"))["epochs"] == 2);
    const Ran goes_on = train(" --resume --extend 3 --data-changed");
    REQUIRE_MESSAGE(goes_on.status == 0, goes_on.err);
    // From now on these are the run's data.
    eval(false);
    CHECK(train(" --resume --extend 4").status == 0);
  }
};

const Json kTableMlp = {{"name", "mlp"}, {"hidden", {8}}};

// Rows begin .. end - 1 of y = 3 x + 1 in units of `unit`, with a colour.
std::string rows(int begin, int end, double unit, const std::string& colour = "red") {
  std::string text;
  for (int i = begin; i < end; ++i)
    text += fmt::format("{},{},{}\n", unit * (i % 17), i % 2 == 0 ? colour : "blue",
                        unit * (3 * (i % 17) + 1) + 0.5);
  return text;
}
constexpr const char* kTableHeader = "x,colour,target\n";

TEST_CASE("a table whose other rows changed: columns are standardized as the run did") {
  const Study study(kTableMlp, {{"name", "csv"}, {"batch_size", 16}});
  write_file(study.data + "/train.csv", kTableHeader + rows(0, 60, 1));
  write_file(study.data + "/test.csv", kTableHeader + rows(60, 90, 1));
  study.check(
      [&] { write_file(study.data + "/train.csv", kTableHeader + rows(0, 80, 1000, "amber")); });
}

TEST_CASE("a table of one file whose training rows changed: the run's parts and columns stay") {
  const Study study(kTableMlp, {{"name", "csv"}, {"batch_size", 16}, {"split", {0.5, 0.2}}});
  const std::string file = study.data + "/table.csv";
  write_file(file, kTableHeader + rows(0, 60, 1));
  study.check([&] {
    const Json parts = Json::parse(read_file(study.run + "/data.json"))["parts"];
    std::set<int> kept;
    for (const char* part : {"validation", "test"})
      for (const Json& row : parts[part]) kept.insert(row.get<int>());
    REQUIRE(kept.size() == 30);
    std::string text = kTableHeader;
    for (int i = 0; i < 60; ++i) text += rows(i, i + 1, kept.contains(i) ? 1 : 500);
    write_file(file, text + rows(60, 70, 500));  // rows that came later are trained on
  });
}

TEST_CASE("labels of texts have the numbers that the run gave them") {
  const Study study({{"name", "bert_tiny"}, {"layers", 1}},
                    {{"name", "jsonl"}, {"max_length", 8}, {"batch_size", 8}});
  Json config = Json::parse(read_file(study.config));
  const std::string words = study.folder / "words.txt";
  write_file(words, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nday\n");
  config["data"]["vocabulary"] = words;
  write_file(study.config, config.dump());
  const auto lines = [](int count, const char* first) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += Json({{"text", i % 2 == 0 ? "good day" : "bad day"},
                    {"label", i % 2 == 0 ? first : "no"}})
                  .dump() +
              "\n";
    return text;
  };
  write_file(study.data + "/train.jsonl", lines(24, "yes"));
  write_file(study.data + "/test.jsonl", lines(8, "yes"));
  REQUIRE_MESSAGE(study.train().status == 0, study.train().err);
  const Json before = study.eval(false);
  // The file of the vocabulary is not needed any more.
  fs::remove(words);
  write_file(study.data + "/train.jsonl", lines(24, "no"));  // one label is left
  CHECK(study.eval(true) == before);
  write_file(study.data + "/test.jsonl", lines(8, "maybe"));
  const Ran unknown = frugal("eval " + study.run);
  CHECK(unknown.status == 1);
  CHECK(has(unknown.err, "maybe"));
}

TEST_CASE("characters have the numbers that the run gave them, and others are left out") {
  const Study study({{"name", "gpt2"}, {"layers", 1}, {"width", 16}, {"heads", 2}},
                    {{"name", "text"}, {"max_length", 16}, {"batch_size", 4}});
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the quick fox ";
  write_file(study.data + "/train.txt", text);
  write_file(study.data + "/test.txt", text.substr(0, 280));
  study.check([&] {
    std::string other = text;
    other[4] = 'A';  // before all others in the order of characters
    write_file(study.data + "/train.txt", other);
  });
}

TEST_CASE("a text of the same size with another letter is another text") {
  const Study study({{"name", "gpt2"}, {"layers", 1}, {"width", 16}, {"heads", 2}},
                    {{"name", "text"}, {"max_length", 16}, {"batch_size", 4}});
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the quick fox ";
  write_file(study.data + "/all.txt", text);
  REQUIRE(study.train().status == 0);
  const double before = study.eval(false)["loss"];
  text[800] = 'A';
  write_file(study.data + "/all.txt", text);
  CHECK(std::abs(study.eval(true)["loss"].get<double>() - before) < 0.5);
}

TEST_CASE("classes of arrays are those of the run") {
  const Study study(kTableMlp, {{"name", "tensors"}, {"layout", "rows"}, {"batch_size", 8}});
  const auto write = [&](const std::string& name, int64_t classes) {
    Tensor input = Tensor::empty({24, 3}), target = Tensor::empty({24}, DType::i64);
    for (int64_t i = 0; i < 24; ++i) {
      target.mut<int64_t>()[i] = i % classes;
      for (int64_t k = 0; k < 3; ++k)
        input.mut<float>()[3 * i + k] = i % 3 == k ? 1.0f : 0.1f * float(i % 5);
    }
    data::write_safetensors(study.data + "/" + name, {{"input", input}, {"target", target}});
  };
  write("train.safetensors", 3);
  write("test.safetensors", 2);
  study.check([&] { write("train.safetensors", 2); });
}

#ifdef FRUGAL_TEST_PICTURES
void add_picture(const std::string& path, int shade) {
  fs::create_directories(fs::path(path).parent_path());
  const data::Picture picture{12, 12, 3, std::vector<uint8_t>(12 * 12 * 3, uint8_t(shade))};
  const data::FileBytes bytes = data::jpeg_file(picture);
  write_file(path, std::string(bytes.begin(), bytes.end()));
}

TEST_CASE("classes of pictures have the numbers that the run gave them") {
  const Study study(kTableMlp, {{"name", "image_folder"}, {"image_size", 8}, {"batch_size", 8}});
  for (int i = 0; i < 12; ++i) {
    add_picture(fmt::format("{}/train/bee/{}.jpg", study.data, i), 40 + i);
    add_picture(fmt::format("{}/train/cow/{}.jpg", study.data, i), 200 + i);
    add_picture(fmt::format("{}/val/bee/{}.jpg", study.data, i), 40 + i);
    add_picture(fmt::format("{}/val/cow/{}.jpg", study.data, i), 200 + i);
  }
  REQUIRE(study.train().status == 0);
  const Json before = study.eval(false);
  fs::rename(study.data + "/train/cow", study.data + "/train/ant");
  CHECK(study.eval(true) == before);
  // A class that the run does not know has no number.
  fs::rename(study.data + "/val/cow", study.data + "/val/ant");
  const Ran unknown = frugal("eval " + study.run);
  CHECK(unknown.status == 1);
  CHECK(has(unknown.err, "ant"));
}

TEST_CASE("pictures of one folder stay in the run's parts when others come") {
  const Study study(kTableMlp, {{"name", "image_folder"}, {"image_size", 8}, {"batch_size", 8}});
  for (int i = 0; i < 15; ++i) {
    add_picture(fmt::format("{}/bee/{:02}.jpg", study.data, i), 40 + i);
    add_picture(fmt::format("{}/cow/{:02}.jpg", study.data, i), 200 + i);
  }
  study.check([&] {
    for (int i = 0; i < 9; ++i) add_picture(fmt::format("{}/bee/0{}a.jpg", study.data, i), 240);
  });
}

TEST_CASE("an evaluation needs the data alone: the run has the names of the classes") {
  const Study study(kTableMlp, {{"name", "image_folder"}, {"image_size", 8}, {"batch_size", 8}});
  for (int i = 0; i < 6; ++i)
    for (const char* part : {"train", "val"}) {
      add_picture(fmt::format("{}/{}/bee/{}.jpg", study.data, part, i), 40 + i);
      add_picture(fmt::format("{}/{}/cow/{}.jpg", study.data, part, i), 200 + i);
    }
  const std::string names = study.folder / "names.txt";
  write_file(names, "cow\nbee\n");
  Json config = Json::parse(read_file(study.config));
  config["data"]["class_names"] = names;
  write_file(study.config, config.dump());
  REQUIRE(study.train().status == 0);
  const Json before = study.eval(false);
  fs::remove(names);
  CHECK(study.eval(false) == before);
  CHECK(study.train(" --resume --extend 3").status == 0);
}
#endif

TEST_CASE("nodes of a graph stay in the run's parts, and its features have the run's scale") {
  const Study study({{"name", "gcn"}, {"layers", 2}, {"width", 8}}, {{"name", "graph_npz"}});
  Json config = Json::parse(read_file(study.config));
  config["data"]["dir"] = study.data + "/graph.npz";
  write_file(study.config, config.dump());
  const auto write = [&](int64_t first_label) {
    // A ring, with one feature of two for each node.
    std::vector<int32_t> row_ptr{0}, next, at;
    std::vector<int64_t> labels;
    for (int32_t v = 0; v < 40; ++v) {
      row_ptr.push_back(v + 1);
      next.push_back((v + 1) % 40);
      at.push_back(v % 2);
      labels.push_back(v == 0 ? first_label : v % 2);
    }
    const std::vector<float> value(40, 1.0f);
    std::vector<std::pair<std::string, std::string>> entries;
    frugal_test::add_csr(entries, "adj_", 40, 40, row_ptr, next, value);
    frugal_test::add_csr(entries, "attr_", 40, 2, row_ptr, at, value);
    entries.emplace_back("labels.npy", frugal_test::npy_of("<i8", labels));
    write_file(study.data + "/graph.npz", frugal_test::zip(entries));
  };
  write(0);
  for (const char* shares : {"[0.01,0.01]", "[0.9,0.09]"}) {
    const Ran refused = study.train(std::string(" --set data.split=") + shares);
    CHECK(refused.status == 2);
    CHECK(has(refused.err, "data.split: expected shares that leave nodes to "));
  }
  REQUIRE_MESSAGE(study.train().status == 0, study.train().err);
  const Json parts = Json::parse(read_file(study.run + "/data.json"))["parts"];
  CHECK(parts["test"].size() == 8);
  const Json before = study.eval(false);
  CHECK(before["samples"] == 8);
  write(1);  // the label of node 0 changes
  CHECK(study.eval(true)["samples"] == 8);
}

TEST_CASE("folders of earlier versions load, and a damaged data.json is named") {
  const Study study(kTableMlp, {{"name", "csv"}, {"batch_size", 16}});
  write_file(study.data + "/train.csv", kTableHeader + rows(0, 60, 1));
  write_file(study.data + "/test.csv", kTableHeader + rows(60, 90, 1));
  REQUIRE(study.train().status == 0);
  const Json before = study.eval(false);
  const std::string good = read_file(study.run + "/data.json");
  for (const char* bad : {R"({"version":1,"parts":{"test":[2,1],"validation":[]}})",
                          R"({"version":1,"parts":{"test":[-1],"validation":[]}})",
                          R"({"version":9})", R"({"version":1,"class_ids":[1]})", "[]"}) {
    CAPTURE(bad);
    write_file(study.run + "/data.json", bad);
    const Ran ran = frugal("eval " + study.run);
    CHECK(ran.status == 1);
    CHECK(has(ran.err, "data.json"));
    CHECK(has(ran.err, "damaged"));
    CHECK(lacks(ran.err, "json.exception"));
  }
  fs::remove(study.run + "/data.json");
  write_file(study.data + "/train.csv", kTableHeader + rows(0, 60, 1000));
  CHECK(study.eval(false) == before);
  CHECK(study.train(" --resume --extend 3").status == 0);
}

TEST_CASE("--set of what a run decided when it encoded its data is an error, not without effect") {
  const Study study(kTableMlp, {{"name", "csv"}, {"batch_size", 16}});
  write_file(study.data + "/train.csv", kTableHeader + rows(0, 60, 1));
  write_file(study.data + "/test.csv", kTableHeader + rows(60, 90, 1));
  REQUIRE(study.train().status == 0);
  const Json before = study.eval(false);
  for (const char* set : {"data.missing=fill", "data.categories=index", "data.normalize=none",
                          R"('data.drop=["colour"]')"}) {
    CAPTURE(set);
    for (const std::string command : {"eval ", "export --output x.onnx "}) {
      const Ran refused = frugal(command + study.run + " --set " + set);
      CHECK(refused.status == 2);
      CHECK(has(refused.err, "as the run in"));
    }
  }
  // The run's own value, and keys that say nothing of the encoding.
  CHECK(study.eval(false, " --set data.missing=error --set threads=1") == before);
}

TEST_CASE("other data that --set names have parts of their own and give no warning") {
  const Study study(kTableMlp, {{"name", "csv"}, {"batch_size", 16}});
  write_file(study.data + "/table.csv", kTableHeader + rows(0, 60, 1));
  REQUIRE(study.train().status == 0);
  const Json own = study.eval(false);
  const std::string moved = study.folder / "moved.csv", other = study.folder / "other.csv";
  write_file(moved, kTableHeader + rows(0, 60, 1));
  CHECK(study.eval(false, " --set data.dir=" + moved) == own);
  write_file(other, kTableHeader + rows(0, 30, 1));
  CHECK(study.eval(false, " --set data.dir=" + other)["samples"] == 3);
}

TEST_CASE("a run that starts from another one encodes data as that one did") {
  const Study study(kTableMlp, {{"name", "csv"}, {"batch_size", 16}});
  write_file(study.data + "/train.csv", kTableHeader + rows(0, 60, 1));
  write_file(study.data + "/test.csv", kTableHeader + rows(60, 90, 1));
  REQUIRE(study.train().status == 0);
  write_file(study.data + "/train.csv", kTableHeader + rows(0, 60, 1000));
  const std::string second = study.folder / "second";
  const Ran tuned = frugal("train " + study.run + "/config.json --quiet --init-from " + study.run +
                           " --out " + second);
  REQUIRE_MESSAGE(tuned.status == 0, tuned.err);
  CHECK(read_file(second + "/columns.json") == read_file(study.run + "/columns.json"));
  // A table without the run's columns is encoded anew.
  write_file(study.data + "/train.csv", "z,colour,target\n" + rows(0, 60, 1));
  write_file(study.data + "/test.csv", "z,colour,target\n" + rows(60, 90, 1));
  const std::string third = study.folder / "third";
  const Ran anew =
      frugal("train " + study.config + " --init-from " + study.run + " --out " + third);
  REQUIRE_MESSAGE(anew.status == 0, anew.err);
  CHECK(has(anew.err, "encoded anew"));
  CHECK(Json::parse(read_file(third + "/columns.json"))["columns"][0]["name"] == "z");
}

}  // namespace
}  // namespace frugal::apps
