#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

#include "apps/cli/cli.h"
#include "apps/cli/commands.h"
#include "apps/config/adapter_files.h"
#include "apps/config/config.h"
#include "apps/config/hub_folder.h"
#include "apps/config/profile_file.h"
#include "apps/config/resolve.h"
#include "apps/config/stored_run.h"
#include "apps/report/page.h"
#include "apps/report/run_data.h"
#include "apps/reproduce/store.h"
#include "apps/reproduce/table_file.h"
#include "core/error.h"
#include "data/formats/json_strict.h"
#include "data/formats/safetensors.h"
#include "tests/fuzz/reader.h"
#include "train/run/checkpoint.h"
#include "train/run/model.h"
#include "train/run/run_folder.h"
#include "train/run/weights.h"

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
                                          "\"conv2d\": {",
                                          "\"linear\": ",
                                          "\"max_pool2d\": ",
                                          "\"dropout\": ",
                                          "\"repeat\": {\"times\": ",
                                          "\"residual\": [",
                                          "\"branches\": [",
                                          "\"kernel_size\": ",
                                          "\"out_channels\": ",
                                          "\"padding\": ",
                                          "\"stride\": ",
                                          "\"groups\": ",
                                          "\"compression\": {",
                                          "\"policy\": ",
                                          "\"adaptive\"",
                                          "\"actnn\"",
                                          "\"acgc\"",
                                          "\"level\": \"L3\"",
                                          "\"memory_budget\": \"1 MiB\"",
                                          "\"1/2 activations\"",
                                          "\"bits\": ",
                                          "\"offload\": ",
                                          "\"guard\": ",
                                          "\"optim\": {",
                                          "\"schedule\": {",
                                          "\"warmup",
                                          "\"freeze\": [",
                                          "\"adapter\": {\"type\": \"lora\"",
                                          "\"train\": {",
                                          "\"data\": {",
                                          "\"shape\": [",
                                          "null",
                                          "true",
                                          "-1",
                                          "1e30",
                                          "9007199254740993",
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
         folder.keep("model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
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

// Runs the program as its command line would, in a process of its own.
void run(std::vector<std::string> words) {
  words.insert(words.begin(), "frugal");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const Silence silence;
    _exit(apps::run_cli(static_cast<int>(arguments.size()), arguments.data()));
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    throw Error("a command that makes seeds failed: " + words[1]);
}

// The content of files, by their paths in a folder.
using Files = std::vector<std::pair<std::string, std::string>>;

Files files_in(const std::string& folder) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files.emplace_back(fs::relative(entry.path(), folder).string(), content(entry.path()));
  return files;
}

constexpr const char* kMarkup = "<q>";
const std::vector<std::string> kRunWords = {"null", "-1", "1e30", "\"../x\"",
                                            "[]",   "{}", "\"\"", "\"<q>\""};

// A reader of the file `fuzzed` among `files`.
void add_file(std::vector<Reader>& readers, const std::string& begin, const Files& files,
              const std::string& fuzzed, const std::function<void(const std::string&)>& open) {
  for (const auto& [name, text] : files)
    if (name == fuzzed)
      readers.push_back({begin + fs::path(fuzzed).filename().string(),
                         {text},
                         kRunWords,
                         [=](const FuzzFolder& folder, const std::string& bytes) {
                           for (const auto& [other, own] : files)
                             if (other != fuzzed) folder.keep(other, own);
                           folder.write(fuzzed, bytes);
                           open(folder.path());
                         }});
}

// The files of a run of a few steps. Its configuration is the short one again, which takes less
// time to read than the run's own, which has all keys: `all_keys`, unless null, gets that one.
Files files_of_run(const FuzzFolder& folder, const std::string& config,
                   std::string* all_keys = nullptr) {
  const std::string out = folder.path() + "/run";
  fs::remove_all(out);
  run({"train", folder.write("config.json", config), "--out", out, "--quiet"});
  Files files = files_in(out);
  for (auto& [name, text] : files)
    if (name == "config.json") {
      if (all_keys != nullptr) *all_keys = text;
      text = config;
    }
  return files;
}

void add_run(std::vector<Reader>& readers) {
  std::string all_keys;
  const Files files = files_of_run(FuzzFolder(), kConfig, &all_keys);
  const auto add = [&](const std::string& fuzzed,
                       const std::function<void(const std::string& folder)>& open) {
    add_file(readers, "run_", files, fuzzed, open);
  };
  const auto load = [](const std::string& folder) { train::load(folder); };
  add("config.json", load);
  readers.back().seeds.push_back(all_keys);
  add("input.json", load);
  add("checkpoint/last.safetensors",
      [run = Once<apps::StoredRun>([](const std::string& folder) {
         return apps::read_run(folder);
       })](const std::string& folder) { apps::stored_network(run.of(folder), "best", kCpu); });
  const auto report = [](const std::string& folder) {
    const apps::ReportRun run = apps::read_report_run(folder);
    for (const std::string& page : {apps::report_page(run), apps::overlay_page({run, run})})
      if (page.find(kMarkup) != std::string::npos)
        throw std::logic_error("the page takes a text of a file for markup");
  };
  add("metrics.jsonl", report);
  add("tensor_times.json", report);
  add("summary.json", [report](const std::string& folder) {
    report(folder);
    const Silence silence;
    apps::compare_command({folder, folder}, false);
  });
  // What a run resumes from: the text in the metadata, and the tensors.
  add("checkpoint/state.safetensors", [](const std::string& folder) {
    const train::RunFolder run(folder, true);
    run.read();
  });
}

// What runs keep of their data: of a table, and of a text.
void add_encodings(std::vector<Reader>& readers) {
  const auto load = [](const std::string& folder) { train::load(folder); };
  const FuzzFolder folder;
  std::string rows = "a,b,kind\n", text;
  for (int i = 0; i < 24; ++i)
    rows += std::to_string(i) + (i % 5 == 0 ? ",x," : ",y,") + (i % 3 == 0 ? "yes\n" : "no\n");
  for (int i = 0; i < 20; ++i) text += "abcd abce ";
  const Files table =
      files_of_run(folder, R"({"model": {"name": "mlp", "hidden": [4]}, "train": {"steps": 1},
          "data": {"name": "csv", "target": "kind", "batch_size": 8, "dir": ")" +
                               folder.write("table.csv", rows) + "\"}}");
  for (const char* name : {"columns.json", "classes.json", "data.json"})
    add_file(readers, "table_", table, name, load);
  const Files letters =
      files_of_run(folder, R"({"model": {"name": "decoder", "layers": 1, "width": 8, "heads": 2,
          "vocab_size": 6, "max_positions": 16}, "train": {"steps": 1}, "data": {"name": "text", "max_length": 8,
          "batch_size": 8, "dir": ")" +
                               folder.write("text.txt", text) + "\"}}");
  add_file(readers, "text_", letters, "characters.txt", load);
  add_file(readers, "text_", letters, "input.json", load);
}

// Adapters: the run that trains them, and their files for other programs.
void add_adapters(std::vector<Reader>& readers) {
  const auto kept = std::make_shared<FuzzFolder>();  // base.json names a file in it
  const std::string base = kept->path() + "/base", data = R"("train": {"steps": 1}, "data":
      {"name": "random_tokens", "max_length": 8, "batch_size": 4, "train_samples": 40}})";
  run({"export",
       kept->write("base.json", R"({"model": {"name": "decoder", "layers": 1, "width": 8,
      "heads": 2, "vocab_size": 11, "max_positions": 16}, )" +
                                    data),
       "--random", "--format", "hf", "--output", base});
  const Files files =
      files_of_run(*kept, R"({"model": {"weights": ")" + base +
                              R"("}, "adapter": {"type": "lora", "rank": 2}, )" + data);
  add_file(readers, "adapters_", files, "base.json",
           [kept](const std::string& folder) { train::load(folder); });
  const auto read = [](const std::string& path) {
    apps::adapter_contents(path);
    apps::Json document = {{"model", {{"adapter", path}}}};
    apps::expand_adapter(document);
  };
  const std::string run_path = kept->path() + "/run";
  for (const std::string format : {"peft", "mlx-lora"}) {
    const std::string out = kept->path() + "/" + format;
    run({"export", run_path, "--format", format, "--output", out});
    add_file(readers, format + "_", files_in(out), "adapter_config.json", read);
  }
  run({"export", run_path, "--output", kept->path() + "/adapter.gguf"});
  readers.push_back({"adapter_gguf",
                     {content(kept->path() + "/adapter.gguf")},
                     {"GGUF", "adapter.lora.alpha", "general.architecture", "blk.0."},
                     [read](const FuzzFolder& folder, const std::string& bytes) {
                       read(folder.write("adapter.gguf", bytes));
                     }});
}

// Widths of a step that was recorded.
void add_profile(std::vector<Reader>& readers) {
  const auto config =
      std::make_shared<apps::Config>(apps::load_document(data::parse_json<apps::Json>(kConfig)));
  apps::resolve(*config);
  const FuzzFolder folder;
  const std::string path = folder.path() + "/profile.json";
  apps::RecordedRun recorded{*config, {}};
  recorded.profile.tensors[3] = {"conv2d", 0, 64, 32};
  recorded.profile.tensors[5] = {"relu", 1, 128, 96};
  apps::write_profiles(path, {recorded});
  readers.push_back({"profile",
                     {content(path)},
                     {"\"seq\": ", "\"tensors\": [", "-1", "1e30", "9007199254740993"},
                     [config](const FuzzFolder& scratch, const std::string& bytes) {
                       apps::read_profile(scratch.write("p.json", bytes), *config);
                     }});
}

// The text beside a weight that bitsandbytes has packed in 4 bits.
void add_packed(std::vector<Reader>& readers) {
  const auto read = [](const FuzzFolder& folder, const std::string& bytes) {
    const bool nested = bytes.find("nested") != std::string::npos;
    const auto values = [](int64_t count) { return Tensor::full({count}, 0.5, DType::f32); };
    std::vector<std::pair<std::string, Tensor>> tensors = {
        {"x.weight", Tensor::full({32, 1}, 7, DType::u8)},
        {"x.weight.absmax", nested ? Tensor::full({4}, 3, DType::u8) : values(4)},
        {"x.weight.quant_map", values(16)}};
    if (nested) {
      tensors.emplace_back("x.weight.nested_absmax", values(2));
      tensors.emplace_back("x.weight.nested_quant_map", values(256));
    }
    const std::vector<uint8_t> text(bytes.begin(), bytes.end());
    tensors.emplace_back("x.weight.quant_state.bitsandbytes__nf4",
                         Tensor::from(text, {static_cast<int64_t>(text.size())}));
    const std::string path = folder.path() + "/model.safetensors";
    data::write_safetensors(path, tensors);
    train::read_weights(data::SafetensorsShards::open(path));
  };
  readers.push_back(
      {"packed_state",
       {R"({"quant_type": "nf4", "blocksize": 16, "dtype": "float32", "shape": [8, 8]})",
        R"({"quant_type": "nf4", "blocksize": 16, "dtype": "float32", "shape": [8, 8],
            "nested_blocksize": 2, "nested_dtype": "float32", "nested_offset": 0.25})"},
       {"\"shape\": [", "\"blocksize\": ", "\"nested_offset\": ", "1073741824", "1e39"},
       read});
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
  add_encodings(readers);
  add_adapters(readers);
  add_profile(readers);
  add_packed(readers);
  add_store(readers);
  return readers;
}

}  // namespace frugal_test
