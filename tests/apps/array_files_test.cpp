// data.name tensors with each layout, as a file says it: trains, evaluates and predicts.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/config/data/make_data.h"
#include "apps/config/keys/config_table.h"
#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"
#include "tests/data/formats/arrays.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// 40 samples of 4 classes; those of a class are alike.
struct Arrays {
  TempFolder folder;
  std::string config = folder / "c.json", run = folder / "run", file = folder / "data.npz";

  void write(const std::string& shape, int64_t one, const char* type) const {
    std::string bytes;
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < 40; ++i) {
      targets.push_back(i % 4);
      for (int64_t k = 0; k < one; ++k) {
        const int64_t value = k % 4 == i % 4 ? 200 + i % 7 : 3 * (i % 5);
        if (std::string(type) == "|u1")
          bytes += static_cast<char>(value);
        else if (std::string(type) == "<f4")
          bytes += frugal_test::raw_bytes(std::vector<float>{float(value) / 255});
        else
          bytes += frugal_test::little(static_cast<uint64_t>(1 + i % 4), 8);  // one token
      }
    }
    write_file(file, frugal_test::zip({{"input.npy", frugal_test::npy(type, shape, bytes)},
                                       {"target.npy", frugal_test::npy_of("<i8", targets)}}));
  }
  void check(const Json& model, const Json& data) const {
    Json all = {{"model", model}, {"data", data}, {"train", {{"epochs", 6}}}, {"threads", 1}};
    all["data"]["dir"] = file;
    all["optim"] = {{"name", "adamw"}, {"lr", 0.01}};
    write_file(config, all.dump());
    const Ran trained = frugal("train " + config + " --quiet --out " + run);
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    const Ran judged = frugal("eval " + run + " --json");
    REQUIRE_MESSAGE(judged.status == 0, judged.err);
    const double accuracy = Json::parse(judged.out)["accuracy"];
    CHECK(accuracy >= 0.75);
    // The answers are those of the data, whatever their layout.
    const Ran answers = frugal("predict " + run + " " + file + " --json --top 1");
    REQUIRE_MESSAGE(answers.status == 0, answers.err);
    std::stringstream lines(answers.out);
    int64_t index = 0, right = 0;
    for (std::string line; std::getline(lines, line); ++index) {
      const Json answer = Json::parse(line);
      CHECK(answer["input"] == fmt::format("{}:{}", file, index));
      right += answer["top"][0]["class"] == index % 4 ? 1 : 0;
    }
    CHECK(index == 40);
    CHECK(right >= 30);
    const Ran printed = frugal("train " + config + " --print-config");
    CHECK(printed.status == 0);
    CHECK(Json::parse(printed.out)["data"]["dir"] == file);
  }
};

const Json kArrayMlp = {{"name", "mlp"}, {"hidden", {32}}};

TEST_CASE_FIXTURE(Arrays, "arrays of pictures, channels last: the default layout") {
  write("(40, 4, 4, 3)", 48, "|u1");
  check(kArrayMlp, {{"name", "tensors"}, {"batch_size", 8}});
}

TEST_CASE_FIXTURE(Arrays, "arrays of grey pictures without an axis for channels") {
  write("(40, 4, 4)", 16, "|u1");
  check(kArrayMlp, {{"name", "tensors"}, {"batch_size", 8}});
}

TEST_CASE_FIXTURE(Arrays, "arrays of pictures, channels first") {
  write("(40, 3, 4, 4)", 48, "<f4");
  check(kArrayMlp, {{"name", "tensors"}, {"layout", "nchw"}, {"batch_size", 8}});
}

TEST_CASE_FIXTURE(Arrays, "arrays of rows") {
  write("(40, 12)", 12, "<f4");
  check(kArrayMlp, {{"name", "tensors"}, {"layout", "rows"}, {"batch_size", 8}});
}

TEST_CASE_FIXTURE(Arrays, "arrays of tokens") {
  write("(40, 8)", 8, "<i8");
  check({{"name", "bert_tiny"}, {"layers", 1}, {"dropout", 0}},
        {{"name", "tensors"}, {"layout", "tokens"}, {"batch_size", 8}, {"max_length", 8}});
}

TEST_CASE_FIXTURE(Arrays, "arrays that do not fit the run are named") {
  write("(40, 4, 4, 3)", 48, "|u1");
  check(kArrayMlp, {{"name", "tensors"}, {"batch_size", 8}});
  write("(40, 4, 3, 4)", 48, "|u1");
  const Ran ran = frugal("predict " + run + " " + file);
  CHECK(ran.status == 1);
  CHECK(has(ran.err, "[N, 4, 4, 3]"));
}

TEST_CASE_FIXTURE(Arrays, "pictures of bytes and pictures of numbers do not mix in silence") {
  const std::string other = folder / "other";
  fs::create_directory(other);
  const auto move_to = [&](const char* name) {
    fs::rename(file, other + "/" + std::string(name) + ".npz");
  };
  const auto train = [&] {
    write_file(config, fmt::format(R"({{"model": {{"name": "mlp", "hidden": [8]}}, "threads": 1,
        "data": {{"name": "tensors", "dir": "{}", "batch_size": 8}}, "train": {{"steps": 2}}}})",
                                   other));
    return frugal("train " + config + " --quiet --overwrite --out " + run);
  };
  const auto numbers = [&](float factor) {
    std::vector<float> values;
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < 8 * 16; ++i) values.push_back(factor * static_cast<float>(i % 7) / 7);
    for (int64_t i = 0; i < 8; ++i) targets.push_back(i % 4);
    write_file(file,
               frugal_test::zip({{"input.npy", frugal_test::npy("<f4", "(8, 4, 4)",
                                                                frugal_test::raw_bytes(values))},
                                 {"target.npy", frugal_test::npy_of("<i8", targets)}}));
  };
  write("(40, 4, 4)", 16, "|u1");
  move_to("train");
  numbers(255);
  move_to("val");
  const Ran mixed = train();
  CHECK(mixed.status == 1);
  CHECK(has(mixed.err,
            "val.npz\": expected input of bytes (u8), as training has, or of numbers "
            "from 0 to 1, which bytes become, got "));
  numbers(1);  // what bytes become
  move_to("val");
  const Ran alike = train();
  CHECK_MESSAGE(alike.status == 0, alike.err);
  numbers(255);
  const Ran large = frugal("predict " + run + " " + file);
  CHECK(large.status == 1);
  CHECK(has(large.err, "expected an array input of bytes (u8), as training has"));
  numbers(1);
  CHECK(frugal("predict " + run + " " + file).status == 0);
  // A network that was trained on numbers does not take bytes.
  move_to("train");
  CHECK(train().status == 0);
  write("(40, 4, 4)", 16, "|u1");
  const Ran bytes = frugal("predict " + run + " " + file);
  CHECK(bytes.status == 1);
  CHECK(has(bytes.err,
            "expected an array input of the numbers that training has, which stay as "
            "they are, got bytes (u8), which become 0 to 1"));
}

TEST_CASE_FIXTURE(Arrays,
                  "predict refuses rows that are not finite, ids of no token, and nothing") {
  const auto given = [&](const char* type, const std::string& shape, const std::string& bytes) {
    write_file(folder / "given.npz",
               frugal_test::zip({{"input.npy", frugal_test::npy(type, shape, bytes)}}));
    return frugal("predict " + run + " " + folder / "given.npz");
  };
  write("(40, 16)", 16, "<f4");
  check(kArrayMlp, {{"name", "tensors"}, {"layout", "rows"}, {"batch_size", 8}});
  check_fails(frugal("predict " + run + " none.npz"), 2, {"\"none.npz\", which is not there"});
  std::vector<float> row(32, 0.5F);
  row[20] = -std::nanf("");
  check_fails(given("<f4", "(2, 16)", frugal_test::raw_bytes(row)), 1,
              {"given.npz\": expected finite numbers, got nan in sample 1"});
  check_fails(given("<f8", "(1, 16)", frugal_test::raw_bytes(std::vector<double>(16, 1e300))), 1,
              {"given.npz\": expected finite numbers, got inf in sample 0"});
  check_fails(given("<f4", "(0, 16)", ""), 1, {"given.npz", "of at least one sample"});

  fs::remove_all(run);
  write("(40, 8)", 8, "<i8");
  check({{"name", "bert_tiny"}, {"layers", 1}, {"dropout", 0}},
        {{"name", "tensors"}, {"layout", "tokens"}, {"batch_size", 8}, {"max_length", 8}});
  std::string ids;
  for (int i = 0; i < 16; ++i) ids += frugal_test::little(i == 9 ? 50 : 1, 8);
  check_fails(given("<i8", "(2, 8)", ids), 1,
              {"given.npz\": expected token ids from 0 to ", ", got 50 in sample 1"});
}

// Whatever the data, the key that says where they are is read where they are in files.
TEST_CASE("data.dir is read with every name of data in files, and with no other") {
  for (const std::string& name : dataset_names())
    for (const char* layout : {"nhwc", "nchw", "rows", "tokens"}) {
      if (name != "tensors" && layout != std::string("nhwc")) continue;
      CAPTURE(name);
      CAPTURE(layout);
      Json data = {{"name", name}, {"dir", "/some/where"}};
      if (layout != std::string("nhwc")) data["layout"] = layout;
      const Config config = parse_config({{"data", data}});
      CHECK(data_traits(config).reads_files == !name.starts_with("random"));
      bool read = true;
      for (const UnreadKey& key : unread_keys(config)) read = read && key.path != "data.dir";
      CHECK(read == !name.starts_with("random"));
    }
}

}  // namespace
}  // namespace frugal::apps
