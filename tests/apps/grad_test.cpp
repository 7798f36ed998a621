// `frugal grad`: gradients in PyTorch's names and layouts.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "apps/config/make_model.h"
#include "apps/json.h"
#include "core/rng.h"
#include "data/formats/safetensors.h"
#include "models/state.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

using Tensors = std::map<std::string, Tensor>;

Tensors read(const std::string& path) {
  Tensors tensors;
  for (auto& [name, tensor] : data::SafetensorsFile::open(path).read_all()) tensors[name] = tensor;
  return tensors;
}

Tensor noise(const Shape& shape, uint64_t seed) {
  const Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mut<float>()[i] = normal({seed, 0}, static_cast<uint64_t>(i));
  return t;
}

struct Grad {
  TempFolder folder;
  std::shared_ptr<Module> model;

  void prepare(const std::string& json, const Shape& image, const Tensor& input, bool with_target) {
    write_file(folder / "c.json", json);
    Config config = load_config(folder / "c.json");
    if (!config.model.in_channels) config.model.in_channels = image.back();
    if (!config.model.num_classes) config.model.num_classes = 10;
    model = make_model(config, {image, 0}, kCpu);
    data::write_safetensors(folder / "w", models::state_dict(*model));
    std::vector<std::pair<std::string, Tensor>> batch{{"input", input}};
    std::vector<int64_t> target;
    for (int64_t n = 0; n < input.size(0); ++n) target.push_back(n % 10);
    if (with_target) batch.emplace_back("target", Tensor::from(target, {input.size(0)}));
    data::write_safetensors(folder / "b", batch);
  }
  Ran run(const std::string& more = "") {
    return frugal("grad " + folder / "c.json" + " --weights " + folder / "w" + " --batch " +
                  folder / "b" + " --out " + folder / "g" + " --json " + more);
  }
  double loss_with(const std::string& name, int64_t index, double change,
                   const std::string& more = "") {
    auto state = models::state_dict(*model);
    for (auto& [each, tensor] : state)
      if (each == name) tensor.mut<float>()[index] += static_cast<float>(change);
    data::write_safetensors(folder / "w", state);
    const Ran ran = run(more);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return read(folder / "g").at("loss").item();
  }
};

}  // namespace

TEST_CASE_FIXTURE(Grad, "a configuration with nothing but the model is enough") {
  prepare(R"({"model": {"name": "resnet20", "num_classes": 10}, "compression": {"level": "L0"}})",
          {8, 8, 3}, noise({4, 3, 8, 8}, 1), true);
  const Ran ran = run();
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json report = Json::parse(ran.out);
  const Tensors out = read(folder / "g");
  CHECK(report["loss"].get<double>() == out.at("loss").item());
  CHECK(report["memory"]["activation_bytes"].get<int64_t>() > 0);
  CHECK(report["memory"]["packed_bytes"] == 0);
  CHECK(out.at("output").shape() == Shape{4, 10});
  CHECK(out.at("grad/conv1.weight").shape() == Shape{16, 3, 3, 3});
  CHECK(out.at("grad/linear.bias").shape() == Shape{10});
  CHECK(out.at("buffer/bn1.num_batches_tracked").item() == 1);
  CHECK(out.at("buffer/bn1.running_mean").to_vector() != std::vector<double>(16, 0.0));
  CHECK(out.size() == 2 + model->parameters().size() + model->buffers().size());
}

TEST_CASE_FIXTURE(Grad, "gradients agree with differences of the loss, element by element") {
  // Layouts are asymmetric on purpose: 3 channels, 8 x 6 pixels, and single elements of OIHW.
  prepare(R"({"model": {"name": "resnet20", "num_classes": 10},
              "compression": {"level": "L0"}})",
          {8, 6, 3}, noise({6, 3, 8, 6}, 2), true);
  REQUIRE(run().status == 0);
  const Tensors out = read(folder / "g");
  const Tensor& gradient = out.at("grad/conv1.weight");
  for (int64_t index : {100, 431}) {
    constexpr double kStep = 2e-3;
    const double difference =
        (loss_with("conv1.weight", index, kStep) - loss_with("conv1.weight", index, -kStep)) /
        (2 * kStep);
    CHECK(gradient.item(index) == doctest::Approx(difference).epsilon(0.1).scale(0.1));
  }
}

TEST_CASE_FIXTURE(Grad, "in f64 they agree with differences of much smaller steps") {
  prepare(R"({"model": {"name": "resnet20", "num_classes": 10}, "compression": {"level": "L0"}})",
          {8, 6, 3}, noise({6, 3, 8, 6}, 2), true);
  REQUIRE(run("--f64").status == 0);
  const Tensors out = read(folder / "g");
  const Tensor& gradient = out.at("grad/conv1.weight");
  CHECK(gradient.dtype() == DType::f64);
  constexpr double kStep = 0x1p-16;
  const double difference = (loss_with("conv1.weight", 100, kStep, "--f64") -
                             loss_with("conv1.weight", 100, -kStep, "--f64")) /
                            (2 * kStep);
  // The steps are rounded to f32 in the file of the weights.
  CHECK(gradient.item(100) == doctest::Approx(difference).epsilon(1e-2));
  REQUIRE(run().status == 0);
  const Tensors rounded = read(folder / "g");
  CHECK(rounded.at("loss").dtype() == DType::f32);
  CHECK(rounded.at("loss").item() != out.at("loss").item());
  CHECK(rounded.at("loss").item() == doctest::Approx(out.at("loss").item()).epsilon(1e-4));
}

TEST_CASE_FIXTURE(Grad, "without a target the loss is the sum of the output") {
  prepare(R"({"model": {"name": "mlp", "hidden": [5]}})", {2, 3, 2}, noise({4, 2, 2, 3}, 3), false);
  const Ran ran = run();
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Tensors out = read(folder / "g");
  double sum = 0;
  for (double value : out.at("output").to_vector()) sum += value;
  CHECK(out.at("loss").item() == doctest::Approx(sum).epsilon(1e-5));
  CHECK(out.at("grad/fc2.bias").to_vector() == std::vector<double>(10, 4.0));
}

TEST_CASE_FIXTURE(Grad, "of a list of layers, by position; the classes come from the last one") {
  prepare(R"({"model": {"name": "sequential", "modules": [
              {"conv2d": {"out_channels": 4, "kernel_size": 3}}, "batch_norm", "relu", "flatten",
              {"linear": {}}]}})",
          {5, 4, 3}, noise({4, 3, 5, 4}, 1), true);
  const Ran ran = run();
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Tensors out = read(folder / "g");
  CHECK(out.at("output").shape() == Shape{4, 10});
  CHECK(out.at("grad/0.weight").shape() == Shape{4, 3, 3, 3});
  CHECK(out.at("grad/4.weight").shape() == Shape{10, 24});
  CHECK(out.at("buffer/1.num_batches_tracked").item() == 1);
}

TEST_CASE_FIXTURE(
    Grad, "a class for each pixel: 255 does not count, and the last layer tells the classes") {
  prepare(R"({"model": {"name": "unet", "width": 2}, "compression": {"level": "L0"}})", {16, 20, 3},
          noise({2, 3, 16, 20}, 3), false);
  std::vector<int64_t> target;
  for (int64_t i = 0; i < 2 * 16 * 20; ++i) target.push_back(i % 7 == 3 ? 255 : i % 10);
  data::write_safetensors(folder / "b", {{"input", noise({2, 3, 16, 20}, 3)},
                                         {"target", Tensor::from(target, {2, 16, 20})}});
  const Ran ran = run();
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Tensors out = read(folder / "g");
  const std::vector<double> logits = out.at("output").to_vector();
  REQUIRE(logits.size() == 10 * target.size());
  double loss = 0, counted = 0;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 255) continue;
    double total = 0;
    for (size_t c = 0; c < 10; ++c) total += std::exp(logits[10 * i + c]);
    loss += std::log(total) - logits[10 * i + static_cast<size_t>(target[i])];
    counted += 1;
  }
  CHECK(out.at("loss").item() == doctest::Approx(loss / counted).epsilon(1e-5));
  CHECK(out.at("grad/outc.conv.weight").shape() == Shape{10, 2, 1, 1});
  data::write_safetensors(folder / "b", {{"input", noise({2, 3, 16, 20}, 3)},
                                         {"target", Tensor::zeros({2, 20, 16}, DType::i64)}});
  const Ran turned = run();
  CHECK(turned.status == 1);
  CHECK(turned.err.find("expected 'target' to be [2, 16, 20] i64") != std::string::npos);
}

TEST_CASE_FIXTURE(Grad, "bad batches and weights") {
  prepare(R"({"model": {"name": "mlp", "hidden": [5]}})", {2, 3, 1}, noise({4, 1, 2, 3}, 3), true);
  CHECK(run().status == 0);
  auto fails = [&](const char* word, int status = 1) {
    const Ran ran = run();
    CHECK(ran.status == status);
    CHECK_MESSAGE(ran.err.find(word) != std::string::npos, ran.err);
  };
  const Tensor input = noise({4, 1, 2, 3}, 3);
  data::write_safetensors(folder / "b", {{"inputs", input}});
  fails("'input'");
  data::write_safetensors(folder / "b", {{"input", input}, {"other", input}});
  fails("'other'");
  data::write_safetensors(folder / "b", {{"input", input}, {"target", input}});
  fails("'target'");
  data::write_safetensors(
      folder / "b", {{"input", input}, {"target", Tensor::from<int64_t>({0, 1, 2, 10}, {4})}});
  fails("10");
  data::write_safetensors(folder / "b", {{"input", noise({4, 1, 3, 3}, 3)}});
  fails("wrong shape", 2);
  std::filesystem::remove(folder / "g");
  data::write_safetensors(folder / "b", {{"input", Tensor::full({4, 1, 2, 3}, 3e38)}});
  fails("[grad] expected a finite loss, got ");
  CHECK_FALSE(std::filesystem::exists(folder / "g"));
  const Ran foreign = run("--set model.alpha=0.3");
  CHECK(foreign.status == 2);
  CHECK_MESSAGE(foreign.err.find("model.alpha: expected null") != std::string::npos, foreign.err);
  prepare(R"({"model": {"name": "mlp"}, "compression": {"memory_budget": "1 GiB"}})", {2, 3, 1},
          noise({4, 1, 2, 3}, 3), true);
  const Ran planned = run();
  CHECK(planned.status == 2);
  CHECK_MESSAGE(planned.err.find("compression.memory_budget") != std::string::npos, planned.err);
}

}  // namespace frugal::apps
