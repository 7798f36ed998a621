// The benchmarks' commands: which rows they have, what they count, and what memory does not suffice
// for.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

TEST_CASE("bench step measures every level, and meta counts the same bytes without computing") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string bench = "bench step --json --repeats 1 " + folder / "c.json";
  const Ran ran = frugal(bench), meta = frugal(bench + " --set device=meta");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  REQUIRE_MESSAGE(meta.status == 0, meta.err);
  const Json a = Json::parse(ran.out)["variants"], b = Json::parse(meta.out)["variants"];
  REQUIRE(a.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(a[i]["step_ms_median"].get<double>() > 0);
    CHECK(b[i]["step_ms_median"].is_null());
    CHECK(a[i]["memory"]["activation_bytes"] == b[i]["memory"]["activation_bytes"]);
  }
  CHECK(a[2]["memory"]["packed_bytes"].get<int64_t>() > 0);
  CHECK(a[3]["memory"]["activation_bytes"] < a[2]["memory"]["activation_bytes"]);
  CHECK(a[2]["memory"]["activation_bytes"] < a[1]["memory"]["activation_bytes"]);
}

TEST_CASE("bench step compares every policy with activations that are kept raw, without recipes") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const auto rows = [&](const std::string& sets) {
    const Ran ran = frugal("bench step --json --set device=meta " + folder / "c.json" + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json(Json::parse(ran.out)["variants"]);
  };
  const Json raw = rows("")[0]["memory"];
  CHECK(raw["packed_bytes"] == 0);
  for (const char* sets :
       {" --set compression.policy=acgc --set compression.level=null --set "
        "compression.acgc.growth=2",
        " --set compression.preset=acgc_paper", " --set compression.preset=actnn_paper",
        " --set compression.policy=actnn --set compression.level=L3",
        " --set 'compression.memory_budget=1/2 activations'"}) {
    CAPTURE(std::string(sets));
    const Json all = rows(sets);
    REQUIRE(all.size() == 2);
    CHECK(all[0]["level"] == "L0");
    for (const char* bytes : {"activation_bytes", "packed_bytes", "peak_bytes"})
      CHECK(all[0]["memory"][bytes] == raw[bytes]);
    CHECK(all[1]["name"] == "as configured");
    CHECK(all[1]["memory"]["activation_bytes"] < raw["activation_bytes"]);
  }
}

// ActNN's theorem 3: what the tensors of layer m add reaches the gradients of layers up to m, and
// the variance of the whole is the sum over m.
TEST_CASE("bench variance by layer: the parts add up, and measuring them changes nothing") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  for (const char* policy : {"--set compression.bits=2",
                             "--set compression.policy=actnn --set compression.level=L3"
                             " --set compression.actnn.interval=1",
                             "--set compression.level=L2.2"}) {
    CAPTURE(std::string(policy));
    const std::string bench =
        fmt::format("bench variance {} --json --train-steps 20 --batches 8 --draws 96 {}",
                    folder / "c.json", policy);
    const Ran ran = frugal(bench + " --layers 2"), whole = frugal(bench);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json printed = Json::parse(ran.out);
    CHECK(printed.at("variance") == Json::parse(whole.out).at("variance"));
    CHECK_FALSE(Json::parse(whole.out).contains("layers"));
    const Json& layers = printed.at("layers");
    REQUIRE(layers.size() == 3);
    double own = 0, from = 0;
    for (size_t m = 0; m < layers.size(); ++m) {
      own += layers[m].at("variance").at("value").get<double>();
      const double added = layers[m].at("from").at("value");
      from += added;
      double into = 0;
      for (size_t l = 0; l < layers.size(); ++l) {
        const double part = layers[m].at("into").at(layers[l].at("layer").get<std::string>());
        into += part;
        if (l > m) CHECK(part == 0);
      }
      CHECK(into == doctest::Approx(added));
      if (m > 0) CHECK(layers[m].at("packed_tensors") > 0);  // the first layer reads the batch
    }
    const double all = printed.at("variance").at("value");
    CHECK(own == doctest::Approx(all));
    CHECK(from == doctest::Approx(all).epsilon(0.2));
  }
  const Ran text = frugal("bench variance --train-steps 1 --batches 8 --draws 8 --layers 1 " +
                          folder / "c.json");
  CHECK(text.out.find("its gradient's variance") != std::string::npos);
  CHECK(longest_line(text.out) <= 200);
  CHECK(frugal("bench variance --layers -1 " + folder / "c.json").status == 2);
  write_file(folder / "blocks.json", R"({"model": {"name": "resnet20"},
      "data": {"name": "random", "shape": [8, 8, 3]}, "train": {"checkpointing": true},
      "compression": {"bits": 2, "advanced": {"recomputed": "packed"}}})");
  const Ran packed = frugal("bench variance --layers 1 " + folder / "blocks.json");
  CHECK(packed.status == 2);
  CHECK(packed.err.find("compression.advanced.recomputed: expected whole with --layers") !=
        std::string::npos);
}

TEST_CASE("with a number of threads, bench step counts on meta what kernels take") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "resnet18", "stem": "cifar"},
      "data": {"name": "random", "shape": [32, 32, 3], "classes": 10, "batch_size": 4,
               "train_samples": 8, "workers": 0}})");
  const auto peak = [&](const std::string& sets) {
    const Ran ran = frugal(
        "bench step --json --only --repeats 1 --variant "
        "'whole: compression.bits=0 compression.recipes=false' " +
        folder / "c.json" + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out)["variants"][0]["memory"]["peak_bytes"].get<int64_t>();
  };
  const int64_t counted = peak(" --set device=meta --set threads=2");
  CHECK(counted == peak(" --set threads=2"));
  CHECK(counted > peak(" --set device=meta"));
}

TEST_CASE("rows of bench step may update parameters at different times, on meta as elsewhere") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "resnet18", "stem": "cifar"},
      "data": {"name": "random", "shape": [32, 32, 3], "classes": 10, "batch_size": 4,
               "train_samples": 8, "workers": 0}, "threads": 2})");
  const auto peaks = [&](const std::string& sets) {
    const Ran ran = frugal(
        "bench step --json --only --repeats 1 --variant 'usual: compression.bits=4' --variant "
        "'kept: compression.bits=4 optim.in_backward=false' " +
        folder / "c.json" + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    std::vector<int64_t> all;
    const Json printed = Json::parse(ran.out);
    for (const Json& row : printed["variants"]) all.push_back(row["memory"]["peak_bytes"]);
    return all;
  };
  const std::vector<int64_t> counted = peaks(" --set device=meta");
  CHECK(counted == peaks(""));
  CHECK(counted[1] > counted[0] + (16 << 20));  // gradients of 11 million parameters
}

// Without slices and strips, five tensors of [nodes, features] are alive at the peak.
TEST_CASE("a graph network's peak at 4 bits is two fifths of what level L0 takes without recipes") {
  const Ran ran = frugal("bench step --json --workload gcn --set device=meta");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json rows = Json::parse(ran.out)["variants"];
  const auto peak = [&](size_t row) { return rows[row]["memory"]["peak_bytes"].get<double>(); };
  CHECK(rows[2]["level"] == "L1");
  CHECK(peak(0) > 2.5 * peak(2));
}

TEST_CASE("bench step takes rows of its caller's") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string bench = "bench step --json --repeats 1 " + folder / "c.json";
  const Ran ran =
      frugal(bench +
             " --variant 'adaptive: compression.level=L2 compression.advanced.min_elements=0'"
             " --variant 'packed: compression.level=L1.1 compression.recipes=false"
             " compression.advanced.min_elements=0'");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json rows = Json::parse(ran.out)["variants"];
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["name"] == "L0 without recipes");
  CHECK(rows[1]["name"] == "adaptive");
  CHECK(rows[1]["adapting_ms"].get<double>() > 0);
  CHECK(rows[2]["adapting_ms"] == 0);
  CHECK(rows[2]["recipes"] == false);
  CHECK(rows[1]["memory"]["activation_bytes"] < rows[2]["memory"]["activation_bytes"]);
  const Ran nameless = frugal(bench + " --variant compression.level=L2");
  CHECK(nameless.status == 2);
  CHECK(nameless.err.find("NAME") != std::string::npos);
  const Ran other = frugal(bench + " --variant 'a: optim.lr=1'");
  CHECK(other.status == 2);
  CHECK(other.err.find("optim.lr=1") != std::string::npos);
}

TEST_CASE("bench step refuses the keys that other commands refuse") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "unet", "width": 8},
      "data": {"name": "image_masks", "classes": 2, "flip": true, "batch_size": 4, "workers": 0}})");
  const std::string bench = "bench step " + folder / "c.json" +
                            " --json --repeats 1 --set device=meta --set data.name=random_masks"
                            " --set data.shape=[32,32,3]";
  // The file's own run reads data.flip.
  const Ran ran = frugal(bench);
  CHECK_MESSAGE(ran.status == 0, ran.err);
  for (const char* set : {"data.flip=true", "data.scale=[0.5,2]", "compression.actnn.interval=3"}) {
    const Ran refused = frugal(bench + " --set " + set);
    CAPTURE(std::string(set));
    CHECK(refused.status == 2);
    CHECK(refused.err.find("nothing reads it") != std::string::npos);
  }
}

TEST_CASE("bench quantizer reports each width") {
  const Ran ran = frugal("bench quantizer --mebibytes 1 --repeats 1 --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json results = Json::parse(ran.out)["results"];
  CHECK(results.size() >= 5);
  int64_t plain = 0, coded = 0;  // bytes of 4 bits
  for (const Json& row : results) {
    CHECK(row["pack_over_memcpy"].get<double>() > 0);
    CHECK(row["unpack_over_memcpy"].get<double>() > 0);
    if (row["bits"] == 4 && row["sign"] == false)
      (row["entropy_coded"] == true ? coded : plain) = row["packed_bytes"].get<int64_t>();
  }
  CHECK(coded > 0);
  CHECK(coded < plain);
}

TEST_CASE("bench step has rows of its caller's alone, without a unit") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string bench = "bench step --repeats 1 --only " + folder / "c.json";
  const Ran ran = frugal(bench + " --json --variant 'a: compression.level=L1'");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json rows = Json::parse(ran.out)["variants"];
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["name"] == "a");
  CHECK(rows[0]["time_over_L0"].is_null());
  CHECK(rows[0]["step_ms_median"].get<double>() > 0);
  const Ran table = frugal(bench);
  CHECK(table.out.find("L1.2") != std::string::npos);
  CHECK(table.out.find("without recipes") == std::string::npos);
}

// Wide and deep enough for its activations to be most of what a step takes.
constexpr const char* kDeep = R"({
  "model": {"name": "mlp", "hidden": [64, 64, 64, 64]},
  "data": {"name": "random", "shape": [4, 4, 1], "classes": 3, "batch_size": 8192},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}},
  "threads": 1
})";

TEST_CASE("bench step goes on where memory does not suffice for a row") {
  const TempFolder folder;
  write_file(folder / "c.json", kDeep);
  const std::string bench = "bench step --json --repeats 1 " + folder / "c.json";
  const Ran free = frugal(bench);
  REQUIRE_MESSAGE(free.status == 0, free.err);
  const Json peaks = Json::parse(free.out)["variants"];
  const auto peak = [&](size_t i) { return peaks[i]["memory"]["peak_bytes"].get<int64_t>(); };
  REQUIRE(peak(3) < peak(0));
  const std::string limit = " --set memory_limit=" + std::to_string((peak(3) + peak(0)) / 2);
  const Ran ran = frugal(bench + limit);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json rows = Json::parse(ran.out)["variants"];
  REQUIRE(rows.size() == 4);
  CHECK(rows[0]["out_of_memory"] == true);
  CHECK(rows[0]["step_ms_median"].is_null());
  CHECK(rows[0]["why"].get<std::string>().find("out of memory") != std::string::npos);
  CHECK(rows[3]["out_of_memory"] == false);
  CHECK(rows[3]["step_ms_median"].get<double>() > 0);
  CHECK(rows[3]["time_over_L0"].is_null());
  CHECK(rows[3]["memory"]["activation_bytes"] == peaks[3]["memory"]["activation_bytes"]);
  const Ran none = frugal(bench + limit +
                          " --only --variant 'a: compression.level=L0 "
                          "compression.recipes=false'");
  CHECK(none.status == 1);
  CHECK(none.err.find("out of memory") != std::string::npos);
}

TEST_CASE("random data have a whole batch of any size") {
  const TempFolder folder;
  write_file(folder / "images.json", kDeep);
  write_file(folder / "text.json", R"({
    "model": {"name": "gpt2", "layers": 1, "width": 8, "heads": 2, "max_positions": 4,
              "vocab_size": 20},
    "data": {"name": "random_tokens", "max_length": 4, "batch_size": 3000}})");
  for (const char* file : {"images.json", "text.json"}) {
    const Ran ran = frugal("bench step --repeats 1 --only " + folder / file);
    CHECK_MESSAGE(ran.status == 0, ran.err);
  }
  const Ran few = frugal("bench step " + folder / "images.json" + " --set data.train_samples=5");
  CHECK(few.status == 2);
  CHECK(few.err.find("data.train_samples") != std::string::npos);
}

TEST_CASE("bench step refuses captured steps where there are none") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const Ran ran = frugal("bench step " + folder / "c.json" +
                         " --variant 'a: compression.level=L1 cuda_graphs=true'");
  CHECK(ran.status == 2);
  CHECK(ran.err.find("cuda_graphs") != std::string::npos);
}

TEST_CASE("bench step plans bf16: half of what is whole, about as much of what is packed") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "encoder", "layers": 2, "width": 32, "heads": 2},
    "data": {"name": "random_tokens", "batch_size": 16, "max_length": 64, "classes": 3}})");
  const auto rows = [&](const char* precision) {
    const Ran ran = frugal("bench step " + folder / "c.json" +
                           " --json --repeats 1 --set device=meta --set precision=" + precision);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out)["variants"];
  };
  const Json of_f32 = rows("f32"), of_bf16 = rows("bf16");
  const auto bytes = [](const Json& all, size_t i, const char* what) {
    return all[i]["memory"][what].get<double>();
  };
  for (const size_t whole : {0, 1})
    CHECK(bytes(of_bf16, whole, "activation_bytes") <
          0.6 * bytes(of_f32, whole, "activation_bytes"));
  // bf16 packs a little more, because the sum of embeddings is rebuilt in f32.
  for (const size_t packed : {2, 3})
    CHECK(bytes(of_bf16, packed, "packed_bytes") < 1.1 * bytes(of_f32, packed, "packed_bytes"));
}

TEST_CASE("bench quantizer takes bf16 and any number of channels") {
  const Ran ran =
      frugal("bench quantizer --mebibytes 1 --repeats 1 --json --dtype bf16 --channels 100");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json report = Json::parse(ran.out);
  CHECK(report["shape"] == Json::array({(1 << 20) / 200, 100}));
  for (const Json& row : report["results"])
    if (row["bits"] == 4 && row["sign"] == false && row["entropy_coded"] == false)
      CHECK(row["packed_bytes"].get<double>() == doctest::Approx(1 << 18).epsilon(0.1));
  CHECK(frugal("bench quantizer --device tpu").status == 2);
  CHECK(frugal("bench quantizer --dtype f64").status == 2);
}

TEST_CASE("studies say that they moved to frugal-lab") {
  for (const char* name : {"bounds", "gradient", "sensitivity", "spmm"}) {
    const Ran ran = frugal(fmt::format("bench {} c.json --policies --bits 4,2 --json", name));
    CHECK(ran.status == 2);
    CHECK_MESSAGE(
        ran.err.find(fmt::format("this is now `frugal-lab {}`", name)) != std::string::npos,
        ran.err);
  }
}

TEST_CASE("bench ops measures f32 and bf16 alone") {
  const Ran ran = frugal("bench ops --dtype f64");
  CHECK(ran.status == 2);
  CHECK(ran.err.find("--dtype") != std::string::npos);
}

}  // namespace
}  // namespace frugal::apps
