// Whole runs from configurations: CUDA follows the CPU, checkpoints are kept and read back, and
// captured steps give the bits of steps that are run.
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "apps/cli/training_run.h"
#include "apps/config/config.h"
#include "apps/config/keys/config_error.h"
#include "apps/config/resolve.h"
#include "tests/cuda/gpu.h"

using namespace frugal;
using namespace frugal::apps;

namespace {

constexpr const char* kEncoder = R"({
  "model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "vocab_size": 60},
  "data": {"name": "random_tokens", "batch_size": 8, "max_length": 12, "classes": 3,
           "train_samples": 48, "test_samples": 16},
  "optim": {"name": "adamw", "lr": 0.01, "clip_norm": 1},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}},
  "train": {"epochs": 1}})";

constexpr const char* kImages = R"({
  "model": {"name": "resnet20"},
  "data": {"name": "random", "batch_size": 4, "shape": [8, 8, 3], "train_samples": 12, "test_samples": 4},
  "optim": {"lr": 0.05, "momentum": 0.9},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}},
  "train": {"epochs": 1}})";

constexpr const char* kGraph = R"({
  "model": {"name": "gcn", "width": 16},
  "data": {"name": "random_graph", "nodes": 120, "edges": 300, "features": 12, "classes": 3},
  "optim": {"name": "adam", "lr": 0.01},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}},
  "train": {"epochs": 4}})";

Json run(const char* text, const std::vector<std::string>& sets, const std::string& out = "",
         bool resume = false) {
  Json document = Json::parse(text);
  apply_sets(document, sets);
  Config config = parse_config(document);
  resolve(config);
  TrainOptions options;
  options.quiet = true;
  options.out = out;
  options.resume = resume;
  return TrainingRun(config, options).run();
}

double loss_of(const Json& summary) { return summary["final"]["train_loss"].get<double>(); }

}  // namespace

TEST_CASE("training on CUDA follows the CPU's, packed and not, in every precision") {
  if (!gpu::available()) return;
  for (const char* text : {kEncoder, kImages, kGraph})
    for (const std::string level : {"L0", "L1", "L1.2"}) {
      const std::string model = Json::parse(text)["model"]["name"];
      CAPTURE(model);
      CAPTURE(level);
      std::vector<std::string> sets = {"compression.level=" + level};
      // By default the CPU dithers and CUDA does not; drawn alike, both pack the same bytes.
      if (level != "L0") sets.push_back("compression.advanced.rounding=stochastic");
      const Json cpu = run(text, sets);
      sets.push_back("device=cuda");
      const Json cuda = run(text, sets);
      CHECK(loss_of(cuda) == doctest::Approx(loss_of(cpu)).epsilon(0.02));
      // The host's own small tensors count as activations on the CPU.
      const auto more = cpu["memory"]["activation_bytes"].get<int64_t>() -
                        cuda["memory"]["activation_bytes"].get<int64_t>();
      CHECK(more >= 0);
      CHECK(more <= 128);
      CHECK(cuda["memory"]["packed_bytes"] == cpu["memory"]["packed_bytes"]);
      sets.push_back("precision=bf16");
      const Json half = run(text, sets);
      CHECK(loss_of(half) == doctest::Approx(loss_of(cpu)).epsilon(0.1));
    }
  CHECK(allocator(gpu::kCuda).report().of(Category::packed) == 0);
}

TEST_CASE("a step that is run waits once, unless norms of layers are measured") {
  if (!gpu::available() || !gpu::emulated()) return;  // a GPU counts no waits
  const auto waits = [](const char* text, int steps, std::vector<std::string> sets) {
    sets.emplace_back("device=cuda");
    sets.push_back(fmt::format("train.steps={}", steps));
    const int64_t before = emulator::waits();
    run(text, sets);
    return emulator::waits() - before;
  };
  const auto of_a_step = [&](const char* text, const std::vector<std::string>& sets) {
    const int64_t both = waits(text, 3, sets) - waits(text, 1, sets);
    CHECK(both % 2 == 0);
    return both / 2;
  };
  CHECK(of_a_step(kEncoder, {}) == 1);
  CHECK(of_a_step(kEncoder, {"optim.clip_norm=0"}) == 1);
  CHECK(of_a_step(kEncoder, {"train.grad_norms=1"}) > 2);
  CHECK(of_a_step(kImages, {}) == 1);
}

TEST_CASE("a run on the second GPU has the bits of one on the first, and leaves that alone") {
  if (!gpu::available()) return;
  if (cuda::device_count() < 2) return;
  const Device second{DeviceType::cuda, 1};
  for (const char* text : {kEncoder, kImages, kGraph})
    for (const std::string more : {"cuda_graphs=false", "cuda_graphs=true"}) {
      CAPTURE(text);
      CAPTURE(more);
      const Json expected = run(text, {"device=cuda:0", more});
      Allocator& other = allocator(gpu::kCuda);
      other.reset_peak();
      const int64_t before = other.report().peak_total;
      const Json got = run(text, {"device=cuda:1", more});
      CHECK(other.report().peak_total == before);
      CHECK(loss_of(got) == loss_of(expected));
      CHECK(got["final"]["test_loss"] == expected["final"]["test_loss"]);
      // Beside "input": features of an earlier run's graph are kept until the next graph comes.
      for (const char* category : {"parameter", "gradient", "optimizer", "activation", "packed"})
        CHECK(got["memory"]["at_peak"][category] == expected["memory"]["at_peak"][category]);
      CHECK(got["memory"]["activation_bytes"] == expected["memory"]["activation_bytes"]);
      CHECK(got["memory"]["packed_bytes"] == expected["memory"]["packed_bytes"]);
    }
  CHECK_THROWS_AS(run(kEncoder, {"device=cuda:1", "memory_limit=\"100 KiB\""}), OutOfMemory);
  CHECK(allocator(second).report().limit == 100 << 10);
  CHECK(allocator(gpu::kCuda).report().limit == 0);
  run(kEncoder, {"device=cuda:1"});
  const int count = cuda::device_count();
  CHECK_THROWS_WITH_AS(
      run(kEncoder, {fmt::format("device=cuda:{}", count)}),
      doctest::Contains(fmt::format("expected cuda:0 to cuda:{}", count - 1).c_str()), ConfigError);
}

TEST_CASE("a run that was begun on CUDA is kept, and read back") {
  if (!gpu::available()) return;
  const std::string out =
      std::filesystem::temp_directory_path() / fmt::format("frugal_cuda_{}", getpid());
  std::filesystem::remove_all(out);
  run(kEncoder, {"device=cuda"}, out);
  CHECK(std::filesystem::exists(out + "/checkpoint/state.safetensors"));
  const Json whole = run(kEncoder, {"device=cuda"});
  CHECK(loss_of(run(kEncoder, {"device=cuda"}, out, true)) == loss_of(whole));
  std::filesystem::remove_all(out);
}

TEST_CASE("a captured run that diverges ends with the error of one that is run") {
  if (!gpu::available()) return;
  constexpr const char* kMlp = R"({
    "model": {"name": "mlp", "hidden": [24, 24, 24]},
    "data": {"name": "random", "batch_size": 8, "shape": [4, 4, 3], "train_samples": 40,
             "test_samples": 4},
    "optim": {"lr": 10000, "momentum": 0.9},
    "train": {"epochs": 1}})";
  const auto error_of = [&](const char* graphs) -> std::string {
    try {
      run(kMlp, {"device=cuda", graphs});
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  const std::string expected = error_of("cuda_graphs=false");
  CAPTURE(expected);
  CHECK(expected.find("first non-finite tensor: gradient of ") != std::string::npos);
  CHECK(expected.find("step 1:") == std::string::npos);  // step 1 is not captured
  CHECK(error_of("cuda_graphs=true") == expected);
}

TEST_CASE("captured steps give the bits of steps that are run") {
  if (!gpu::available()) return;
  const std::vector<std::pair<const char*, std::string>> cases = {
      {kEncoder, "compression.level=L0"},
      {kEncoder, "compression.level=L1"},
      {kEncoder, "compression.level=L1.2 compression.advanced.rounding=dithered"},
      // Plans are made anew while steps are captured; so are bits by a guard.
      {kEncoder, "compression.level=L2 compression.gact.interval=3"},
      {kEncoder, "compression.guard=0.1 compression.advanced.track_interval=3"},
      {kGraph, "compression.level=L0"},
      {kGraph, "compression.level=L1"},
      // Graphs that are drawn at each step are run.
      {kGraph, "data.sampler=node data.batch_size=40"},
      // An obstacle: ranges of samples are read on the host.
      {kEncoder, "compression.policy=actnn compression.level=L3 compression.actnn.interval=4"}};
  for (const auto& [text, policy] : cases) {
    CAPTURE(std::string(text));
    CAPTURE(policy);
    std::vector<std::string> sets = {"device=cuda"};
    std::istringstream words(policy);
    for (std::string set; words >> set;) sets.push_back(set);
    const Json a = run(text, sets);
    sets.emplace_back("cuda_graphs=true");
    const Json b = run(text, sets);
    CHECK(loss_of(a) == loss_of(b));
    CHECK(a["final"]["test_loss"] == b["final"]["test_loss"]);
    CHECK(a["memory"]["packed_bytes"] == b["memory"]["packed_bytes"]);
  }
  CHECK_THROWS_WITH_AS(
      run(kEncoder, {"device=cuda", "cuda_graphs=true",
                     "compression.offload=" + std::filesystem::temp_directory_path().string()}),
      doctest::Contains("trainer.cuda_graphs: expected false with in_backward, offload"),
      OptionError);
  CHECK_THROWS_AS(run(kEncoder, {"cuda_graphs=true"}), ConfigError);
  CHECK_THROWS_AS(run(kEncoder, {"precision=bf16"}), ConfigError);
}
