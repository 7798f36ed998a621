// Values that look like good ones: weights that are not finite or of another kind, keys given
// twice, sizes that no machine has, names that move a terminal's cursor.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "ops/dense/copy.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

using Tensors = std::vector<std::pair<std::string, Tensor>>;

struct BadValues {
  TempFolder folder;
  std::string config = folder / "c.json";
  BadValues() { write_file(config, kTinyConfig); }
};

Tensors read_all(const std::string& path) { return data::SafetensorsFile::open(path).read_all(); }

}  // namespace

TEST_CASE_FIXTURE(BadValues, "weights of another kind, or not finite") {
  REQUIRE(frugal("train " + config + " --set train.epochs=1 --out " + folder / "run").status == 0);
  const std::string last = folder / "run/checkpoint/last.safetensors", bad = folder / "bad";
  const std::string eval = "eval " + config + " --json --checkpoint ";
  const Tensors good = read_all(last);
  const auto write = [&](const auto& change) {
    Tensors tensors;
    for (const auto& [name, tensor] : good) tensors.emplace_back(name, change(name, tensor));
    data::write_safetensors(bad, tensors);
  };
  const auto only = [&](const std::string& wanted, DType dtype, double value) {
    write([&](const std::string& name, const Tensor& tensor) {
      Tensor copy = ops::clone(ops::cast(tensor, dtype));
      if (name == wanted) {
        ops::fill(copy, 0.5);
        if (dtype == DType::f64) copy.mut<double>()[7] = value;
        if (dtype == DType::f32) copy.mut<float>()[7] = static_cast<float>(value);
      }
      return copy;
    });
  };
  // A folder of weights alone does not say what network they are of.
  std::filesystem::create_directories(folder / "weights");
  data::write_safetensors(folder / "weights/model.safetensors", good);
  check_fails(frugal("train " + config +
                     " --set 'model.hidden=[8]' --set model.weights=" + folder / "weights"),
              2, {"model.weights: ", "do not fit the model", "weights\" has no config.json"});
  // Bits of integers are no weights, and neither are integers.
  write([&](const std::string& name, const Tensor& tensor) {
    return name == "fc2.weight" ? ops::cast(tensor, DType::i32) : tensor;
  });
  check_fails(frugal(eval + bad), 1, {"wrong dtype (1)", "fc2.weight", "got i32", bad.c_str()});
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double value : {std::nan(""), kInf, -kInf}) {
    only("fc2.weight", DType::f32, value);
    check_fails(frugal(eval + bad), 1, {"finite", "element 7 of \"fc2.weight\"", bad.c_str()});
  }
  only("fc2.weight", DType::f64, 1e39);  // finite, and beyond what weights are kept in
  check_fails(frugal(eval + bad), 1, {"1e+39", "element 7 of \"fc2.weight\""});
  // What fits is converted: doubles give the floats that they were made of.
  write([](const std::string&, const Tensor& tensor) { return ops::cast(tensor, DType::f64); });
  const auto result_of = [&](const std::string& weights) {
    const Ran ran = frugal(eval + weights);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    Json result = Json::parse(ran.out);
    result.erase("weights");  // their path
    return result;
  };
  CHECK(result_of(bad) == result_of(last));
  // Halves give the values that they hold.
  for (const DType half : {DType::f16, DType::bf16}) {
    const std::string wide = folder / "wide";
    write([&](const std::string&, const Tensor& tensor) { return ops::cast(tensor, half); });
    Tensors same;
    for (const auto& [name, tensor] : read_all(bad))
      same.emplace_back(name, ops::cast(tensor, DType::f32));
    data::write_safetensors(wide, same);
    CHECK(result_of(bad) == result_of(wide));
  }
  // Finite weights, and a loss that is not.
  write([](const std::string& name, const Tensor& tensor) {
    const Tensor copy = ops::clone(tensor);
    if (name.ends_with(".weight")) ops::fill(copy, 1e38);
    return copy;
  });
  check_fails(frugal(eval + bad), 1, {"finite loss"});
  // The other commands that read weights.
  only("fc3.weight", DType::f32, std::nan(""));
  data::write_safetensors(folder / "batch", {{"input", Tensor::full({2, 1, 6, 6}, 1)}});
  const std::string grad = "grad " + config + " --out " + folder / "g --weights ";
  check_fails(frugal(grad + bad + " --batch " + folder / "batch"), 1, {"\"fc3.weight\""});
  CHECK(frugal(grad + last + " --batch " + folder / "batch").status == 0);
  data::write_safetensors(folder / "batch", {{"input", Tensor::full({2, 1, 6, 6}, std::nan(""))}});
  check_fails(frugal(grad + last + " --batch " + folder / "batch"), 1, {"\"input\"", "nan"});
}

TEST_CASE_FIXTURE(BadValues, "a state whose weights are not finite is not resumed") {
  REQUIRE(frugal("train " + config + " --set train.epochs=1 --out " + folder / "run").status == 0);
  const std::string path = folder / "run/checkpoint/state.safetensors";
  const auto file = data::SafetensorsFile::open(path);
  Tensors tensors = file.read_all();
  const data::Metadata metadata = file.metadata();
  for (auto& [name, tensor] : tensors)
    if (name == "model/fc2.bias") tensor.mut<float>()[3] = std::nanf("");
  data::write_safetensors(path, tensors, metadata);
  const std::string resume =
      "train " + config + " --set train.epochs=1 --resume --out " + folder / "run";
  check_fails(frugal(resume), 1, {"state.safetensors", "element 3 of \"fc2.bias\""});
  // A key twice in what it says of the run.
  data::Metadata twice = metadata;
  twice["run"].insert(1, "\"step\":0,");
  data::write_safetensors(path, file.read_all(), twice);
  check_fails(frugal(resume), 1, {"state.safetensors", "each key once"});
}

TEST_CASE_FIXTURE(BadValues, "numbers above 0 that are 0 in f32") {
  check_fails(frugal("train " + config + " --set optim.name=adam --set optim.eps=1e-300"), 2,
              {"optim.eps: expected a number in [1e-30, 1.0], got 1e-300"});
  const std::string pictures = "train " + config +
                               " --set data.name=cifar10 --set data.shape=null "
                               "--set data.classes=null --set data.mean=[0,0,0] "
                               "--set data.std=[1,1,1e-300]";
  check_fails(frugal(pictures), 2,
              {"data.std[2]: expected a number in [1e-30, 1000000.0], got 1e-300"});
  const auto refused = [&](const std::string& model, const std::string& key) {
    write_file(folder / "model.json", fmt::format(R"({{"model": {}}})", model));
    check_fails(frugal("train " + folder / "model.json" + " --print-config"), 2,
                {key + ": expected a number in [1e-30, ", ", got 1e-300"});
  };
  refused(R"({"name": "decoder", "norm_eps": 1e-300})", "model.norm_eps");
  refused(R"({"name": "moco_v2", "temperature": 1e-300})", "model.temperature");
  refused(R"({"name": "sequential", "modules": [{"batch_norm": {"eps": 1e-300}}]})",
          "model.modules[0].batch_norm.eps");
}

TEST_CASE_FIXTURE(BadValues, "configurations that say something twice, or end before their end") {
  const auto train = [&](const std::string& text, const std::string& more = "") {
    write_file(folder / "x.json", text);
    return frugal("train " + folder / "x.json" + " --print-config " + more);
  };
  check_fails(train(R"({"optim": {"lr": 0.1, "momentum": 0, "lr": 0.2}})"), 2,
              {"optim.lr: ", "x.json", "each key once"});
  check_fails(train(R"({"optim": {}, "data": {}, "optim": {}})"), 2, {"optim: ", "each key once"});
  check_fails(train("{}", R"(--set 'data={"name":"random","name":"mnist"}')"), 2,
              {"name: ", "each key once"});
  check_fails(train(std::string(R"({"data": {"name": "random"}})") + '\0' + R"({"optim": 1})"), 2,
              {"x.json", "NUL byte at offset 28"});
  check_fails(train(R"({"data": {"name": "random", "dir": "a\u0000b"}})"), 2, {"data.dir", "NUL"});
  check_fails(frugal("train /dev/zero"), 2, {"/dev/zero", "at most 67108864 bytes"});
  check_fails(train("{} {}"), 2, {"x.json", "not valid JSON"});
  check_fails(train("{\"optim\": {\"lr\": " + std::string(100000, '[') + "}}"), 2, {"64 levels"});
  // What is echoed is short and holds nothing that moves a cursor.
  check_fails(train("{\"a\\u001b[2J\\nb\": 1}"), 2, {"a\\x1b[2J\\nb: unknown key"});
  check_fails(train("{\"" + std::string(1 << 20, 'k') + "\": 1}"), 2, {"unknown key"});
  check_fails(train("{\"model\": {\"name\": \"" + std::string(1 << 20, 'k') + "\"}}"), 2,
              {"model.name"});
  check_fails(train("{\"memory_limit\": \"" + std::string(1 << 20, '1') + "\"}"), 2,
              {"memory_limit: expected"});
  check_fails(train("{\"data\": {\"name\": \"cifar10\", \"dir\": \"no\\u001b[2J\"}}", "--set x=y"),
              2, {"x"});
  check_fails(frugal("train " + config +
                     " --set data.name=cifar10 --set data.shape=null --set "
                     "data.classes=null --set data.dir=$(printf 'no\\033[2J')"),
              2, {"no\\x1b[2J"});
}

TEST_CASE_FIXTURE(BadValues, "tensor names are shown, and not obeyed") {
  const std::string path = folder / "names";
  data::write_safetensors(path, {{"a\x1b[2J\nb", Tensor::zeros({1})}}, {{"k\x1b[2J", "v\x1b[0m"}});
  const Ran table = frugal("inspect " + path);
  CHECK(table.status == 0);
  CHECK(table.out.find("a\\x1b[2J\\nb") != std::string::npos);
  CHECK(table.out.find("metadata k\\x1b[2J: v\\x1b[0m") != std::string::npos);
  CHECK(table.out.find('\x1b') == std::string::npos);
  const Ran json = frugal("inspect --json " + path);
  CHECK(Json::parse(json.out)["tensors"][0]["name"] == "a\x1b[2J\nb");
  CHECK(json.out.find('\x1b') == std::string::npos);
  check_fails(frugal("eval " + config + " --checkpoint " + path), 2,
              {"unexpected (1)", "a\\x1b[2J\\nb"});
}

TEST_CASE_FIXTURE(BadValues, "numbers of samples that would never be there") {
  for (const char* key : {"data.train_samples", "data.test_samples"}) {
    const std::string many = std::string(" --set ") + key + "=1099511627776";
    check_fails(frugal("train " + config + many), 2, {key, "at most 268435456"});
    write_file(folder / "t.json", R"({"model": {"name": "bert_base", "layers": 1, "width": 8,
      "heads": 1}, "data": {"name": "random_tokens", "max_length": 1024}})");
    check_fails(frugal("train " + folder / "t.json" + many), 2, {key, "at most 262144 of"});
  }
  // Patterns of labels need no table of all pairs of classes.
  const Ran ran = frugal("train " + config + " --set data.classes=300000 --set train.steps=1");
  CHECK_MESSAGE(ran.status == 0, ran.err);
  // A long text is not matched letter by letter.
  const std::string digits(100000, '1');
  check_fails(frugal("train " + config + " --set compression.memory_budget=" + digits), 2,
              {"compression.memory_budget"});
}

TEST_CASE("sizes of graphs that would never be there") {
  const TempFolder folder;
  write_file(folder / "g.json", R"({"model": {"name": "gcn", "layers": 2, "width": 8},
    "data": {"name": "random_graph", "nodes": 20, "edges": 30, "features": 4, "classes": 3,
             "sampler": "full"},
    "optim": {"name": "adam", "lr": 0.01}, "train": {"steps": 1, "epochs": 1}})");
  const std::string train = "train " + folder / "g.json" + " ";
  CHECK(frugal(train).status == 0);
  check_fails(frugal(train + "--set data.edges=1099511627776"), 2, {"data.edges"});
  check_fails(frugal(train + "--set data.edges=401"), 2, {"data.edges", "at most 400"});
  check_fails(frugal(train + "--set data.nodes=1099511627776"), 2, {"data.nodes"});
  check_fails(frugal(train + "--set data.nodes=67108864 --set data.features=1048576"), 2,
              {"data.features", "at most 128"});
  for (const char* sampler : {"edge", "node"})
    check_fails(frugal(train + "--set data.batch_size=1048576 --set data.sampler=" + sampler), 2,
                {"data.batch_size", "at most 4096", sampler});
  check_fails(frugal(train + "--set data.batch_size=1048576 --set data.sampler=random_walk --set "
                             "data.walk_length=1024"),
              2, {"data.batch_size", "at most 63"});
}

}  // namespace frugal::apps
