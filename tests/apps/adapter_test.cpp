// Runs that train adapters, and adapters in the files of other programs.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "apps/config/adapter_files.h"
#include "data/formats/gguf.h"
#include "data/formats/json_strict.h"
#include "data/formats/safetensors.h"
#include "ops/dense/copy.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// A tiny decoder with grouped heads, whose rows llama.cpp has in another order.
constexpr const char* kNetwork =
    " --set model.name=decoder --set model.layers=2 --set model.width=16 --set model.heads=4"
    " --set model.kv_heads=2 --set model.feed_forward=24 --set model.vocab_size=40"
    " --set model.max_positions=16";
constexpr const char* kData =
    " --set data.name=random_tokens --set data.max_length=8 --set data.train_samples=32"
    " --set data.batch_size=4 --set optim.name=adamw --set optim.lr=0.02 --set train.steps=4"
    " --set schedule.name=constant"
    " --set compression.bits=4";

std::string adapter(const std::string& type, const std::string& more = "") {
  return fmt::format(" --set adapter.type={} --set adapter.rank=3 --set adapter.alpha=6 {}", type,
                     more);
}

struct Base {
  TempFolder folder;
  std::string config = folder / "config.json", base = folder / "base", run = folder / "run";
  Base() {
    write_file(config, "{}");
    const Ran made = frugal(fmt::format("export {} --random{}{} --format hf --output {}", config,
                                        kNetwork, kData, base));
    REQUIRE_MESSAGE(made.status == 0, made.err);
  }
  std::string start() const {
    return fmt::format("{}{} --set model.weights={}", config, kData, base);
  }
  Ran train(const std::string& more, const std::string& out) const {
    return frugal(fmt::format("train {}{} --out {}", start(), more, folder / out));
  }
};

double loss_of(const std::string& arguments) {
  const Ran ran = frugal("eval " + arguments + " --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return data::parse_json<nlohmann::json>(ran.out).at("loss").get<double>();
}

std::map<std::string, Tensor> tensors_of(const std::string& path) {
  std::map<std::string, Tensor> all;
  for (auto& [name, tensor] : data::SafetensorsFile::open(path).read_all()) all[name] = tensor;
  return all;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  double most = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    most = std::max(most, std::fabs(static_cast<double>(a.data<float>()[i]) -
                                    static_cast<double>(b.data<float>()[i])));
  return most;
}

}  // namespace

TEST_CASE("adapters: a run keeps what it trains, and resumes to the same bits") {
  const Base base;
  for (const char* type : {"lora", "dora"}) {
    const std::string keys = adapter(type,
                                     "--set adapter.dropout=0.2 --set train.steps=40 --set "
                                     "train.epochs=9 --set train.checkpoint_interval=1"),
                      name = type;
    REQUIRE(base.train(keys, name + "whole").status == 0);
    const std::string state = base.folder / name + "whole/checkpoint/last.safetensors";
    const auto whole = tensors_of(state);
    CHECK(whole.size() == 14 * (name == "dora" ? 3 : 2));
    for (const auto& [tensor, value] : whole) CHECK(tensor.find(".lora_") != std::string::npos);
    const std::string cut = base.folder / name + "cut",
                      train = fmt::format("train {}{} --resume", base.start(), keys);
    REQUIRE(cut_run(train, cut, "checkpoint/state.safetensors", 0, SIGKILL) == 128 + SIGKILL);
    const Ran more = frugal(train + " --out " + cut);
    REQUIRE_MESSAGE(more.status == 0, more.err);
    for (const auto& [tensor, value] : tensors_of(cut + "/checkpoint/last.safetensors"))
      CHECK(value.to_vector<float>() == whole.at(tensor).to_vector<float>());
    CHECK(read_file(cut + "/metrics.jsonl") ==
          read_file(base.folder / name + "whole/metrics.jsonl"));
  }
}

TEST_CASE("adapters: a base that changed or went is an error that names it") {
  const Base base;
  REQUIRE(base.train(adapter("lora"), "run").status == 0);
  const std::string run = base.folder / "run", weights = base.base + "/model.safetensors";
  const double loss = loss_of(run);
  const Ran shown = frugal("inspect " + run);
  const std::string gguf = base.folder / "a.gguf";
  REQUIRE(frugal(fmt::format("export {} --format gguf-lora --output {}", run, gguf)).status == 0);
  const Ran file = frugal("inspect " + gguf);
  CHECK(has(file.out, "[\"model.layers.0.self_attn.q_proj\", 13 more]"));
  CHECK_MESSAGE(longest_line(file.out) <= 80, file.out);
  CHECK(has(shown.out, "adapters in 14 layers"));
  CHECK(has(shown.out, "adapter.rank"));
  // Another place is found by the run's own note of it, or by the key.
  fs::rename(base.base, base.folder / "moved");
  Ran gone = frugal("eval " + run);
  CHECK(gone.status == 2);
  CHECK(has(gone.err, "model.weights: expected the weights beside which the run"));
  CHECK(loss_of(run + " --set model.weights=" + (base.folder / "moved")) == loss);
  const Ran further =
      frugal(fmt::format("train {}{} --set model.weights={} {} --out {} --resume --extend 5",
                         base.config, kData, base.folder / "moved", adapter("lora"), run));
  CHECK_MESSAGE(further.status == 0, further.err);
  fs::rename(base.folder / "moved", base.base);
  auto changed = tensors_of(weights);
  changed.at("model.norm.weight").mut<float>()[0] += 1;
  data::write_safetensors(weights, {changed.begin(), changed.end()}, {{"format", "pt"}});
  for (const std::string& command :
       {"eval " + run, "export " + run + " --format merged --output " + (base.folder / "out"),
        fmt::format("train {}{} --out {} --resume --extend 8", base.start(), adapter("lora"),
                    run)}) {
    const Ran ran = frugal(command);
    CHECK(ran.status == 2);
    CHECK(has(ran.err, "model.weights: expected the weights that the run"));
  }
}

TEST_CASE("adapters: files of PEFT, MLX and GGUF are read back equal") {
  const Base base;
  for (const char* type : {"lora", "rslora", "dora"}) {
    const std::string name = type, run = base.folder / name;
    const Ran trained = base.train(adapter(type,
                                           "--set 'adapter.rank_pattern=[\"k_proj=2\"]' --set "
                                           "'adapter.alpha_pattern=[\"up_proj=1\"]'"),
                                   name);
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    const double loss = loss_of(run);
    const auto own = tensors_of(run + "/checkpoint/last.safetensors");
    for (const char* format : {"peft", "mlx-lora", "gguf-lora"}) {
      CAPTURE(type);
      CAPTURE(format);
      const std::string out =
          base.folder / fmt::format("{}_{}{}", type, format, format[0] == 'g' ? ".gguf" : "");
      const Ran written =
          frugal(fmt::format("export {} --weights last --format {} --out {}", run, format, out));
      if (name == "dora" && format[0] == 'g') {
        CHECK(written.status == 2);
        CHECK(has(written.err, "adapter.type: expected lora or rslora"));
        continue;
      }
      REQUIRE_MESSAGE(written.status == 0, written.err);
      CHECK(frugal("inspect " + out).status == 0);
      // One more run from it, without a step.
      const std::string more = base.folder / fmt::format("{}_{}_run", type, format);
      const Ran again =
          frugal(fmt::format("train {} --set model.adapter={} --set optim.lr=1e-30 --set "
                             "optim.weight_decay=0 --set train.steps=1 --out {}",
                             base.start(), out, more));
      REQUIRE_MESSAGE(again.status == 0, again.err);
      // MLX and GGUF files have one scale, so B is rescaled where layers have others.
      if (format[0] == 'p')
        for (const auto& [tensor, value] : tensors_of(more + "/checkpoint/last.safetensors"))
          CHECK(value.to_vector<float>() == own.at(tensor).to_vector<float>());
      CHECK(std::fabs(loss_of(more) - loss) < 1e-5);
    }
  }
}

TEST_CASE("adapters: of embeddings, from a run to the files of other programs and back") {
  const Base base;
  const std::string keys =
      adapter("lora",
              "--set 'adapter.targets=[\"embed_tokens\",\"q_proj\"]' --set train.steps=40 --set "
              "train.epochs=9 --set train.checkpoint_interval=1");
  REQUIRE(base.train(keys, "run").status == 0);
  const std::string run = base.folder / "run", cut = base.folder / "cut",
                    state = "/checkpoint/last.safetensors";
  const auto own = tensors_of(run + state);
  CHECK(own.size() == 6);
  REQUIRE(cut_run(fmt::format("train {}{} --resume", base.start(), keys), cut,
                  "checkpoint/state.safetensors", 0, SIGKILL) == 128 + SIGKILL);
  const Ran more = frugal(fmt::format("train {}{} --resume --out {}", base.start(), keys, cut));
  REQUIRE_MESSAGE(more.status == 0, more.err);
  for (const auto& [tensor, value] : tensors_of(cut + state))
    CHECK(value.to_vector<float>() == own.at(tensor).to_vector<float>());
  CHECK(has(frugal("inspect " + run).out, "adapters in 3 layers"));

  const double loss = loss_of(run + " --weights last");
  const auto write = [&](const char* format, const std::string& out) {
    const Ran ran = frugal(fmt::format("export {} --weights last --format {} --out {}", run, format,
                                       base.folder / out));
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return base.folder / out;
  };
  const auto read = [&](const std::string& file) {
    std::filesystem::remove_all(base.folder / "again");
    return frugal(
        fmt::format("train {} --set model.adapter={} --set optim.lr=1e-30 --set "
                    "optim.weight_decay=0 --set train.steps=1 --out {}",
                    base.start(), file, base.folder / "again"));
  };
  const std::string table = "model.embed_tokens";
  const std::string peft = write("peft", "peft"), tensors = peft + "/adapter_model.safetensors";
  auto theirs = tensors_of(tensors);
  const std::string prefix = "base_model.model." + table;
  CHECK(theirs.at(prefix + ".lora_embedding_A").shape() == Shape{3, 40});
  CHECK(theirs.at(prefix + ".lora_embedding_B").shape() == Shape{16, 3});
  const auto config = data::parse_json<nlohmann::json>(read_file(peft + "/adapter_config.json"));
  CHECK(config.at("target_modules") == nlohmann::json({"embed_tokens", "q_proj"}));
  CHECK(config.at("fan_in_fan_out") == false);
  const auto mlx = tensors_of(write("mlx-lora", "mlx") + "/adapters.safetensors");
  CHECK(mlx.at(table + ".lora_a").shape() == Shape{40, 3});
  CHECK(mlx.at(table + ".lora_b").shape() == Shape{3, 16});
  const data::Gguf gguf = data::read_gguf(write("gguf-lora", "x.gguf"));
  const std::map<std::string, Tensor> blocks(gguf.tensors.begin(), gguf.tensors.end());
  CHECK(blocks.at("token_embd.weight.lora_a").shape() == Shape{40, 3});
  CHECK(blocks.at("token_embd.weight.lora_a").to_vector<float>() ==
        mlx.at(table + ".lora_a").to_vector<float>());
  CHECK(blocks.at("token_embd.weight.lora_b").shape() == Shape{16, 3});
  // PEFT has the weights of the base beside the adapter of an embedding.
  const auto weights = tensors_of(base.base + "/model.safetensors");
  theirs[prefix + ".base_layer.weight"] = weights.at(table + ".weight");
  data::write_safetensors(tensors, {theirs.begin(), theirs.end()}, {{"format", "pt"}});
  for (const char* file : {"peft", "mlx", "x.gguf"}) {
    CAPTURE(file);
    const Ran again = read(base.folder / file);
    REQUIRE_MESSAGE(again.status == 0, again.err);
    CHECK(std::fabs(loss_of((base.folder / "again") + " --weights last") - loss) < 1e-5);
  }
  theirs[prefix + ".base_layer.weight"] = ops::clone(weights.at(table + ".weight"));
  theirs[prefix + ".base_layer.weight"].mut<float>()[5] += 1;
  data::write_safetensors(tensors, {theirs.begin(), theirs.end()}, {{"format", "pt"}});
  CHECK(has(read(peft).err, "expected the weights of the base in \"model.embed_tokens.base_layer"));

  const std::string merged = write("merged", "merged");
  CHECK(largest_difference(tensors_of(merged + "/model.safetensors").at(table + ".weight"),
                           weights.at(table + ".weight")) > 1e-4);
  CHECK(std::fabs(loss_of(fmt::format("{} --checkpoint {} --set adapter.type=none", base.start(),
                                      merged)) -
                  loss) < 1e-5);
  const Ran lengths =
      base.train(adapter("dora", "--set 'adapter.targets=[\"embed_tokens\"]'"), "x");
  CHECK(lengths.status == 2);
  CHECK(has(lengths.err, "adapter.targets: expected linear layers with lengths of rows"));
}

TEST_CASE("adapters: one layer has no s in the messages") {
  const Base base;
  const std::string one =
      adapter("lora", "--set 'adapter.targets=[\"layers.1.self_attn.q_proj\"]'");
  const Ran ran = base.train(one, "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.err, "adapters in 1 layer: "));
  CHECK(has(frugal("inspect " + base.run).out, "adapters in 1 layer\n"));
}

TEST_CASE("adapters: a name as a text is no list, and the message says so") {
  const Base base;
  const Ran ran = base.train(adapter("lora", "--set adapter.targets=q_proj"), "run");
  CHECK(ran.status == 2);
  CHECK(has(ran.err, "adapter.targets: expected names of linear layers, got \"q_proj\""));
  CHECK(has(ran.err, "in a list, [\"q_proj\"], it names the layers that end with it"));
  CHECK(base.train(adapter("lora", "--set 'adapter.targets=[\"q_proj\"]'"), "run").status == 0);
}

TEST_CASE("adapters: of an embedding that is the output head, merged into an untied network") {
  const TempFolder folder;
  const std::string config = folder / "config.json";
  const auto run_of = [&](const std::string& arguments) {
    const Ran ran = frugal(arguments);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return ran;
  };
  // The base is a folder of the hub, or a file.
  for (const auto& [gpt2, hub] : {std::pair{false, true}, {true, true}, {true, false}}) {
    CAPTURE(gpt2);
    CAPTURE(hub);
    std::string network = std::string(kNetwork) + " --set model.tied=true";
    if (gpt2)
      network =
          " --set model.name=gpt2 --set model.layers=2 --set model.width=16 --set model.heads=4"
          " --set model.vocab_size=40 --set model.max_positions=16";
    write_file(config, "{}");
    const std::string name = fmt::format("{}{}", gpt2 ? "gpt2" : "decoder", hub ? "" : "_file"),
                      base = folder / name, run = folder / name + "_run";
    run_of(fmt::format("export {} --random{}{} --format {} --output {}", config, network, kData,
                       hub ? "hf" : "safetensors", base));
    std::string start = fmt::format("{}{} --set model.weights={}", config, kData, base);
    if (!hub) start += network;
    run_of(
        fmt::format("train {}{} --out {}", start,
                    adapter("lora", gpt2 ? "--set 'adapter.targets=[\"wte\",\"c_attn\"]'"
                                         : "--set 'adapter.targets=[\"embed_tokens\",\"q_proj\"]'"),
                    run));
    const double loss = loss_of(run + " --weights last");
    CHECK(std::fabs(loss - loss_of(fmt::format("{} --checkpoint {}", start, base))) > 1e-4);
    const std::string table = gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
    for (const std::string format : {"merged", "hf", "safetensors"}) {
      if (!hub && format != "safetensors") continue;
      CAPTURE(format);
      const std::string out = folder / name + "_" + format;
      const Ran written =
          run_of(fmt::format("export {} --weights last --format {} --out {}", run, format, out));
      CHECK(has(written.out, "model.tied=false"));
      const bool is_folder = format != "safetensors";
      const auto tensors = tensors_of(is_folder ? out + "/model.safetensors" : out);
      const auto before = tensors_of(hub ? base + "/model.safetensors" : base);
      CHECK(largest_difference(tensors.at("lm_head.weight"), before.at(table)) == 0);
      CHECK(largest_difference(tensors.at(table), before.at(table)) > 1e-4);
      // A folder says by itself that the head is untied; beside a file, the key says it.
      std::string again = fmt::format("{}{} --checkpoint {}", config, kData, out);
      if (is_folder)
        again += fmt::format(" --set model.weights={}", out);
      else
        again += network + " --set model.tied=false";
      if (!is_folder) {
        const Ran tied =
            frugal(fmt::format("eval {}{}{} --checkpoint {}", config, kData, network, out));
        CHECK(tied.status == 2);
        CHECK(has(tied.err, "model.tied=false gives the network an output head of its own"));
      }
      CHECK(std::fabs(loss_of(again) - loss) < 1e-5);
      if (!is_folder) continue;
      CHECK(data::parse_json<nlohmann::json>(read_file(out + "/config.json"))
                .at("tie_word_embeddings") == false);
    }
  }
}

TEST_CASE("adapters: names, shapes and keys of files are those that other programs publish") {
  const Base base;
  REQUIRE(base.train(adapter("lora", "--set 'adapter.targets=[\"q_proj\",\"down_proj\"]'"), "run")
              .status == 0);
  const std::string run = base.folder / "run";
  const auto write = [&](const std::string& format, const std::string& out) {
    const Ran ran = frugal(fmt::format("export {} --weights last --format {} --out {}", run, format,
                                       base.folder / out));
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return base.folder / out;
  };
  const auto own = tensors_of(run + "/checkpoint/last.safetensors");
  const std::string q = "model.layers.1.self_attn.q_proj", peft = write("peft", "peft");
  const Tensor a = own.at(q + ".lora_A.weight"), b = own.at(q + ".lora_B.weight");
  const auto theirs = tensors_of(peft + "/adapter_model.safetensors");
  CHECK(theirs.size() == 8);
  CHECK(theirs.at("base_model.model." + q + ".lora_A.weight").shape() == Shape{3, 16});
  CHECK(theirs.at("base_model.model." + q + ".lora_B.weight").to_vector<float>() ==
        b.to_vector<float>());
  CHECK(data::SafetensorsFile::open(peft + "/adapter_model.safetensors").metadata().at("format") ==
        "pt");
  const auto config = data::parse_json<nlohmann::json>(read_file(peft + "/adapter_config.json"));
  CHECK(config.at("peft_type") == "LORA");
  CHECK(config.at("r") == 3);
  CHECK(config.at("lora_alpha") == 6);
  CHECK(config.at("target_modules") == nlohmann::json({"down_proj", "q_proj"}));
  CHECK(config.at("task_type") == "CAUSAL_LM");
  CHECK(config.at("base_model_name_or_path") == base.base);

  const std::string mlx = write("mlx-lora", "mlx");
  const auto turned = tensors_of(mlx + "/adapters.safetensors");
  CHECK(turned.at(q + ".lora_a").shape() == Shape{16, 3});
  CHECK(turned.at(q + ".lora_b").shape() == Shape{3, 16});
  CHECK(turned.at(q + ".lora_a").data<float>()[1] == a.data<float>()[16]);
  const auto keys = data::parse_json<nlohmann::json>(read_file(mlx + "/adapter_config.json"));
  CHECK(keys.at("fine_tune_type") == "lora");
  CHECK(keys.at("num_layers") == 2);
  CHECK(keys.at("lora_parameters").at("scale") == 2);
  CHECK(keys.at("lora_parameters").at("keys") ==
        nlohmann::json({"mlp.down_proj", "self_attn.q_proj"}));

  const std::string path = write("gguf-lora", "adapter.gguf");
  const data::Gguf gguf = data::read_gguf(path);
  CHECK(gguf.text(path, "general.type") == "adapter");
  CHECK(gguf.text(path, "adapter.type") == "lora");
  CHECK(gguf.text(path, "general.architecture") == "llama");
  CHECK(gguf.number(path, "adapter.lora.alpha") == 6);
  std::map<std::string, Tensor> blocks(gguf.tensors.begin(), gguf.tensors.end());
  CHECK(blocks.size() == 8);
  CHECK(blocks.at("blk.1.attn_q.weight.lora_a").to_vector<float>() == a.to_vector<float>());
  CHECK(blocks.contains("blk.0.ffn_down.weight.lora_b"));
  // llama.cpp's converter has row i of the first half of a head behind row i - 1 of the second one:
  // rows 0 to 3 of a head of 4 are 0, 2, 1, 3.
  const std::vector<float> ours = b.to_vector<float>(),
                           moved = blocks.at("blk.1.attn_q.weight.lora_b").to_vector<float>();
  for (int64_t row = 0; row < 16; ++row) {
    const int64_t from =
        row / 4 * 4 + std::vector<int64_t>{0, 2, 1, 3}[static_cast<size_t>(row % 4)];
    for (int64_t i = 0; i < 3; ++i)
      CHECK(moved[static_cast<size_t>(row * 3 + i)] == ours[static_cast<size_t>(from * 3 + i)]);
  }
}

TEST_CASE("adapters: a merged folder is base and adapter, and eval and generate agree with it") {
  const Base base;
  for (const char* type : {"lora", "dora"}) {
    const std::string name = type, run = base.folder / name,
                      merged = base.folder / name + "_merged";
    REQUIRE(base.train(adapter(type), name).status == 0);
    const Ran written =
        frugal(fmt::format("export {} --weights last --format merged --out {}", run, merged));
    REQUIRE_MESSAGE(written.status == 0, written.err);
    const auto before = tensors_of(base.base + "/model.safetensors"),
               after = tensors_of(merged + "/model.safetensors");
    CHECK(after.size() == before.size());
    CHECK(largest_difference(after.at("model.norm.weight"), before.at("model.norm.weight")) == 0);
    CHECK(largest_difference(after.at("model.layers.0.mlp.up_proj.weight"),
                             before.at("model.layers.0.mlp.up_proj.weight")) > 1e-4);
    const double apart = loss_of(run + " --weights last");
    const double together =
        loss_of(fmt::format("{} --checkpoint {} --set adapter.type=none", base.start(), merged));
    CHECK(std::fabs(apart - together) < 1e-5);
  }
}

TEST_CASE("adapters: beside packed weights, an export is the network that was trained") {
  const Base base;
  for (const char* format : {"nf4", "int8"}) {
    CAPTURE(format);
    const std::string run = base.folder / format, merged = run + "_merged",
                      packed = fmt::format(" --set model.frozen={}", format);
    const Ran trained =
        base.train(adapter("lora", "--set 'adapter.targets=[\"q_proj\"]'") + packed, format);
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    const Ran written = frugal(fmt::format("export {} --format merged --out {}", run, merged));
    REQUIRE_MESSAGE(written.status == 0, written.err);
    const double apart = loss_of(run),
                 together = loss_of(fmt::format("{} --checkpoint {} --set adapter.type=none",
                                                base.start(), merged));
    CHECK(std::fabs(apart - together) < 1e-5);
    // The layers beside the adapter are those that the packed ones stand for.
    const auto before = tensors_of(base.base + "/model.safetensors"),
               after = tensors_of(merged + "/model.safetensors");
    const char* const other = "model.layers.0.mlp.up_proj.weight";
    CHECK(largest_difference(after.at(other), before.at(other)) > 1e-5);
    CHECK(largest_difference(after.at("model.norm.weight"), before.at("model.norm.weight")) == 0);
  }
}

TEST_CASE("adapters: one is not put beside random weights") {
  const Base base;
  REQUIRE(base.train(adapter("lora"), "run").status == 0);
  const std::string peft = base.folder / "peft";
  REQUIRE(
      frugal(fmt::format("export {} --format peft --out {}", base.folder / "run", peft)).status ==
      0);
  const Ran ran = frugal(
      fmt::format("train {}{}{} --set model.adapter={}", base.config, kNetwork, kData, peft));
  CHECK(ran.status == 2);
  CHECK_MESSAGE(has(ran.err, "model.adapter: expected model.weights beside it"), ran.err);
}

TEST_CASE("weights that are gone are named where a run is resumed that began with them") {
  const Base base;
  const std::string run = base.folder / "whole",
                    train = fmt::format("train {}{} --set model.weights={} --out {}", base.config,
                                        kData, base.base, run);
  const Ran begun = frugal(train);
  REQUIRE_MESSAGE(begun.status == 0, begun.err);
  fs::rename(base.base, base.folder / "moved");
  const Ran ran = frugal(train + " --resume --extend 5");
  CHECK(ran.status == 2);
  CHECK_MESSAGE(has(ran.err, "model.weights: expected the weights that the run in"), ran.err);
  const Ran goes_on = frugal(
      fmt::format("train {0}/config.json --out {0} --resume --extend 5 --set train.steps=5", run));
  CHECK_MESSAGE(goes_on.status == 0, goes_on.err);
}

TEST_CASE("adapters: a step of thousands of tokens has the same bits for every thread count") {
  if (!products_ignore_threads()) return;
  const Base base;
  for (const char* threads : {"1", "2", "3"})
    REQUIRE(base.train(adapter("lora",
                               " --set data.batch_size=512 --set data.train_samples=512 "
                               "--set train.steps=2 --set threads=") +
                           threads,
                       threads)
                .status == 0);
  const std::string weights = "/checkpoint/last.safetensors";
  for (const char* threads : {"2", "3"})
    CHECK((read_file(base.folder / "1" + weights) == read_file(base.folder / threads + weights)));
}

TEST_CASE("adapters: an export writes over nothing that the run needs") {
  const Base base;
  REQUIRE(base.train(adapter("lora"), "a").status == 0);
  const std::string run = base.folder / "a";
  const auto refused = [&](const std::string& format, const std::string& output) {
    CAPTURE(output);
    const Ran ran =
        frugal(fmt::format("export {} --format {} --output {} --overwrite", run, format, output));
    CHECK(ran.status == 2);
    CHECK_MESSAGE(has(ran.err, "expected another place than"), ran.err);
  };
  refused("merged", base.base);
  refused("merged", base.base + "/");
  refused("peft", base.base);
  refused("safetensors", base.base + "/model.safetensors");
  refused("safetensors", base.base + "/config.json");
  refused("safetensors", run + "/checkpoint/best.safetensors");
  refused("safetensors", run + "/config.json");
  refused("hf", run);
  REQUIRE(frugal("eval " + run).status == 0);  // the base is as it was
  const std::string own = "export " + run + " --format safetensors --overwrite --output " + run;
  for (int i = 0; i < 2; ++i) CHECK(frugal(own + "/network.safetensors").status == 0);
}

TEST_CASE("adapters: a merged folder has no parts of another model, and a lost one leaves none") {
  const Base base;
  REQUIRE(base.train(adapter("lora"), "a").status == 0);
  const std::string run = base.folder / "a", merged = base.folder / "merged";
  const std::string command = "export " + run + " --format merged --overwrite --output " + merged;
  for (int i = 0; i < 2; ++i) CHECK(frugal(command).status == 0);
  for (const std::string name :
       {"model.safetensors.index.json", "model-00001-of-00002.safetensors", "added_tokens.json"}) {
    write_file(merged + "/" + name, "{}");
    const Ran ran = frugal(command);
    CHECK(ran.status == 2);
    CHECK_MESSAGE(has(ran.err, "expected a folder without \"" + name + "\""), ran.err);
    std::filesystem::remove(merged + "/" + name);
  }
  write_file(merged + "/README.md", "mine");
  CHECK(frugal(command).status == 0);
  // Files of more than 512 bytes fail, as on a full disk.
  for (const char* format : {"merged", "peft", "mlx-lora"}) {
    const std::string to = base.folder / format + "_lost";
    const Ran ran = shell(fmt::format(
        "trap '' XFSZ; ulimit -f 1; FRUGAL export {} --format {} --output {}", run, format, to));
    CHECK(ran.status == 1);
    CHECK(!std::filesystem::exists(to));
  }
}

TEST_CASE("adapters: tensors and keys that find no home are errors that name them") {
  const Base base;
  REQUIRE(base.train(adapter("lora"), "run").status == 0);
  const std::string peft = base.folder / "peft", file = peft + "/adapter_model.safetensors",
                    keys = peft + "/adapter_config.json";
  REQUIRE(
      frugal(fmt::format("export {} --format peft --out {}", base.folder / "run", peft)).status ==
      0);
  const auto tensors = tensors_of(file);
  const auto config = data::parse_json<nlohmann::json>(read_file(keys));
  int runs = 0;
  const auto fails = [&](std::map<std::string, Tensor> changed, const nlohmann::json& json,
                         const std::string& part) {
    data::write_safetensors(file, {changed.begin(), changed.end()}, {{"format", "pt"}});
    write_file(keys, json.dump());
    const Ran ran = frugal(fmt::format("train {} --set model.adapter={} --out {}", base.start(),
                                       peft, base.folder / fmt::format("no{}", ++runs)));
    CHECK(ran.status != 0);
    CHECK(has(ran.err, part));
  };
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  auto changed = tensors;
  changed["base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight"] = tensors.at(q);
  fails(changed, config, "layers.9.self_attn.q_proj.lora_A.weight\", which finds no home");
  changed = tensors;
  changed.erase(q);
  fails(changed, config, "got none for model.layers.0.self_attn.q_proj.lora_A.weight");
  changed = tensors;
  changed[q] = Tensor::zeros({3, 17});
  fails(changed, config, "expected the shape [3, 16], got [3, 17]");
  changed[q] = Tensor::full({3, 16}, std::nan(""));
  fails(changed, config, "expected finite values");
  const auto with = [&](const char* key, const nlohmann::json& value) {
    auto json = config;
    json[key] = value;
    return json;
  };
  fails(tensors, with("use_qalora", true), "use_qalora: expected no such key");
  fails(tensors, with("peft_type", "LOHA"), "peft_type: expected \"LORA\"");
  fails(tensors, with("init_lora_weights", "pissa"), "init_lora_weights");
  // The message names the file that says so.
  const std::string says = fmt::format(" (\"{}\" says so)", keys);
  fails(tensors, with("rank_pattern", {{"q_porj", 2}}), says);
  fails(tensors, with("lora_alpha", 0), says);
  // Keys of the same meaning are read.
  write_file(keys, with("layers_to_transform", {0, 1}).dump());
  data::write_safetensors(file, {tensors.begin(), tensors.end()}, {{"format", "pt"}});
  CHECK(
      frugal(fmt::format("train {} --set model.adapter={} --set train.steps=1", base.start(), peft))
          .status == 0);
  // What no run can mean.
  const Ran both = base.train(adapter("lora", "--set 'train.freeze=[\"model.norm\"]'"), "both");
  CHECK(both.status == 2);
  CHECK(has(both.err, "train.freeze: expected [] with adapter.type"));
  const Ran none = frugal(fmt::format("export {} --random{}{} --format peft --out {}", base.config,
                                      kNetwork, kData, base.folder / "none"));
  CHECK(none.status == 2);
  CHECK(has(none.err, "expected a run with an adapter"));
}

TEST_CASE("adapters: keys of PEFT and MLX that contradict the tensors are errors that name both") {
  const Base base;
  REQUIRE(
      base.train(adapter("lora", "--set 'adapter.rank_pattern=[\"k_proj=2\"]'"), "run").status ==
      0);
  const std::string run = base.folder / "run", peft = base.folder / "peft",
                    mlx = base.folder / "mlx";
  for (const auto& [format, out] : {std::pair{"peft", peft}, {"mlx-lora", mlx}})
    REQUIRE(frugal(fmt::format("export {} --weights last --format {} --out {}", run, format, out))
                .status == 0);
  const std::string file = peft + "/adapter_model.safetensors",
                    keys = peft + "/adapter_config.json";
  const auto tensors = tensors_of(file);
  const auto config = data::parse_json<nlohmann::json>(read_file(keys));
  const std::string prefix = "base_model.model.", q = "model.layers.1.self_attn.q_proj",
                    a = prefix + q + ".lora_A.weight";
  const auto start = [&](const std::string& folder) {
    return frugal(
        fmt::format("train {} --set model.adapter={} --set optim.lr=1e-30 --set "
                    "optim.weight_decay=0 --set train.steps=1 --out {} --overwrite",
                    base.start(), folder, base.folder / "again"));
  };
  const auto write = [&](const nlohmann::json& changes, const std::string& without = "") {
    auto json = config;
    for (const auto& [key, value] : changes.items()) json[key] = value;
    write_file(keys, json.dump());
    auto kept = tensors;
    std::erase_if(kept, [&](const auto& each) {
      return !without.empty() && each.first.find(without) != std::string::npos;
    });
    data::write_safetensors(file, {kept.begin(), kept.end()}, {{"format", "pt"}});
  };
  const auto refuses = [&](const nlohmann::json& changes, const std::string& part,
                           const std::string& without = "") {
    CAPTURE(changes.dump());
    write(changes, without);
    const Ran ran = start(peft);
    CHECK(ran.status == 2);
    CHECK(has(ran.err, fmt::format("\"{}\": {}", keys, part)));
    CHECK(has(ran.err, fmt::format("\"{}\"", file)));
    CHECK(has(ran.err, "; take both files from one adapter"));
  };
  const auto takes = [&](const nlohmann::json& changes, const std::string& without = "") {
    CAPTURE(changes.dump());
    write(changes, without);
    const Ran ran = start(peft);
    CHECK_MESSAGE(ran.status == 0, ran.err);
  };
  const std::string gives = fmt::format("expected to give {} an adapter, as \"{}\" in", q, a);
  refuses({{"exclude_modules", {"layers.1.self_attn.q_proj"}}}, "exclude_modules: " + gives);
  refuses({{"exclude_modules", ".*1.*q_proj"}}, "exclude_modules: " + gives);
  refuses({{"modules_to_save", {"layers.1.self_attn.q_proj"}}}, "modules_to_save: " + gives);
  refuses({{"layers_to_transform", {0}}}, "layers_to_transform: expected to give model.layers.1.");
  refuses({{"layers_to_transform", 0}, {"layers_pattern", "layers"}},
          "layers_to_transform: expected to give model.layers.1.");
  refuses({{"layers_to_transform", {0, 1}}, {"layers_pattern", {"h"}}},
          "layers_to_transform: expected to give model.layers.0.");
  refuses({{"target_modules", {"k_proj"}}}, "target_modules: expected to give model.layers.0.");
  refuses({{"target_modules", ".*k_proj"}}, "target_modules: expected to give model.layers.0.");
  refuses({{"r", 4}}, "r: expected rank 3 for model.layers.0.");
  refuses({{"rank_pattern", {{"k_proj", 4}}}}, "rank_pattern: expected rank 2 for model.layers.0.");
  refuses({{"rank_pattern", nlohmann::json::object()}}, "r: expected rank 2 for model.layers.0.");
  // What the keys name and the file has not.
  const nlohmann::json ranks = {{"k_proj", 2}};
  refuses({{"layers_to_transform", {0, 1}}, {"rank_pattern", ranks}},
          "layers_to_transform: expected nothing of model.layers.1", "layers.1.");
  refuses({{"exclude_modules", {"no_such"}}}, "target_modules: expected nothing of " + q,
          q + ".lora");
  refuses({{"modules_to_save", {"norm"}}},
          "modules_to_save: expected nothing of model.norm.weight");
  // What agrees is read, as PEFT reads it. It writes names of heads that a network may have.
  takes({{"layers_to_transform", {0}}, {"rank_pattern", ranks}}, "layers.1.");
  takes({{"layers_to_transform", {0, 1}}, {"layers_pattern", {"h", "layers"}}});
  takes({{"exclude_modules", {"q_proj", "no_such"}}}, "q_proj");
  takes({{"modules_to_save", {"classifier", "score"}}, {"fan_in_fan_out", true}});
  const auto wrong = [&](const nlohmann::json& changes, const std::string& part) {
    write(changes);
    const Ran ran = start(peft);
    CHECK(ran.status == 2);
    CHECK(has(ran.err, part));
  };
  wrong({{"layers_pattern", "layers"}}, "layers_pattern: expected layers_to_transform beside it");
  wrong({{"layers_to_transform", {0, 1}}, {"target_modules", ".*_proj"}},
        "layers_to_transform: expected none beside target_modules that is a text");
  wrong({{"layers_to_transform", "0"}}, "layers_to_transform: expected the number of a layer");
  wrong({{"exclude_modules", "("}}, "exclude_modules: expected a regular expression");
  wrong({{"exclude_modules", {3}}}, "exclude_modules: expected a text or a list of texts");
  // MLX has a list, too.
  auto other = data::parse_json<nlohmann::json>(read_file(mlx + "/adapter_config.json"));
  CHECK(start(mlx).status == 0);
  other["lora_parameters"]["keys"] = {"self_attn.k_proj"};
  write_file(mlx + "/adapter_config.json", other.dump());
  const Ran ran = start(mlx);
  CHECK(ran.status == 2);
  CHECK(has(ran.err, "lora_parameters.keys: expected the name of model.layers.0."));
}

TEST_CASE("adapters: weights that a command names are meant, and named once") {
  const Base base;
  REQUIRE(base.train(adapter("lora"), "run").status == 0);
  const Ran nowhere =
      frugal(fmt::format("eval {} --set model.weights={}", base.run, base.folder / "none"));
  CHECK(nowhere.status == 2);
  CHECK(has(nowhere.err, "model.weights: expected the weights beside which"));
  CHECK(has(nowhere.err, base.folder / "none"));
  const Ran twice = base.train(" --init-from " + base.run, "other");
  CHECK(twice.status == 2);
  CHECK(has(twice.err, "--init-from: expected no --set model.weights beside it"));
  const Ran changed = base.train(adapter("dora") + " --resume", "run");
  CHECK(changed.status == 2);
  CHECK(has(changed.err, "adapter.type: the run in"));
  CHECK(has(changed.err, "--format merged --output FOLDER` and --set model.weights=FOLDER"));
}

TEST_CASE("adapters: a pattern of ranks or alphas that fits no adapter is an error") {
  const Base base;
  const auto fails = [&](const std::string& keys, const std::string& part) {
    const Ran ran = base.train(adapter("lora", keys), "run");
    CHECK(ran.status == 2);
    CHECK(has(ran.err, part));
  };
  fails("--set 'adapter.rank_pattern=[\"q_prj=2\"]'",
        "adapter.rank_pattern: expected patterns that fit a layer with an adapter, got "
        "\"q_prj=2\"");
  fails("--set 'adapter.targets=[\"q_proj\"]' --set 'adapter.alpha_pattern=[\"v_proj=2\"]'",
        "they are model.layers.0.self_attn.q_proj, model.layers.1.self_attn.q_proj");
}

TEST_CASE("adapters: damaged GGUF files are errors with the path") {
  const TempFolder folder;
  const std::string path = folder / "a.gguf";
  data::Gguf file;
  file.values = {{"general.type", std::string("adapter")}, {"x", uint64_t{3}}, {"y", 0.5}};
  file.tensors = {{"a", Tensor::full({2, 3}, 1.5)}, {"b", Tensor::full({5}, 2)}};
  data::write_gguf(path, file);
  const data::Gguf again = data::read_gguf(path);
  CHECK(again.values == file.values);
  CHECK(again.tensors[0].second.shape() == Shape{2, 3});
  CHECK(again.tensors[1].second.to_vector<float>() == std::vector<float>(5, 2));
  const std::string whole = read_file(path);
  for (size_t size = 0; size + 32 < whole.size(); ++size) {
    write_file(path, whole.substr(0, size));
    CHECK_THROWS_WITH_AS(data::read_gguf(path), doctest::Contains("a.gguf"), Error);
  }
  write_file(path, "GGUX" + whole.substr(4));
  CHECK_THROWS_WITH_AS(data::read_gguf(path), doctest::Contains("expected a GGUF file"), Error);
}

TEST_CASE("adapters: the configuration for instructions trains as it is") {
  const TempFolder folder;
  const Ran ran =
      frugal(fmt::format("train {0}/lora_sft.json --set data.dir={0}/lora_sft "
                         "--set train.steps=2 --out {1}",
                         FRUGAL_CONFIGS, folder / "run"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.err, "adapters in 28 layers"));
}

}  // namespace frugal::apps
