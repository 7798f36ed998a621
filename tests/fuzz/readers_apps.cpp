#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "apps/cli/cli.h"
#include "apps/cli/commands.h"
#include "apps/config/config.h"
#include "apps/config/hub_folder.h"
#include "apps/config/resolve.h"
#include "apps/config/stored_run.h"
#include "apps/report/page.h"
#include "apps/report/run_data.h"
#include "apps/reproduce/store.h"
#include "apps/reproduce/table_file.h"
#include "core/error.h"
#include "data/formats/json_strict.h"
#include "tests/fuzz/reader.h"
#include "train/run/checkpoint.h"
#include "train/run/model.h"
#include "train/run/run_folder.h"

namespace frugal_test {
namespace {

using namespace frugal;
using apps::Json;
namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::string kConfig =
    R"({"model": {"name": "sequential", "modules": [
        {"conv2d": {"out_channels": 2, "kernel_size": 3, "padding": 1}}, "relu",
        {"repeat": {"times": 2, "modules": [{"residual": {"modules": [{"conv2d": {"out_channels": 2, "kernel_size": 1}}]}}]}},
        "mean_pool", {"linear": 2}]},
      "data": {"name": "random", "shape": [4, 4, 1], "classes": 2, "train_samples": 8, "test_samples": 4, "batch_size": 4},
      "train": {"epochs": 1}, "optim": {"name": "sgd", "lr": 0.1}, "compression": {"policy": "gact", "bits": 4, "gact": {"adaptive": true, "interval": 1},
        "advanced": {"min_elements": 16}}})";

void add_configs(std::vector<Reader>& readers) {
  const std::vector<std::string> words = {"\"model\": {",
                                          "\"name\": \"",
                                          "\"modules\": [",
                                          "\"type\": \"",
                                          "\"conv\"",
                                          "\"linear\"",
                                          "\"repeat\": ",
                                          "\"residual\"",
                                          "\"branches\": ",
                                          "\"kernel\": ",
                                          "\"compression\": {",
                                          "\"policy\": ",
                                          "\"adaptive\"",
                                          "\"actnn\"",
                                          "\"acgc\"",
                                          "\"level\": \"L3\"",
                                          "\"memory_budget\": \"1 MiB\"",
                                          "\"bits\": ",
                                          "\"optim\": {",
                                          "\"schedule\": ",
                                          "null",
                                          "true",
                                          "-1",
                                          "1e30",
                                          "\"$schema\": \"\""};
  const auto parse = [](const FuzzFolder&, const std::string& bytes) {
    apps::config_text(apps::load_document(data::parse_json<Json>(bytes)));
  };
  readers.push_back(
      {"config", {kConfig, "{}", R"({"compression": {"level": "L2"}})"}, words, parse});
  readers.push_back({"set",
                     {"model.name=resnet20", "optim.lr=0.5", "model.modules[0].conv2d.stride=2"},
                     {".", "[", "]", "=", "{", "model.", "compression."},
                     [](const FuzzFolder&, const std::string& bytes) {
                       apps::load_document(data::parse_json<Json>(kConfig), {bytes});
                     }});
  readers.push_back(
      {"hub_config",
       {R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 11,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": true, "torch_dtype": "float32"})"},
       {"\"rope_scaling\": {", "\"rope_type\": \"llama3\"", "\"factor\": ", "\"gemma2\"",
        "\"qwen3\"", "\"sliding_window\": ", "\"head_dim\": ", "null"},
       [](const FuzzFolder& folder, const std::string& bytes) {
         folder.write("config.json", bytes);
         folder.write("model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
         apps::hub_keys(folder.path());
       }});
  Reader table{"table", {}, {"\"rows\": ", "\"sets\": ", "\"scales\": ", "\"columns\": "}, {}};
  for (const char* name : {"actnn-variance", "gact-memory", "full-graphs"})
    table.seeds.push_back(
        content(fs::path(FRUGAL_CONFIGS) / "reproduce" / (std::string(name) + ".json")));
  table.read = [](const FuzzFolder& folder, const std::string& bytes) {
    apps::read_table(folder.write("table.json", bytes));
  };
  readers.push_back(table);
}

// While one lives, what the program prints is not shown.
class Silence {
 public:
  Silence() : kept_(dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nothing, STDOUT_FILENO);
    close(nothing);
  }
  ~Silence() {
    std::fflush(stdout);
    dup2(kept_, STDOUT_FILENO);
    close(kept_);
  }

 private:
  int kept_;
};

// The files of a run of a few steps, by their paths in its folder.
std::vector<std::pair<std::string, std::string>> files_of_run() {
  const FuzzFolder folder;
  const std::string config = folder.write("config.json", kConfig), out = folder.path() + "/run";
  std::vector<std::string> words = {"frugal", "train", config, "--out", out, "--quiet"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const Silence silence;
  if (apps::run_cli(static_cast<int>(arguments.size()), arguments.data()) != 0)
    throw Error("the run whose files are seeds failed");
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& entry : fs::recursive_directory_iterator(out))
    if (entry.is_regular_file())
      files.emplace_back(fs::relative(entry.path(), out).string(), content(entry.path()));
  return files;
}

void add_run(std::vector<Reader>& readers) {
  const auto files = files_of_run();
  const auto others = [files](const FuzzFolder& folder, const std::string& fuzzed,
                              const std::string& bytes) {
    for (const auto& [name, text] : files) folder.write(name, name == fuzzed ? bytes : text);
  };
  const auto add = [&](const std::string& fuzzed, const std::vector<std::string>& words,
                       const std::function<void(const std::string& folder)>& open) {
    for (const auto& [name, text] : files)
      if (name == fuzzed)
        readers.push_back({"run_" + fs::path(fuzzed).filename().string(),
                           {text},
                           words,
                           [=](const FuzzFolder& folder, const std::string& bytes) {
                             others(folder, fuzzed, bytes);
                             open(folder.path());
                           }});
  };
  const std::vector<std::string> words = {"null", "-1", "1e30", "\"../x\"", "[]", "{}", "\"\""};
  const auto load = [](const std::string& folder) { train::load(folder); };
  add("config.json", words, load);
  add("input.json", words, load);
  add("data.json", words, load);
  add("checkpoint/last.safetensors", words, load);
  const auto report = [](const std::string& folder) {
    const apps::ReportRun run = apps::read_report_run(folder);
    apps::report_page(run);
    apps::overlay_page({run, run});
  };
  add("metrics.jsonl", words, report);
  add("tensor_times.json", words, report);
  add("summary.json", words, [report](const std::string& folder) {
    report(folder);
    const Silence silence;
    apps::compare_command({folder, folder}, false);
  });
  // What a run resumes from: the text in the metadata, and the tensors.
  add("checkpoint/state.safetensors", words, [](const std::string& folder) {
    const train::RunFolder run(folder, true);
    run.read();
  });
}

void add_store(std::vector<Reader>& readers) {
  if (!apps::ResultStore::available()) return;
  const FuzzFolder folder;
  const std::string path = folder.path() + "/results.sqlite";
  {
    apps::ResultStore store(path);
    apps::StoredResult result;
    result.values = {{"activation", 1}};
    result.date = "2026-01-01 00:00:00";
    store.put({"a", "memory", 0, "reduced"}, result);
  }
  readers.push_back({"results",
                     {content(path)},
                     {"SQLite format 3", "CREATE TABLE", "{\"", "null"},
                     [](const FuzzFolder& scratch, const std::string& bytes) {
                       apps::ResultStore store(scratch.write("r.sqlite", bytes));
                       store.find({"a", "memory", 0, "reduced"});
                     }});
}

}  // namespace

std::vector<Reader> app_readers() {
  std::vector<Reader> readers;
  add_configs(readers);
  add_run(readers);
  add_store(readers);
  return readers;
}

}  // namespace frugal_test
