// From a run folder to its use: frugal predict, eval and generate, without the data of the run.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/json.h"
#include "data/image/picture.h"
#include "tests/apps/run.h"
#include "tests/data/image/picture_files.h"
#include "train/run/model.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

void check_says(const Ran& ran, int status, std::initializer_list<const char*> words) {
  CHECK(ran.status == status);
  for (const char* word : words)
    CHECK_MESSAGE(ran.err.find(word) != std::string::npos, word, ": ", ran.err);
}

// The lines of --json, by input.
std::map<std::string, Json> answers_of(const Ran& ran) {
  std::map<std::string, Json> all;
  std::stringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) {
    const Json answer = Json::parse(line);
    all[answer["input"].get<std::string>()] = answer;
  }
  return all;
}

double probability_of(const Json& answer, int64_t wanted) {
  for (const Json& guess : answer["top"])
    if (guess["class"] == wanted) return guess["probability"].get<double>();
  return 0;
}

Json evaluation(const std::string& arguments) {
  const Ran ran = frugal("eval --json " + arguments);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

Json final_of(const std::string& run) {
  return Json::parse(read_file(run + "/summary.json"))["final"];
}

}  // namespace

#ifdef FRUGAL_TEST_PICTURES
namespace {

std::string text_of(const data::FileBytes& bytes) { return {bytes.begin(), bytes.end()}; }

// A picture with a bright half: the left one of class 0, the upper one of class 1.
data::Picture half(int64_t height, int64_t width, bool upper, int64_t shade, int64_t channels) {
  data::Picture picture{height, width, channels, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c)
        picture.pixels.push_back(
            uint8_t(((upper ? 2 * y < height : 2 * x < width) ? 180 : 40) + shade + 9 * c));
  return picture;
}

// A run on picture files, whose data are gone when it is used.
struct PictureRun {
  TempFolder folder;
  std::string run = folder / "run", pictures = folder / "val";
  Json summary;
  PictureRun() {
    for (const char* part : {"train", "val"})
      for (int64_t i = 0; i < (part[0] == 't' ? 40 : 10); ++i) {
        const bool upper = i % 2 == 1;
        const std::string path =
            fmt::format("{}/data/{}/{}/{}.png", folder / "", part, upper ? "up" : "left", i);
        fs::create_directories(fs::path(path).parent_path());
        write_file(path,
                   text_of(data::png_file(half(18 + i % 5, 15 + i % 7, upper, 4 * (i % 9), 3))));
      }
    write_file(folder / "c.json", fmt::format(R"({{"model": {{"name": "mlp", "hidden": [16]}},
        "data": {{"name": "image_folder", "dir": "{}", "image_size": 8, "resize": 10, "batch_size": 10,
                  "test_batch_size": 4}},
        "optim": {{"lr": 0.05}}, "train": {{"epochs": 3}}, "threads": 1}})",
                                              folder / "data"));
    const Ran ran = frugal("train " + folder / "c.json" + " --out " + run);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    summary = final_of(run);
  }
  void take_data_away() {
    fs::rename(folder / "data/val", pictures), fs::remove_all(folder / "data");
  }
};

}  // namespace

TEST_CASE_FIXTURE(PictureRun, "eval of a run folder gives its last evaluation") {
  const Json found = evaluation(run);
  CHECK(found["loss"] == summary["test_loss"]);
  CHECK(found["accuracy"] == summary["test_accuracy"]);
  CHECK(found["weights"] == run + "/checkpoint/last.safetensors");
  CHECK(evaluation(run + " --weights best")["weights"] == run + "/checkpoint/best.safetensors");
  // The mean over views differs, and is of the same pictures.
  const Json flipped = evaluation(run + " --tta flip"), ten = evaluation(run + " --tta ten_crop");
  for (const Json* other : {&flipped, &ten}) {
    CHECK((*other)["samples"] == 10);
    CHECK((*other)["loss"] != found["loss"]);
  }
  CHECK(flipped["loss"] != ten["loss"]);
  check_says(frugal("eval " + run + " --split val"), 2, {"--split", "no validation set"});
}

TEST_CASE_FIXTURE(PictureRun, "predict sees a folder's pictures as the evaluation does") {
  take_data_away();
  const std::string predict = "predict --json --weights last " + run + " ";
  const Ran ran = frugal(predict + pictures);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const auto answers = answers_of(ran);
  REQUIRE(answers.size() == 10);
  double loss = 0, mirrored = 0;
  for (const auto& [path, answer] : answers) {
    loss -= std::log(probability_of(answer, path.find("/up/") != std::string::npos));
    CHECK(answer["top"].size() == 2);
  }
  CHECK(loss / 10 == doctest::Approx(summary["test_loss"].get<double>()).epsilon(1e-5));
  // The batch makes no difference, and --tta does.
  CHECK(answers_of(frugal(predict + pictures + " --batch-size 3")).size() == 10);
  for (const auto& [path, answer] : answers_of(frugal(predict + pictures + " --tta ten_crop")))
    mirrored -= std::log(probability_of(answer, path.find("/up/") != std::string::npos));
  CHECK(mirrored != loss);
  const Ran plain = frugal("predict " + run + " " + pictures + "/up/1.png --top 1");
  CHECK(plain.status == 0);
  CHECK(plain.out.find("up/1.png\n") != std::string::npos);
  CHECK(plain.out.find(" %  ") != std::string::npos);
  std::stringstream lines(plain.out);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE_FIXTURE(PictureRun, "predict names broken pictures, and prints the others") {
  take_data_away();
  write_file(pictures + "/up/bad.png", "no picture");
  const Ran ran = frugal("predict --json " + run + " " + pictures + " " + folder / "none.jpg");
  check_says(ran, 1, {"up/bad.png", "none.jpg", "2 of 12 inputs"});
  const auto answers = answers_of(ran);
  CHECK(answers.size() == 12);
  CHECK(answers.at(pictures + "/up/bad.png").contains("error"));
  CHECK(answers.at(pictures + "/up/1.png").contains("top"));
  fs::create_directories(folder / "empty");
  check_says(frugal("predict " + run + " " + folder / "empty"), 1, {"expected pictures", "empty"});
}

TEST_CASE_FIXTURE(PictureRun, "names of classes are printed where the run has them") {
  take_data_away();
  write_file(run + "/classes.json", R"(["to the left", "above"])");
  const Json answer =
      answers_of(frugal("predict --json " + run + " " + pictures + "/up/1.png")).begin()->second;
  for (const Json& guess : answer["top"])
    CHECK(guess["name"] == (guess["class"] == 0 ? "to the left" : "above"));
  write_file(run + "/classes.json", R"({"no": "list"})");
  check_says(frugal("predict " + run + " " + pictures), 1, {"classes.json", "damaged"});
}

TEST_CASE_FIXTURE(PictureRun, "train::load gives a network that predicts, as the command does") {
  take_data_away();
  const std::string file = pictures + "/left/2.png";
  const train::Model model = train::load(run);
  const train::Prediction found = model.predict(file);
  const Json told = answers_of(frugal("predict --json " + run + " " + file)).begin()->second["top"];
  REQUIRE(found.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(found[i].index == told[i]["class"]);
    CHECK(found[i].probability == doctest::Approx(told[i]["probability"].get<double>()));
  }
  // A decoded picture and its file are one; so are a tensor of the network's size and a picture.
  const std::string bytes = read_file(file);
  const data::Picture picture =
      data::decode_picture({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, file, 3);
  CHECK(model.predict(picture)[0].probability == found[0].probability);
  CHECK_THROWS_AS(model.predict(Tensor::zeros({9, 8, 3})), Error);
  CHECK(model.predict(Tensor::zeros({8, 8, 3})).size() == 2);
  CHECK_THROWS_AS(model.predict(folder / "none.png"), Error);
  CHECK_THROWS_AS(train::load(folder / "nowhere"), Error);
}

TEST_CASE("a network of MNIST's size sees a picture file as its own data") {
  const TempFolder folder;
  const auto number = [](uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
    return bytes;
  };
  std::string pixels, labels;
  fs::create_directories(folder / "pictures");
  for (int64_t i = 0; i < 32; ++i) {
    const data::Picture picture = half(28, 28, i % 2 == 1, 2 * i, 1);
    pixels.append(picture.pixels.begin(), picture.pixels.end());
    labels += static_cast<char>(i % 2);
    write_file(fmt::format("{}/{}.png", folder / "pictures", i), text_of(data::png_file(picture)));
  }
  for (const char* part : {"train", "t10k"}) {
    write_file(folder / (std::string(part) + "-images-idx3-ubyte"),
               std::string{"\0\0\x08\x03", 4} + number(32) + number(28) + number(28) + pixels);
    write_file(folder / (std::string(part) + "-labels-idx1-ubyte"),
               std::string{"\0\0\x08\x01", 4} + number(32) + labels);
  }
  write_file(folder / "c.json",
             fmt::format(R"({{"model": {{"name": "mlp", "hidden": [16]}}, "optim": {{"lr": 0.02}},
      "data": {{"name": "mnist", "dir": "{}", "batch_size": 8}}, "train": {{"steps": 6}}}})",
                         folder / ""));
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / "run").status == 0);
  const auto answers = answers_of(
      frugal("predict --json --weights last --top 10 " + folder / "run " + folder / "pictures"));
  REQUIRE(answers.size() == 32);
  double loss = 0;
  for (const auto& [path, answer] : answers)
    loss -= std::log(probability_of(answer, std::stoi(fs::path(path).stem().string()) % 2));
  CHECK(loss / 32 ==
        doctest::Approx(final_of(folder / "run")["test_loss"].get<double>()).epsilon(1e-5));
  CHECK(evaluation(folder / "run --tta flip")["samples"] == 32);
  check_says(frugal("eval " + folder / "run --tta ten_crop"), 2, {"--tta", "ten crops"});
  // Colours become grey, and any size the network's.
  write_file(folder / "large.png", text_of(data::png_file(half(90, 120, true, 0, 3))));
  CHECK(frugal("predict " + folder / "run " + folder / "large.png").status == 0);
}
#endif

TEST_CASE("a run on texts predicts and continues texts without its data") {
  const TempFolder folder;
  std::string words, train = "sentence\tlabel\n";
  for (const char* word : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"})
    words += std::string(word) + "\n";
  for (int i = 0; i < 40; ++i)
    train += fmt::format("{}{}\t{}\n", i % 2 == 1 ? "good" : "bad", i % 3 == 0 ? " good bad" : "",
                         i % 2);
  fs::create_directories(folder / "data");
  write_file(folder / "data/vocab.txt", words);
  for (const char* part : {"train", "dev"})
    write_file(folder / fmt::format("data/{}.tsv", part), train);
  write_file(folder / "c.json", fmt::format(R"({{
    "model": {{"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "max_positions": 16}},
    "data": {{"name": "sst2", "dir": "{0}", "vocabulary": "{0}/vocab.txt", "batch_size": 8,
              "max_length": 14}},
    "optim": {{"name": "adamw", "lr": 0.01}}, "train": {{"epochs": 8}}}})",
                                            folder / "data"));
  const std::string run = folder / "run";
  const Ran ran = frugal("train " + folder / "c.json" + " --out " + run);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(evaluation(run)["loss"] == final_of(run)["test_loss"]);
  fs::remove_all(folder / "data");
  const std::string predict = "predict --json " + run;
  const auto answers = answers_of(frugal(predict + " good 'bad bad'"));
  REQUIRE(answers.size() == 2);
  CHECK(answers.at("good")["top"][0]["class"] == 1);
  CHECK(answers.at("bad bad")["top"][0]["class"] == 0);
  // A file is a text in each line. A row that is padded has the same answer.
  write_file(folder / "texts.txt", "good\n\nbad bad\r\n");
  const auto of_file = answers_of(frugal(predict + " " + folder / "texts.txt"));
  REQUIRE(of_file.size() == 2);
  CHECK(probability_of(of_file.at("good"), 1) ==
        doctest::Approx(probability_of(answers_of(frugal(predict + " good")).at("good"), 1))
            .epsilon(1e-4));
  write_file(folder / "latin.txt", "\xef\xbb\xbfgood\ncaf\xe9 good\n");
  check_says(frugal(predict + " " + folder / "latin.txt"), 1,
             {"latin.txt\", line 2, column 4: expected UTF-8, got the byte e9", "iconv"});
  check_says(frugal(predict + " 'caf\xe9 good'"), 1, {"UTF-8, got the byte e9", "1 of 1"});
  write_file(folder / "mark.txt", "\xef\xbb\xbfgood\n");
  CHECK(answers_of(frugal(predict + " " + folder / "mark.txt")).contains("good"));
  check_says(frugal(predict + " 'a\tb'"), 1, {"without tabs", "1 of 1"});
  check_says(frugal(predict + " good --tta flip"), 2, {"--tta"});
  CHECK(train::load(run).predict("good", {.top = 1}).at(0).index == 1);
  CHECK_THROWS_AS(train::load(run).predict(Tensor::zeros({8, 8, 3})), Error);

  // A language model: its alphabet lies in the run folder.
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the cat sat on the mat. ";
  write_file(folder / "words.txt", text);
  write_file(folder / "gpt.json", fmt::format(R"({{
    "model": {{"name": "gpt2", "layers": 1, "width": 16, "heads": 2}},
    "data": {{"name": "text", "dir": "{}", "batch_size": 8, "max_length": 12}},
    "optim": {{"name": "adamw", "lr": 0.01}}, "train": {{"steps": 20}}}})",
                                              folder / "words.txt"));
  const std::string gpt = folder / "gpt";
  REQUIRE(frugal("train " + folder / "gpt.json" + " --out " + gpt).status == 0);
  const Ran before =
      frugal("generate " + folder / "gpt.json" + " --prompt the --tokens 9 --checkpoint " + gpt +
             "/checkpoint/best.safetensors");
  fs::remove(folder / "words.txt");
  const Ran after = frugal("generate " + gpt + " --prompt the --tokens 9");
  REQUIRE_MESSAGE(after.status == 0, after.err);
  CHECK(after.out == before.out);
  CHECK(after.out.starts_with("the"));
  check_says(frugal("generate " + gpt + " --prompt '#'"), 1, {"alphabet"});
  check_says(frugal("predict " + gpt + " the"), 1, {"frugal generate"});
  check_says(frugal("generate " + run), 2, {"language model"});
}

TEST_CASE("a run on a graph predicts its nodes") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "gcn", "width": 16},
    "data": {"name": "random_graph", "nodes": 300, "edges": 900, "features": 24, "classes": 3},
    "optim": {"name": "adam", "lr": 0.01}, "train": {"epochs": 4}})");
  const std::string run = folder / "run";
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + run).status == 0);
  CHECK(evaluation(run)["loss"] == final_of(run)["test_loss"]);
  CHECK(evaluation(run + " --split val")["samples"].get<int64_t>() > 0);
  const auto answers = answers_of(frugal("predict --json " + run + " 0 299"));
  REQUIRE(answers.size() == 2);
  CHECK(answers.at("299")["top"].size() == 3);
  check_says(frugal("predict " + run + " 5 300 x"), 1, {"0 to 299", "\"300\"", "\"x\"", "2 of 3"});
  check_says(frugal("eval " + run + " --tta flip"), 2, {"--tta"});
  CHECK_THROWS_AS(train::load(run).predict("5"), Error);
}

}  // namespace frugal::apps
