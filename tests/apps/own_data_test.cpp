// Runs on own tables, arrays and texts, and on mixed pictures, as their owner would make them.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "core/rng.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"
#include "tests/data/formats/arrays.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

double noise(uint64_t i) { return static_cast<double>(normal({6, 1}, i)); }

struct Data {
  TempFolder folder;
  std::string config;
  explicit Data(const Json& data, const Json& model = {{"name", "mlp"}, {"hidden", {16}}}) {
    Json all = {{"model", model},
                {"data", data},
                {"optim", {{"name", "adamw"}, {"lr", 0.02}}},
                {"schedule", {{"name", "constant"}}},
                {"train", {{"epochs", 8}}},
                {"threads", 1}};
    all["data"]["dir"] = folder / "data";
    config = folder / "c.json";
    fs::create_directories(folder / "data");
    write_file(config, all.dump());
  }
  Ran train(const std::string& name, const std::string& sets = "") const {
    return frugal("train " + config + " --out " + (folder / name) + sets);
  }
  Json json(const std::string& name, const char* file = "summary.json") const {
    return Json::parse(read_file(folder / (name + "/" + file)));
  }
  double accuracy(const std::string& name) const {
    return json(name)["final"]["test_accuracy"].get<double>();
  }
};

std::string table(int rows, bool values) {
  std::string text = "id,size,colour,answer\n";
  for (int i = 0; i < rows; ++i) {
    const double size = 100 + 20 * noise(static_cast<uint64_t>(i));
    const char* colour = i % 3 == 0 ? "red" : i % 3 == 1 ? "green" : "blue";
    const std::string answer = values                     ? fmt::format("{:.3f}", 1000 + 3 * size)
                               : size > 100 && i % 3 != 0 ? "yes"
                                                          : "no";
    text += fmt::format("{},{:.2f},{},{}\n", i, size, colour, answer);
  }
  return text;
}

TEST_CASE("a table is learned, whatever the number of workers, and a run tells its columns") {
  const Data data({{"name", "csv"}, {"target", "answer"}, {"drop", {"id"}}, {"batch_size", 16}});
  write_file(data.folder / "data/train.csv", table(300, false));
  const Ran ran = data.train("a", " --set data.workers=0");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(data.accuracy("a") > 0.9);
  CHECK(data.json("a", "classes.json") == Json({"no", "yes"}));
  const Json columns = data.json("a", "columns.json");
  CHECK(columns["columns"][1]["categories"] == Json({"blue", "green", "red"}));
  CHECK(columns["columns"][0]["mean"].get<double>() == doctest::Approx(100).epsilon(0.05));
  REQUIRE(data.train("b", " --set data.workers=3").status == 0);
  CHECK(read_file(data.folder / "a/checkpoint/last.safetensors") ==
        read_file(data.folder / "b/checkpoint/last.safetensors"));
  // Rows without an answer, with the columns in another order.
  const std::string rows = data.folder / "rows.csv";
  write_file(rows, "colour,size\ngreen,150\nred,150\ngreen,60\n");
  fs::remove_all(data.folder / "data");
  const Ran predicted = frugal("predict " + (data.folder / "a") + " " + rows + " --json");
  REQUIRE_MESSAGE(predicted.status == 0, predicted.err);
  std::istringstream lines(predicted.out);
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    const Json answer = Json::parse(line);
    CHECK(answer["input"] == fmt::format("{}:{}", rows, found.size() + 2));
    found.push_back(answer["top"][0]["name"].get<std::string>());
  }
  CHECK(found == std::vector<std::string>{"yes", "no", "no"});
  write_file(rows, "size\n150\n");
  const Ran lacking = frugal("predict " + (data.folder / "a") + " " + rows);
  CHECK(lacking.status == 1);
  CHECK(lacking.err.find("colour") != std::string::npos);
  CHECK(frugal("predict " + (data.folder / "a") + " " + rows + " --tta flip").status == 2);
  check_fails(frugal("predict " + (data.folder / "a") + " none.csv"), 2,
              {"INPUT: expected a file or a folder, got \"none.csv\", which is not there"});
  const std::string stored = data.folder / "a/columns.json";
  Json damaged = columns;
  damaged["columns"][0]["std"] = 0;
  write_file(stored, damaged.dump());
  CHECK(frugal("predict " + (data.folder / "a") + " " + rows).err.find("columns.json") !=
        std::string::npos);
  fs::create_directories(data.folder / "data");
  write_file(data.folder / "data/train.csv", table(300, false));
  write_file(data.folder / "data/val.csv", table(40, false) + "9,100,red,perhaps\n");
  const Ran unknown = data.train("c");
  CHECK(unknown.status == 1);
  CHECK(unknown.err.find("line 42") != std::string::npos);
  CHECK(unknown.err.find("perhaps") != std::string::npos);
}

TEST_CASE("shares that add up to 1 leave one part to test on, and none that chooses") {
  const Data data({{"name", "csv"}, {"target", "answer"}, {"drop", {"id"}}});
  write_file(data.folder / "data/train.csv", table(300, false));
  for (const char* split : {"[0.7,0.3]", "[0.8,0.2]", "[0.95,0.05]"}) {
    const std::string run = data.folder / "a";
    const Ran ran = data.train("a", fmt::format(" --overwrite --set data.split={}", split));
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Ran tested = frugal("eval " + run + " --json");
    CHECK(Json::parse(tested.out).at("samples") ==
          std::llround(300 * Json::parse(split).at(1).get<double>()));
    check_fails(frugal("eval " + run + " --split val"), 2, {"has no validation set"});
  }
}

TEST_CASE("a warning names the cell that makes numbers categories") {
  const Data data({{"name", "csv"}, {"target", "answer"}, {"drop", {"id"}}});
  std::string text = table(40, false);
  write_file(data.folder / "data/train.csv", text);
  CHECK(lacks(data.train("plain").err, "categories, since"));
  text += "40,none,red,no\n";
  write_file(data.folder / "data/train.csv", text);
  const Ran ran = data.train("text", " --set data.split=[0.8,0.1]");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.err,
            "column \"size\" is one of categories, since line 42 has \"none\" there; 40 of its 41 "
            "cells are numbers"));
  CHECK(lacks(ran.err, "\"id\""));  // which is dropped
}

TEST_CASE("numbers that are another one in each sample are not blamed on the split") {
  const Data csv({{"name", "csv"}, {"target", "target"}, {"batch_size", 4}});
  write_file(csv.folder / "data/train.csv", "x,target\n1,284312\n2,190000\n3,99500\n4,120000\n");
  const Ran table = csv.train("a");
  CHECK(table.status != 0);
  CHECK(has(table.err, "data.task=values predicts numbers"));
  CHECK(lacks(table.err, "data.split"));
  const Data arrays({{"name", "tensors"}, {"layout", "rows"}, {"batch_size", 4}});
  write_file(arrays.folder / "data/train.npz",
             frugal_test::zip(
                 {{"input.npy",
                   frugal_test::npy("<f4", "(4, 1)", frugal_test::raw_bytes<float>({1, 2, 3, 4}))},
                  {"target.npy", frugal_test::npy_of<int64_t>("<i8", {0, 1, 2, 3})}}));
  const Ran ran = arrays.train("a");
  CHECK(ran.status == 2);
  CHECK(has(ran.err,
            "data.task: expected classes with samples to train and to test on, got 4 classes of 4 "
            "samples; data.task=values predicts numbers"));
}

TEST_CASE("numbers are predicted from a table") {
  const Data data({{"name", "csv"}, {"target", "answer"}, {"drop", {"id"}}, {"batch_size", 16}});
  write_file(data.folder / "data/train.csv", table(300, true));
  const Ran ran = data.train("a", " --set train.log_interval=5");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(data.json("a")["final"]["test_r2"].get<double>() > 0.95);
  CHECK(!fs::exists(data.folder / "a/classes.json"));
  CHECK(ran.out.find("test r2") != std::string::npos);
  CHECK(ran.out.find("accuracy") == std::string::npos);
  write_file(data.folder / "rows.csv", "size,colour\n110,red\n");
  const Ran predicted =
      frugal("predict " + (data.folder / "a") + " " + (data.folder / "rows.csv") + " --json");
  REQUIRE_MESSAGE(predicted.status == 0, predicted.err);
  CHECK(Json::parse(predicted.out)["values"][0].get<double>() ==
        doctest::Approx(1330).epsilon(0.02));
  // The last evaluation's metric is in the place of an accuracy, on the terminal and in the table.
  CHECK(ran.err.find("acc ") == std::string::npos);
  const size_t later = ran.err.find("epoch 2/8  step");
  REQUIRE(later != std::string::npos);
  const std::string line = ran.err.substr(later, ran.err.find('\n', later) - later);
  CHECK_MESSAGE(line.find("  r2 ") != std::string::npos, line);
  std::istringstream rows(read_file(data.folder / "a/metrics.csv"));
  std::string heading, row;
  std::getline(rows, heading);
  std::getline(rows, row);
  CHECK(heading.find("train_loss,train_accuracy,test_loss,test_accuracy,test_metric,lr") !=
        std::string::npos);
  std::vector<std::string> cells(1);
  for (const char c : row)
    if (c == ',')
      cells.emplace_back();
    else
      cells.back() += c;
  REQUIRE(cells.size() == 13);
  CHECK(cells[3].empty());
  CHECK(cells[5].empty());
  CHECK_FALSE(cells[6].empty());
  const Ran smoothed = data.train("b", " --set train.label_smoothing=0.1");
  CHECK(smoothed.status == 2);
  CHECK(smoothed.err.find("train.label_smoothing") != std::string::npos);
}

TEST_CASE("arrays: rows, pictures and several labels") {
  const Data data({{"name", "tensors"}, {"batch_size", 16}, {"layout", "rows"}});
  std::vector<float> x, labels;
  std::vector<int64_t> classes;
  for (uint64_t i = 0; i < 200; ++i) {
    for (uint64_t k = 0; k < 12; ++k) x.push_back(static_cast<float>(noise(12 * i + k)));
    const float* row = x.data() + 12 * i;
    classes.push_back(row[0] > 0 ? 1 : 0);
    labels.insert(labels.end(), {row[0] > 0 ? 1.0f : 0.0f, row[1] > 0 ? 1.0f : 0.0f, 1.0f});
  }
  const Tensor rows = Tensor::from(x, {200, 12});
  const auto write = [&](const Tensor& input, const Tensor& target) {
    data::write_safetensors(data.folder / "data/a.safetensors",
                            {{"input", input}, {"target", target}});
  };
  write(rows, Tensor::from(classes, {200}));
  const Ran ran = data.train("rows");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(data.accuracy("rows") > 0.85);
  const Ran predicted = frugal("predict " + (data.folder / "rows") + " " +
                               (data.folder / "data/a.safetensors") + " --top 1 --json");
  REQUIRE_MESSAGE(predicted.status == 0, predicted.err);
  std::istringstream lines(predicted.out);
  int64_t right = 0, all = 0;
  for (std::string line; std::getline(lines, line); ++all)
    right += Json::parse(line)["top"][0]["class"] == classes[static_cast<size_t>(all)] ? 1 : 0;
  CHECK(all == 200);
  CHECK(right > 170);
  CHECK(data.train("nhwc", " --set data.layout=nhwc").err.find("data.layout") != std::string::npos);
  CHECK(data.train("cnn", " --set model.name=resnet20").status == 2);
  write(rows, Tensor::from(labels, {200, 3}));
  REQUIRE(data.train("labels").status == 0);
  CHECK(data.json("labels")["final"]["test_micro_f1"].get<double>() > 0.85);
  const Ran wrong_task = data.train("wrong_task", " --set data.task=classes");
  CHECK(wrong_task.status == 2);
  CHECK(has(wrong_task.err, "data.task: \"target\" of "));
  write(rows.view({200, 3, 2, 2}), Tensor::from(classes, {200}));
  REQUIRE(data.train("pictures", " --set data.layout=nchw --set data.flip=true").status == 0);
  write_file(data.folder / "names.txt", "small\nlarge\n");
  const Ran named = data.train(
      "names", " --set data.layout=nchw --set data.class_names=" + (data.folder / "names.txt"));
  REQUIRE_MESSAGE(named.status == 0, named.err);
  CHECK(data.json("names", "classes.json") == Json({"small", "large"}));
  const Ran mixed =
      data.train("mixed", " --set data.layout=nchw --set data.mixup=0.2 --set data.cutmix=1");
  REQUIRE_MESSAGE(mixed.status == 0, mixed.err);
  write(rows.view({200, 3, 2, 2}), Tensor::from(labels, {200, 3}));
  const Ran refused = data.train("refused", " --set data.layout=nchw --set data.mixup=0.2");
  CHECK(refused.status == 2);
  CHECK(refused.err.find("data.mixup") != std::string::npos);
}

constexpr const char* kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\n";

TEST_CASE("JSON lines: classes for an encoder, next characters for a decoder") {
  const Json bert = {
      {"name", "bert_tiny"}, {"layers", 1}, {"width", 16}, {"heads", 2}, {"max_positions", 16}};
  const Data data({{"name", "jsonl"},
                   {"text", "review"},
                   {"target", "stars"},
                   {"max_length", 12},
                   {"batch_size", 16}},
                  bert);
  std::string lines;
  for (int i = 0; i < 120; ++i)
    lines += fmt::format("{{\"review\": \"{} film\", \"stars\": \"{}\"}}\n",
                         i % 2 == 0 ? "good" : "bad", i % 2 == 0 ? "five" : "one");
  write_file(data.folder / "data/train.jsonl", lines);
  write_file(data.folder / "vocab.txt", kVocabulary);
  const std::string vocabulary = " --set data.vocabulary=" + (data.folder / "vocab.txt");
  // With the learning rate of the other networks, about 1 seed in 15 learns nothing.
  const Ran ran = data.train("a", vocabulary + " --set optim.lr=0.01");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(data.accuracy("a") == 1.0);
  CHECK(data.json("a", "classes.json") == Json({"five", "one"}));
  // Files of JSON lines are read as the run's data are.
  write_file(data.folder / "new.jsonl",
             "{\"review\": \"bad film\"}\n{\"review\": \"good film\"}\n");
  const std::string predict = "predict " + (data.folder / "a") + " --json ";
  const Ran guessed = frugal(predict + (data.folder / "new.jsonl"));
  REQUIRE_MESSAGE(guessed.status == 0, guessed.err);
  CHECK(has(guessed.out, "\"input\":\"bad film\""));
  CHECK_FALSE(has(guessed.out, "review"));
  write_file(data.folder / "other.jsonl", "{\"text\": \"bad film\"}\n");
  const Ran other = frugal(predict + (data.folder / "other.jsonl"));
  CHECK(other.status == 2);
  CHECK(has(other.err, "data.text: expected a field of "));
  CHECK(has(other.err, "which has text, got \"review\""));
  const Ran absent = frugal(predict + (data.folder / "old.jsonl"));
  CHECK(absent.status == 2);
  CHECK(has(absent.err, "old.jsonl"));
  for (const char* key : {"text", "second_text", "target"}) {
    const Ran typo = data.train("b", fmt::format("{} --set data.{}=reveiw", vocabulary, key));
    CHECK(typo.status == 2);
    CHECK_MESSAGE(has(typo.err, fmt::format("data.{}: expected a field of ", key)), typo.err);
    CHECK_MESSAGE(has(typo.err, "which has review, stars, got \"reveiw\""), typo.err);
  }
  const std::string gpt =
      " --set model.name=gpt2 --set data.target=null --set data.batch_size=4 --set train.steps=3";
  const Ran decoder = data.train("c", gpt);
  REQUIRE_MESSAGE(decoder.status == 0, decoder.err);
  CHECK(data.json("c")["final"].contains("test_perplexity"));
  write_file(data.folder / "data/test.jsonl", lines.substr(0, 400));
  REQUIRE(data.train("d", gpt).status == 0);
}

TEST_CASE("a folder of texts, and token ids in arrays") {
  const Json gpt = {
      {"name", "gpt2"}, {"layers", 1}, {"width", 16}, {"heads", 2}, {"max_positions", 16}};
  const Data data({{"name", "text"}, {"max_length", 8}, {"batch_size", 8}}, gpt);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "abcd efgh ";
  write_file(data.folder / "data/train.txt", text);
  // The evaluation measures the end, too: two windows of 8 and a rest.
  const auto loss_with = [&](const std::string& end) {
    write_file(data.folder / "data/val.txt", "xyz abcd efgh abcd" + end);
    const Ran judged = frugal("eval " + (data.folder / "a") + " --json");
    REQUIRE_MESSAGE(judged.status == 0, judged.err);
    const Json json = Json::parse(judged.out);
    CHECK(json["samples"] == 3);
    return json["loss"].get<double>();
  };
  write_file(data.folder / "data/val.txt", "xyz abcd efgh abcd\n");
  const Ran ran = data.train("a");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(data.json("a")["final"]["test_perplexity"].get<double>() < 10);
  const double usual = loss_with(" ef"), odd = loss_with("ddd");
  CHECK(usual < odd);
  // Word pieces would leave out what is not UTF-8.
  write_file(data.folder / "vocab.txt", kVocabulary);
  write_file(data.folder / "data/val.txt", "good film\ngood caf\xe9\n");
  const Ran latin = data.train("latin", " --set data.tokenizer=wordpiece --set data.vocabulary=" +
                                            (data.folder / "vocab.txt"));
  CHECK(latin.status == 1);
  CHECK(latin.err.find("val.txt\", line 2, column 9: expected UTF-8, got the byte e9") !=
        std::string::npos);
  std::vector<int64_t> ids, classes;
  for (int64_t i = 0; i < 60; ++i) {
    classes.push_back(i % 2);
    for (int64_t k = 0; k < 8; ++k) ids.push_back(5 * (i % 2) + k % 4);
  }
  data::write_safetensors(
      data.folder / "data/a.safetensors",
      {{"input", Tensor::from(ids, {60, 8})}, {"target", Tensor::from(classes, {60})}});
  const std::string tokens = " --set data.name=tensors --set data.layout=tokens";
  const Ran decoder = data.train("b", tokens);
  REQUIRE_MESSAGE(decoder.status == 0, decoder.err);
  const Ran encoder = data.train("c", tokens + " --set model.name=bert_tiny");
  REQUIRE_MESSAGE(encoder.status == 0, encoder.err);
  CHECK(data.accuracy("c") == 1.0);
}

TEST_CASE("mixed pictures are trained on, and none are where one is tested") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const auto train = [&](const std::string& name, const std::string& sets) {
    return frugal("train " + (folder / "c.json") + " --out " + (folder / name) + sets);
  };
  const Ran ran = train("a",
                        " --set data.mixup=0.3 --set data.cutmix=1 --set "
                        "train.label_smoothing=0.1 --set train.gradient_accumulation=2 --set "
                        "data.workers=0 --set model.num_classes=5");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  REQUIRE(train("b",
                " --set data.mixup=0.3 --set data.cutmix=1 --set train.label_smoothing=0.1 "
                "--set train.gradient_accumulation=2 --set data.workers=3 --set "
                "model.num_classes=5")
              .status == 0);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "b/checkpoint/last.safetensors"));
  const auto tested = [&](const std::string& name) {
    return Json::parse(read_file(folder / (name + "/summary.json")))["final"]["test_loss"]
        .get<double>();
  };
  const std::string still = " --set optim.lr=1e-9 --set train.steps=1";
  REQUIRE(train("still", still).status == 0);
  REQUIRE(train("still_mixed", still + " --set data.mixup=1").status == 0);
  CHECK(tested("still_mixed") == doctest::Approx(tested("still")).epsilon(1e-5));
  REQUIRE(train("plain", " --set data.workers=0 --set model.num_classes=5").status == 0);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") !=
        read_file(folder / "plain/checkpoint/last.safetensors"));
  CHECK(train("graph", " --set data.name=random_graph --set model.name=gcn --set data.mixup=1")
            .status == 2);
  CHECK(train("one", " --set data.mixup=1 --set data.batch_size=1").status == 2);
}

TEST_CASE("categories that training has not are told for the part where they are, once") {
  const std::string header = "colour,size,label\n";
  const auto rows = [](int count, const std::string& colour, const std::string& size) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += fmt::format("{},{},{}\n", colour, size, i % 2 == 0 ? "yes" : "no");
    return text;
  };
  const Data data(Json{{"name", "csv"}, {"batch_size", 4}, {"missing", "fill"}});
  const std::string folder = data.folder / "data/";
  write_file(folder + "train.csv", header + rows(8, "red", "small") + rows(8, "blue", "large"));
  write_file(folder + "val.csv", header + rows(3, "red", "small") + rows(2, "green", "tiny") +
                                     rows(2, "white", "large") + rows(2, "", "large"));
  write_file(folder + "test.csv", header + rows(4, "green", "small"));
  const Ran parts = data.train("parts");
  REQUIRE_MESSAGE(parts.status == 0, parts.err);
  const auto once = [&](const Ran& ran, const std::string& line) {
    CHECK_MESSAGE(count_of(ran.err, line) == 1, line << "\n" << ran.err);
  };
  once(parts,
       "val.csv\": column \"colour\" of the validation part has 2 categories that the training "
       "part has not, such as \"green\" in line 5; they count as none");
  once(parts,
       "val.csv\": column \"size\" of the validation part has 1 category that the training part "
       "has not, \"tiny\" in line 5; it counts as none");
  once(parts,
       "test.csv\": column \"colour\" of the test part has 1 category that the training part has "
       "not, \"green\" in line 2; it counts as none");
  CHECK(count_of(parts.err, "that the training part has not") == 3);
  const Ran predicted =
      frugal("predict " + (data.folder / "parts") + " " + folder + "test.csv --json");
  once(predicted, "test.csv\": column \"colour\" has 1 category that the training part has not");
  // A file that is cut into parts: each says what its own rows have.
  for (const char* name : {"val.csv", "test.csv"}) fs::remove(folder + name);
  std::string all = header;
  for (int i = 0; i < 60; ++i) all += fmt::format("c{},small,{}\n", i, i % 2 == 0 ? "yes" : "no");
  write_file(folder + "train.csv", all);
  const Ran cut = data.train("cut", " --set 'data.split=[0.5,0.3]'");
  REQUIRE_MESSAGE(cut.status == 0, cut.err);
  once(cut, "of the validation part has 18 categories");
  once(cut, "of the test part has 12 categories");
  CHECK(count_of(cut.err, "that the training part has not") == 2);
}

TEST_CASE("own data that are not as they should be are errors that say what to do") {
  const Json csv = {{"name", "csv"}};
  const Data data(csv);
  const auto refused = [&](const std::string& sets, int status, const char* message) {
    const Ran ran = data.train("x", sets);
    CHECK(ran.status == status);
    CHECK_MESSAGE(ran.err.find(message) != std::string::npos, ran.err);
  };
  refused("", 2, "expected train.csv in");
  refused(" --set data.dir=" + (data.folder / "none"), 2, "which is not there");
  refused(" --set data.dir=none", 2, "which is not there; it counts from \"");
  refused(" --set data.name=image_folder --set data.dir=none", 2, "where the command is called");
  refused(" --set data.dir=null", 2, "data.dir");
  write_file(data.folder / "data/train.csv", "");
  refused("", 1, "expected a header");
  write_file(data.folder / "data/train.csv", "a,b\n1,2\n");
  refused("", 1, "the columns are a, b");
  refused(" --set data.target=c", 2, "data.target: expected a column of ");
  refused(" --set data.target=b --set 'data.drop=[\"c\"]'", 2, "which has a, b, got \"c\"");
  refused(" --set data.target=b", 2, "data.split");
  write_file(data.folder / "data/train.csv", "a;b\n1,5;2\n");
  refused(" --set data.target=b", 1, "expected commas between columns");
  write_file(data.folder / "data/train.csv", "a,b\n1,3.5\n2,?\n3,4\n4,5\n");
  refused(" --set data.target=b --set data.task=values", 1, "got \"?\" in line 3");
  write_file(data.folder / "data/train.csv", table(40, false));
  refused(" --set data.target=answer --set data.task=values", 2,
          "data.task: expected classes for column \"answer\" of ");
  refused(" --set data.target=size --set data.task=classes", 2,
          "data.task: expected values for column \"size\" of ");
  refused(" --set data.target=answer --set 'data.drop=[\"answer\"]'", 2,
          "data.drop: expected other columns than the target");
  refused(" --set data.target=id --set data.task=classes", 2, "another number in each of 40 rows");
  refused(" --set data.target=answer --set model.name=resnet20", 2, "model.name");
  refused(" --set data.target=answer --set data.normalize=imagenet", 2, "data.normalize");
  refused(" --set data.target=answer --set data.flip=true", 2, "data.flip");
  refused(" --set data.target=answer --set data.mixup=0.5", 2, "data.mixup");
}

}  // namespace
}  // namespace frugal::apps
