// Every kind of bad input ends with a message that says what and where, and the right exit status.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <tuple>

#include "apps/json.h"
#include "core/tensor.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

struct BadInput {
  TempFolder folder;
  std::string config = folder / "c.json";
  BadInput() { write_file(config, kTinyConfig); }
};

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

// `count` images of 28 x 28 and their labels, in the IDX layout.
void write_idx(const TempFolder& folder, uint32_t count, char label) {
  const std::string three{"\0\0\x08\x03", 4}, one{"\0\0\x08\x01", 4};
  for (const char* part : {"train", "t10k"}) {
    write_file(folder / (std::string(part) + "-images-idx3-ubyte"),
               three + big_endian(count) + big_endian(28) + big_endian(28) +
                   std::string(count * 784, 'x'));
    write_file(folder / (std::string(part) + "-labels-idx1-ubyte"),
               one + big_endian(count) + std::string(count, label));
  }
}

}  // namespace

TEST_CASE_FIXTURE(BadInput, "command line") {
  check_fails(frugal(""), 2, {"--help"});
  check_fails(frugal("trian"), 2, {"--help"});
  check_fails(frugal("train"), 2, {"CONFIG"});
  check_fails(frugal("train " + config + " --nonsense"), 2, {"--nonsense"});
  check_fails(frugal("train " + config + " --resume"), 2, {"--out"});
  check_fails(frugal("eval " + config), 2, {"--checkpoint"});
  check_fails(frugal("bench step --workload r9"), 2, {"r18"});
  CHECK(frugal("--version").out.starts_with("frugal "));
  for (const char* command :
       {"", "train", "eval", "predict", "lr-find", "curve", "report", "grad", "inspect", "compare",
        "schema", "bench", "bench quantizer", "bench step"}) {
    const Ran help = frugal(std::string(command) + " --help");
    CHECK(help.status == 0);
    CHECK(help.out.find("--help") != std::string::npos);
  }
  check_fails(frugal_lab(""), 2, {"--help"});
  CHECK(frugal_lab("gradient --help").out.find("--train-steps") != std::string::npos);
}

TEST_CASE_FIXTURE(BadInput, "numbers on the command line are what they say") {
  for (const char* line : {"predict RUN x.png --top 1e20",
                           "predict RUN x.png --top -1",
                           "predict RUN x.png --top 0",
                           "predict RUN x.png --top 5.0",
                           "predict RUN x.png --batch-size 99999999999999999999",
                           "generate RUN --seed -1",
                           "generate RUN --seed 1e3",
                           "generate RUN --tokens -5",
                           "generate RUN --tokens 0x10",
                           "generate RUN --temperature nan",
                           "generate RUN --temperature -1",
                           "generate RUN --top-k 99999999999999999999",
                           "generate RUN --top-p 0",
                           "generate RUN --min-p 1.5",
                           "generate RUN --repetition-penalty 0",
                           "lr-find c.json --from 0",
                           "lr-find c.json --to inf",
                           "lr-find c.json --steps 1e2",
                           "plan c.json --ranks 2.5",
                           "plan --model mlp --shape 64 --batch 010",
                           "plan --model mlp --shape 064 --batch 8",
                           "train c.json --out x --resume --extend 020",
                           "profile c.json --steps 9223372036854775808",
                           "reproduce --seeds true",
                           "reproduce --jobs ' 1'",
                           "bench step c.json --repeats 1e99",
                           "train c.json --out x --resume --extend -3"}) {
    CAPTURE(std::string(line));
    const Ran ran = frugal(line);
    check_fails(ran, 2, {"--"});
    CHECK_MESSAGE(ran.err.find("number from ") != std::string::npos, ran.err);
    CHECK_MESSAGE(ran.err.find("got ") != std::string::npos, ran.err);
  }
}

TEST_CASE_FIXTURE(BadInput,
                  "mistakes of the command line and of configurations have the status 2") {
  const std::string run = folder / "run", weights = run + "/checkpoint/last.safetensors";
  REQUIRE(frugal("train " + config + " --quiet --out " + run).status == 0);
  std::filesystem::create_directory(folder / "empty");
  // Paths that are not there.
  for (const std::string command :
       {"train {no}", "train {config} --init-from {no}", "train {config} --set model.weights={no}",
        "train {config} --set model.adapter={no}", "eval {no}", "eval {config} --checkpoint {no}",
        "eval {run} --checkpoint {no}", "eval {run} --weights {no}", "predict {no} x",
        "predict {run} x --weights {no}", "grad {no} --weights {file} --batch {file} --out x",
        "grad {config} --weights {no} --batch {file} --out x",
        "grad {config} --weights {file} --batch {no} --out x", "plan {no}", "profile {no}",
        "lr-find {no}", "curve {no}", "curve {run} {no}", "report {no}", "report {run} {no}",
        "inspect {no}", "compare {no}", "compare {run} {no}", "generate {no}",

        "export {no} --format safetensors", "export {run} --format safetensors --checkpoint {no}",
        "bench step {no}", "bench variance {no}", "reproduce {no}", "reproduce --tables {no}",
        "data check --dir {no}",
        // Folders that are no runs.
        "eval {empty}", "predict {empty} x", "curve {empty}", "report {empty}",
        "compare {empty} {run}", "compare {run} {empty}", "generate {empty}", "inspect {empty}",
        "export {empty} --format safetensors", "curve {config}", "report {config}",
        "compare {config}", "train {empty}", "plan {empty}",
        // Files in folders that are not there.
        "grad {config} --weights {file} --batch {file} --out {no}/x",
        "profile {config} --trace {no}/x", "curve {run} --svg {no}/x", "report {run} --out {no}/x",
        "report {run} --out {empty}", "export {run} --format safetensors --output {no}/x",
        "export {run} --format onnx --output x --example {no}/x",
        "bench step {config} --trace {no}/x", "bench step {config} --record-profile {no}/x",
        "reproduce --page {no}/x", "reproduce gact-accuracy --out {config}",
        "predict {run} x --out {config}/x", "data fetch mnist --dir {config}",
        "data check --dir {config}", "export {run} --format hf --overwrite --output {config}/x",
        // Folders without weights.
        "train {config} --init-from {empty}", "eval {run} --weights {empty}",
        "eval {config} --checkpoint {empty}", "predict {run} x --weights {empty}",
        "grad {config} --weights {empty} --batch {file} --out x",
        "export {run} --format safetensors --checkpoint {empty} --output x",
        // Weights of another network.
        "train {config} --init-from {run} {wider}",
        "train {config} --set model.weights={file} {wider}", "eval {run} {wider}",
        "eval {config} --checkpoint {file} {wider}", "eval {run} --checkpoint {file} {wider}",
        "eval {run} --weights {file} {wider}", "predict {run} x {wider}",
        "export {run} --format safetensors {wider} --output x",
        "export {config} --checkpoint {file} --format safetensors {wider} --output x"}) {
    CAPTURE(command);
    const Ran ran = frugal(fmt::format(fmt::runtime(command), fmt::arg("config", config),
                                       fmt::arg("empty", folder / "empty"), fmt::arg("run", run),
                                       fmt::arg("file", weights), fmt::arg("no", folder / "no"),
                                       fmt::arg("wider", "--set model.hidden=[65,32]")));
    check_fails(ran, 2, {});
    if (command.find("{no}") != std::string::npos) CHECK(has(ran.err, folder / "no"));
    if (command.find("{wider}") != std::string::npos) CHECK(has(ran.err, "wrong shape"));
  }
  // What is there and damaged is no mistake of the command.
  write_file(run + "/input.json", "{}");
  check_fails(frugal("eval " + run), 1, {"input.json", "is damaged"});
}

TEST_CASE_FIXTURE(BadInput, "limits of the system are errors with a message") {
  const std::string train = "FRUGAL train " + config + " --quiet --out " + folder / "run";
  const Ran large = shell("ulimit -f 4; " + train);  // no file may be larger
  check_fails(large, 1, {"File too large"});
}

#ifndef FRUGAL_SANITIZED  // a sanitizer needs more address space than any of these limits
// Did a process end before its main()? Libraries of Debian 13 abort while they are loaded where
// they get no memory, also beside a program that does nothing. `folder`: what glibc's loader wrote
// with LD_DEBUG=files. Each process has a file, and may start the program anew.
bool ends_in_libraries(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string text = read_file(entry.path().string());
    const size_t loaded = text.rfind("/frugal [0]\n"), began = text.rfind("transferring control: ");
    if (loaded != std::string::npos && (began == std::string::npos || began < loaded)) return true;
  }
  return false;
}

TEST_CASE_FIXTURE(BadInput, "no limit of address space lets a process crash") {
  // Some of these limits are reached while kernels are generated.
  write_file(config, R"({
    "model": {"name": "resnet20"},
    "data": {"name": "random", "shape": [8, 8, 3], "classes": 3, "batch_size": 8,
             "test_batch_size": 8, "train_samples": 8, "test_samples": 8},
    "train": {"epochs": 1}, "threads": 1})");
  int failed = 0;
  for (int mebibytes = 64; mebibytes <= 448; mebibytes += 16) {
    CAPTURE(mebibytes);
    const std::string loads = folder / std::to_string(mebibytes);
    std::filesystem::create_directory(loads);
    const Ran ran = shell(
        fmt::format("ulimit -v {}; LD_DEBUG=files LD_DEBUG_OUTPUT={}/l FRUGAL train {} --quiet",
                    mebibytes * 1024, loads, config));
    if (ends_in_libraries(loads)) continue;
    // 127: the libraries themselves do not fit.
    CHECK_MESSAGE((ran.status == 0 || ran.status == 1 || ran.status == 127), ran.err);
    failed += ran.status == 1;
    if (ran.status == 1)
      CHECK_MESSAGE((ran.err.find("emory") != std::string::npos ||
                     ran.err.find("Thread creation failed") != std::string::npos),
                    ran.err);
  }
  CHECK(failed > 0);
}
#endif

TEST_CASE_FIXTURE(BadInput, "configuration") {
  check_fails(frugal("train " + folder / "none.json"), 2, {"none.json"});
  check_fails(frugal("train " + config + " --set optim.momentun=0.9"), 2,
              {"optim.momentun", "optim.momentum"});
  check_fails(frugal("train " + config + " --set optim.lr=fast"), 2, {"optim.lr", "a number"});
  check_fails(frugal("train " + config + " --set optim.lr=-1"), 2, {"optim.lr", "got -1"});
  check_fails(frugal("train " + config +
                     " --set data.shape=null --set data.name=cifar10 "
                     "--set data.classes=null"),
              2, {"data.dir"});
  check_fails(frugal("train " + config + " --set device=cuda"), 2, {"device"});
  check_fails(frugal("train " + config + " --set device=cuda:1"), 2, {"device"});
  check_fails(frugal("train " + config + " --set device=cuda:x"), 2, {"device", "cuda:1"});
  check_fails(frugal("bench ops --device cuda:x"), 2, {"--device", "cuda:N"});
  const Ran printed = frugal("train " + config + " --print-config");
  CHECK(printed.status == 0);
  CHECK(Json::parse(printed.out)["model"]["num_classes"] == 3);
  CHECK(frugal("train --help-config").out.find("optim.momentum") != std::string::npos);
  CHECK(Json::parse(frugal("schema").out)["title"].is_string());
}

// People write sizes as numbers, with a unit, and as shares.
TEST_CASE_FIXTURE(BadInput, "configuration: sizes") {
  const auto with = [&](const std::string& key, const Json& value) {
    Json document = Json::parse(kTinyConfig);
    document["compression"].erase("level");
    document["compression"]["offload"] = folder / "file";
    Json* at = &document;
    std::stringstream parts(key);
    for (std::string part; std::getline(parts, part, '.');) at = &(*at)[part];
    *at = value;
    write_file(config, document.dump());
    return frugal("train " + config + " --print-config");
  };
  const auto printed = [&](const std::string& key, const Json& value) {
    const Ran ran = with(key, value);
    CHECK_MESSAGE(ran.status == 0, ran.err);
    std::string pointer = "/" + key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    return Json::parse(ran.out).at(Json::json_pointer(pointer));
  };
  const char *const budget = "compression.memory_budget",
                    *const slices = "compression.advanced.slice_bytes",
                    *const window = "compression.advanced.offload_window";
  CHECK(printed(budget, 512000000) == "512000000");
  CHECK(printed(budget, 1e9) == "1000000000");
  for (const char* text : {"512MB", "0.5 gib", "1G", "50%", "1/2", "2x", "50 % activations"})
    CHECK(printed(budget, text) == text);
  for (const char* key : {"memory_limit", "distributed.bucket_bytes", slices, window}) {
    CAPTURE(std::string(key));
    CHECK(printed(key, 1048576) == 1048576);
    CHECK(printed(key, "1 MiB") == 1048576);
    CHECK(printed(key, "1m") == 1048576);
    CHECK(printed(key, "64 kB") == 64000);
    check_fails(with(key, "1 mb/s"), 2, {key, "or a text such as 500 MB, 2 GiB", "1 mb/s"});
    check_fails(with(key, 0.5), 2, {key, "or a text such as 500 MB, 2 GiB", "0.5"});
  }
  check_fails(with(slices, "2 TiB"), 2, {slices, "1099511627776"});
  for (const Json& wrong : {Json(0), Json(-1), Json(0.5), Json(true), Json(nullptr)})
    check_fails(with(budget, wrong), 2,
                {budget, "an integer >= 1 or a text such as 2 GiB, 50%, 1/6, 6x"});
  for (const char* wrong : {"150%", "2 gigabytes", "1,5 GiB"})
    check_fails(with(budget, wrong), 2, {budget, "\"2 GiB\"", "\"50%\"", wrong});
}

// Mistakes of a configuration that only a network which is made, or data which are open, can show.
TEST_CASE_FIXTURE(BadInput, "configuration: options that do not go together have status 2") {
  std::string lines;
  for (int i = 0; i < 8; ++i)
    lines += R"({"text": "hello there", "label": "a"})"
             "\n";
  write_file(folder / "d.jsonl", lines);
  const std::string decoder =
      R"("name": "decoder", "layers": 1, "width": 16, "heads": 2, "max_positions": 16)";
  const std::string tokens =
      fmt::format(R"("data": {{"name": "jsonl", "dir": "{}", "max_length": 16, "batch_size": 4}})",
                  folder / "d.jsonl");
  const auto pictures = [](const std::string& model, const std::string& shape,
                           const std::string& more = "") {
    return fmt::format(
        R"({{"model": {{{}}}, "data": {{"name": "random", "shape": {}, "train_samples": 8{}}}}})",
        model, shape, more);
  };
  const std::string weights = folder / "w.safetensors";
  const Ran made =
      frugal(fmt::format("export {} --random --set 'model={{{}, \"tied\": true}}' --set "
                         "'data={{\"name\": \"random_tokens\", \"max_length\": 16}}' --output {}",
                         config, decoder, weights));
  REQUIRE_MESSAGE(made.status == 0, made.err);
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {fmt::format(R"({{"model": {{{}, "tied": true, "weights": "{}", "head": "reset"}}, {}}})",
                   decoder, weights, tokens),
       "model.head: expected keep, since decoder has no last layer of its own"},
      {fmt::format(R"({{"model": {{{}, "weights": "no.safetensors"}}, {}}})", decoder, tokens),
       "model.weights: expected a file or a folder of weights, got \"no.safetensors\", which is"},
      {fmt::format(R"({{"model": {{{}, "max_positions": 64}}, "data": {{"name": "jsonl", "dir":
                   "{}", "max_length": 60}}}})",
                   R"("name": "decoder", "layers": 1, "width": 16, "heads": 2)",
                   folder / "d.jsonl"),
       "data.max_length: expected at most"},
      {R"({"model": {"name": "resnet20"}, "data": {"name": "image_folder", "dir": "no/pictures"}})",
       "data.dir: expected a file or a folder, got \"no/pictures\", which is not there"},
      {R"({"model": {"name": "resnet20"}, "data": {"name": "cifar10", "dir": "no/pictures"}})",
       "data.dir: expected a file or a folder, got \"no/pictures\", which is not there"},
      {pictures(R"("name": "vgg11")", "[8, 8, 3]"),
       "model.name: expected a network for samples [8, 8, 3], got vgg11"},
      {pictures(R"("name": "alexnet")", "[32, 32, 3]"), "at least 63 x 63"},
      {pictures(R"("name": "densenet121")", "[16, 16, 3]"), "at least 32 x 32"},
      {pictures(R"("name": "swin_t")", "[2, 2, 3]"), "at least 4 x 4"},
      {pictures(R"("name": "vit_b_16", "layers": 1)", "[24, 24, 3]"),
       "expected an image that is a multiple of the patch 16, got 24"},
      {pictures(R"("name": "vit_b_16", "layers": 1)", "[32, 16, 3]"),
       "model.name: expected a network for samples [32, 16, 3], got vit_b_16"},
      {pictures(R"("name": "vit_b_16", "layers": 1, "heads": 5)", "[32, 32, 3]"),
       "expected heads that divide the width 768, got 5"},
      {pictures(R"("name": "resnet20")", "[8, 8, 3]", R"(, "batch_size": 9, "drop_last": true)"),
       "data.batch_size: expected at most 8 samples with drop_last, got 9"},
  };
  for (const auto& [text, message] : wrong) {
    write_file(folder / "wrong.json", text);
    const auto& this_text = text;
    CAPTURE(this_text);
    check_fails(frugal(fmt::format("train {} --out {}", folder / "wrong.json", folder / "wrong")),
                2, {message.c_str()});
    CHECK_FALSE(std::filesystem::exists(folder / "wrong"));
  }
}

TEST_CASE_FIXTURE(BadInput, "a padding as large as the pictures would crop them away") {
  check_fails(frugal("train " + config + " --set data.shape=[1,6,3]"), 2,
              {"data.crop_padding: expected less than the shorter side", "1 pixel, got 1"});
  check_fails(frugal("train " + config + " --set data.crop_padding=6"), 2, {"6 pixels, got 6"});
  CHECK(frugal("train " + config + " --quiet --set data.crop_padding=5").status == 0);
  check_fails(frugal("train " + config + " --set data.cutout=6"), 2,
              {"data.cutout: expected less than the longer side", "6 pixels, got 6"});
  CHECK(frugal("train " + config + " --quiet --set data.cutout=5").status == 0);
}

TEST_CASE_FIXTURE(BadInput, "--set takes one value, before CONFIG as after it") {
  const std::string steps = " --set train.steps=1 ";
  CHECK(frugal("train" + steps + config).status == 0);
  CHECK(frugal("plan" + steps + config).status == 0);
  const std::string weights = folder / "run/checkpoint/last.safetensors";
  REQUIRE(frugal("train" + steps + config + " --out " + folder / "run").status == 0);
  CHECK(frugal("eval --checkpoint " + weights + steps + config).status == 0);
  CHECK(frugal("bench step --repeats 1" + steps + config).status == 0);
  const std::string variant = " --variant 'a: compression.level=L1' ";
  CHECK(frugal("bench step --only --repeats 1" + variant + config).status == 0);
  check_fails(frugal_lab("gradient --repeats 1 --bits 4,2 " + config), 2, {"--repeats"});
  for (const char* study : {"gradient", "sensitivity", "bounds"})
    check_fails(frugal_lab(std::string(study) + " --set optim.lrr=1 " + config), 2, {"optim.lr"});
  check_fails(frugal("grad --weights x --batch x --out x --set optim.lrr=1 " + config), 2,
              {"optim.lr"});
  check_fails(frugal("generate --checkpoint x --set optim.lrr=1 " + config), 2, {"optim.lr"});
  check_fails(frugal("train --set 'optim={\"lr\":1' " + config), 2,
              {"optim: expected an object in valid JSON, got \"{\\\"lr\\\":1\""});
}

TEST_CASE_FIXTURE(BadInput, "what cannot be a configuration, and commands for meta") {
  check_fails(frugal("train ''"), 2, {"expected the name of a file, got an empty one"});
  for (const char* command : {"inspect ''", "compare ''", "eval --checkpoint '' "})
    check_fails(frugal(command + std::string(" ") + config), 2, {"got an empty one"});
  check_fails(frugal("train " + folder / ""), 2, {"expected a file, got the folder"});
  REQUIRE(frugal("train " + config + " --set train.steps=1 --out " + folder / "run").status == 0);
  check_fails(frugal("train " + folder / "run"), 2, {"the folder", "config.json"});
  for (const char* command : {"train ", "eval --checkpoint x ", "generate --checkpoint x ",
                              "grad --weights x --batch x --out x "})
    check_fails(frugal(command + config + " --set device=meta"), 2,
                {"on meta", "frugal bench step CONFIG --set device=meta", "frugal plan"});
}

TEST_CASE_FIXTURE(BadInput, "a run that a signal ends says where it is and how to go on") {
  const std::string train = " train " + config +
                            " --set train.epochs=100000 --set "
                            "data.train_samples=64 --set train.eval_interval=1000000";
  // The run is in the foreground, as the shell lets its background processes ignore SIGINT.
  for (const auto& [signal, status, word] : {std::tuple{"INT", 130, "interrupted at step "},
                                             {"TERM", 143, "terminated at step "},
                                             {"HUP", 129, "hung up at step "}}) {
    const auto& this_signal = signal;
    CAPTURE(this_signal);
    const std::string out = folder / signal;
    const Ran ran = shell(fmt::format(
        "( until [ -s {0}/metrics.jsonl ] || [ ! -e {3} ]; do sleep 0.02; done; sleep 0.1; kill "
        "-{1} "
        "$(cat {0}.pid) ) & sh -c 'echo $$ >{0}.pid; exec \"$@\"' sh FRUGAL{2} --out {0}",
        out, signal, train, config));
    CHECK(ran.status == status);
    for (const std::string& part :
         {std::string(word), out + "/checkpoint", std::string("--resume")})
      CHECK_MESSAGE(ran.err.find(part) != std::string::npos, part, ran.err);
    CHECK(std::filesystem::exists(out + "/checkpoint/state.safetensors"));
  }
}

TEST_CASE_FIXTURE(BadInput, "a run that its time ends says so") {
  const Ran ran =
      frugal("train " + config + " --set train.epochs=100000 --set train.max_seconds=0.001 --out " +
             folder / "short");
  CHECK(ran.status == 143);
  CHECK_MESSAGE(has(ran.err, " by train.max_seconds=0.001; the checkpoint is in"), ran.err);
}

TEST_CASE_FIXTURE(BadInput,
                  "data that are nowhere: where they were looked for, and what gets them") {
  const std::string cora = "train " + config +
                           " --set data.name=cora --set model.name=gcn --set data.shape=null --set "
                           "data.classes=null";
  check_fails(frugal(cora), 2,
              {"data.dir: found no cora in /nonexistent/.cache/frugal/datasets or "
               "/usr/share/datasets",
               "frugal data fetch cora"});
  // The first folder that has the data counts: one without them hides none. FRUGAL would be taken
  // for the binary in the variable's name.
  std::filesystem::create_directories(folder / "set");
  std::filesystem::create_directories(folder / "home/.cache/frugal/datasets/mnist");
  write_file(folder / "home/.cache/frugal/datasets/mnist/train-images-idx3-ubyte", "x");
  const auto dir = [&] {
    const Ran ran = shell(fmt::format(
        "env HOME={} 'FRU'GAL_DATA={} FRUGAL train {} --set data.name=MNIST --set data.shape=null "
        "--set data.classes=null --print-config",
        folder / "home", folder / "set", config));
    return ran.status == 0 ? Json::parse(ran.out)["data"]["dir"].get<std::string>() : ran.err;
  };
  CHECK(dir() == folder / "home/.cache/frugal/datasets");
  std::filesystem::create_directories(folder / "set/mnist");
  write_file(folder / "set/mnist/train-images-idx3-ubyte", "x");
  CHECK(dir() == folder / "set");
}

TEST_CASE_FIXTURE(BadInput, "data files") {
  const TempFolder data;
  const std::string train = "train " + config +
                            " --set data.name=mnist --set data.shape=null --set data.classes=null "
                            "--set data.train_samples=0 --set data.dir=" +
                            data / "";
  check_fails(frugal(train), 2, {"data.dir: ", "train-images-idx3-ubyte"});
  write_idx(data, 64, 3);
  CHECK(frugal(train + " --set train.steps=2").status == 0);
  write_idx(data, 64, 10);
  check_fails(frugal(train), 1, {"train-labels-idx1-ubyte", "label"});
  write_idx(data, 64, 3);
  const std::string images = read_file(data / "train-images-idx3-ubyte");
  write_file(data / "train-images-idx3-ubyte", images.substr(0, 5000));
  check_fails(frugal(train), 1, {"train-images-idx3-ubyte"});
  write_file(data / "train-images-idx3-ubyte", std::string("\x1f\x8b garbage that is no gzip"));
  check_fails(frugal(train), 1, {"train-images-idx3-ubyte"});
  const TempFolder cifar;
  write_file(cifar / "data_batch_1.bin", std::string(3073 * 3 + 5, '\1'));
  check_fails(frugal("train " + config +
                     " --set data.name=cifar10 --set data.shape=null --set data.classes=null "
                     "--set data.dir=" +
                     cifar / ""),
              1, {"data_batch_1.bin"});
}

TEST_CASE_FIXTURE(BadInput, "files of data: two for one part, a text that is none, none there") {
  const TempFolder data;
  const auto train = [&](const std::string& sets) {
    write_file(data / "c.json",
               fmt::format(R"({{"threads": 1, "train": {{"steps": 2}}, {}}})", sets));
    return frugal("train " + data / "c.json");
  };
  for (const char* name : {"train", "val", "valid", "test"})
    write_file(data / (std::string(name) + ".csv"), "a,b,target\n1,2,x\n2,3,y\n3,4,x\n4,5,y\n");
  const std::string table = R"("model": {"name": "mlp", "hidden": [4]},
      "data": {"name": "csv", "batch_size": 2, "dir": ")" +
                            data / "" + "\"}";
  check_fails(train(table), 1, {"expected one file or folder for a part", "val.csv", "valid.csv"});
  std::filesystem::remove(data / "valid.csv");
  CHECK(train(table).status == 0);

  const std::string text = R"("model": {"name": "gpt2", "layers": 1, "width": 8, "heads": 2},
      "data": {"name": "text", "max_length": 4, "batch_size": 2, "dir": ")";
  write_file(data / "bytes.txt",
             "abc\xff"
             "def");
  check_fails(train(text + data / "bytes.txt" + "\"}"), 1,
              {"bytes.txt", "expected UTF-8, got the byte ff at offset 3"});
  write_file(data / "empty.txt", "");
  check_fails(train(text + data / "empty.txt" + "\"}"), 1, {"empty.txt", "expected characters"});
  check_fails(train(text + data / "bytes.txt" + R"(", "tokenizer": "byte_bpe", "vocabulary": ")" +
                    data / "none" + "\"}"),
              2, {"data.vocabulary: expected a file or a folder", "none"});
}

// A place without the files of the data is a mistake of the configuration, whatever the data are.
TEST_CASE_FIXTURE(BadInput, "data.dir that is not the place of the data has status 2") {
  std::filesystem::create_directories(folder / "empty");
  write_file(folder / "words.txt", "words");
  write_file(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
  std::filesystem::create_directories(folder / "locked");
  std::filesystem::permissions(folder / "locked", std::filesystem::perms::none);
  for (const auto& [model, sets] :
       {std::pair<const char*, std::vector<const char*>>{
            "mlp",
            {"image_folder", "image_list", "mnist", "fashion_mnist", "cifar10", "cifar100",
             "tensors", "csv"}},
        {"unet", {"image_masks"}},
        {"retinanet_resnet50_fpn", {"image_boxes"}},
        {"bert_tiny", {"sst2", "mrpc", "jsonl"}},
        {"gpt2", {"text", "tiny_shakespeare", "conversations"}},
        {"gcn", {"cora", "facebook", "ogbn_arxiv", "reddit", "graphsaint", "graph_npz"}}})
    for (const char* const set : sets)
      for (const char* const place : {"empty", "words.txt", "locked", "nowhere"}) {
        const std::string name = set, dir = folder / place;
        CAPTURE(name);
        CAPTURE(dir);
        if ((name == "text" || name == "graph_npz") && dir.ends_with(".txt")) continue;  // files
        Json data = {{"name", name}, {"dir", dir}};
        if (std::string(model) == "bert_tiny") data["vocabulary"] = folder / "vocab.txt";
        const Json whole = {{"model", {{"name", model}}}, {"data", data}, {"device", "cpu"}};
        write_file(config, whole.dump());
        // A folder without a tokenizer leaves the vocabulary open.
        const bool open = name == "conversations" && !dir.ends_with("nowhere");
        check_fails(frugal("train " + config), 2, {open ? "data.vocabulary: " : "data.dir: "});
      }
  std::filesystem::permissions(folder / "locked", std::filesystem::perms::owner_all);
}

TEST_CASE_FIXTURE(BadInput, "weights and checkpoints") {
  REQUIRE(frugal("train " + config + " --out " + folder / "run").status == 0);
  const std::string last = folder / "run/checkpoint/last.safetensors";
  const std::string eval = "eval " + config + " --checkpoint ";
  CHECK(frugal(eval + last).status == 0);
  check_fails(frugal(eval + folder / "none.safetensors"), 2, {"none.safetensors"});
  check_fails(frugal(eval + last + " --set model.hidden=[64,31,9]"), 2,
              {"missing", "fc4.weight", "wrong shape", "fc2.weight"});
  check_fails(frugal(eval + last + " --set model.hidden=[64]"), 2, {"unexpected", "fc3.weight"});
  const std::string bytes = read_file(last);
  write_file(folder / "cut.safetensors", bytes.substr(0, bytes.size() - 9));
  check_fails(frugal(eval + folder / "cut.safetensors"), 1, {"cut.safetensors"});
  check_fails(frugal("inspect " + folder / "cut.safetensors"), 1, {"cut.safetensors"});
  const Ran inspected = frugal("inspect --json " + last);
  REQUIRE(inspected.status == 0);
  CHECK(Json::parse(inspected.out)["tensors"].size() == 6);
  CHECK(Json::parse(inspected.out)["metadata"]["step"] == "80");

  const std::string state = folder / "run/checkpoint/state.safetensors";
  const std::string whole = read_file(state);
  const std::string resume = "train " + config + " --resume --out " + folder / "run";
  write_file(state, whole.substr(0, whole.size() / 2));
  check_fails(frugal(resume), 1, {"state.safetensors"});
  write_file(state, bytes);  // weights, but no state
  check_fails(frugal(resume), 1, {"state.safetensors", "no state of a run"});
  write_file(state, whole);
  write_file(folder / "run/metrics.jsonl", "");
  check_fails(frugal(resume), 1, {"metrics.jsonl"});
}

TEST_CASE_FIXTURE(BadInput, "using a run: what is no run, and runs that are not whole") {
  REQUIRE(frugal("train " + config + " --out " + folder / "run").status == 0);
  const std::string run = folder / "run";
  check_fails(frugal("predict"), 2, {"RUN"});
  check_fails(frugal("predict " + run), 2, {"INPUT"});
  check_fails(frugal("predict " + config + " x.png"), 2, {"folder of a run", "is no folder"});
  check_fails(frugal("predict " + folder / "" + " x.png"), 2, {"folder of a run", "has none"});
  check_fails(frugal("predict '' x.png"), 2, {"empty"});
  for (const char* wrong : {"--top 0", "--top many", "--batch-size 0", "--tta rotate"})
    check_fails(frugal("predict " + run + " x.png " + wrong), 2, {"--"});
  check_fails(frugal("predict " + run + " x.png --set optim.lrr=1"), 2, {"optim.lr"});
  check_fails(frugal("predict " + run + " x.png --set device=meta"), 2, {"on meta"});
  check_fails(frugal("predict " + run + " x.png --weights " + folder / "none"), 2,
              {"expected best, last, or a file or a folder of weights", "none"});
  check_fails(frugal("eval " + run + " --split train"), 2, {"--split"});
  check_fails(frugal("eval " + folder / ""), 2, {"folder of a run"});
  check_fails(frugal("generate " + config), 2, {"language model"});
  for (const char* content : {"{", "[]", R"({"version": 2})", R"({"version": 1, "kind": "sound"})",
                              R"({"version": 1, "kind": "images", "sample": [6, 0, 1]})"}) {
    write_file(run + "/input.json", content);
    const Ran ran = frugal("predict " + run + " x.png");
    CHECK(ran.status != 0);
    CHECK_MESSAGE(ran.err.find("input.json") != std::string::npos, ran.err);
  }
  // A run of an earlier version has none: its configuration and data say the same.
  std::filesystem::remove(run + "/input.json");
  CHECK(frugal("eval " + run).status == 0);
  check_fails(frugal("predict " + run + " x.png"), 1, {"x.png"});
  std::filesystem::remove_all(run + "/checkpoint");
  check_fails(frugal("eval " + run), 1, {"no checkpoint yet"});
}

TEST_CASE_FIXTURE(BadInput, "output folders") {
  const std::string train = "train " + config + " --out ";
  check_fails(frugal(train + "/proc/frugal"), 1, {"/proc/frugal"});
  check_fails(frugal(train + config + "/run"), 1, {"c.json"});
  write_file(folder / "file", "x");
  check_fails(frugal(train + folder / "file"), 2, {"not a folder"});
  std::filesystem::create_directory(folder / "mine");
  write_file(folder / "mine/thesis.tex", "x");
  check_fails(frugal(train + folder / "mine"), 2, {"not empty"});
  check_fails(frugal(train + folder / "mine" + " --resume"), 2, {"thesis.tex"});
  CHECK(read_file(folder / "mine/thesis.tex") == "x");
}

TEST_CASE_FIXTURE(BadInput, "a full disk leaves the last checkpoint whole") {
  // A limit on file sizes stands for it: the write fails in the same place.
  const std::string train = "FRUGAL train " + config + " --out " + folder / "run";
  check_fails(shell("trap '' XFSZ; ulimit -f 16; " + train), 1, {"write", "safetensors"});
  REQUIRE(!std::filesystem::exists(folder / "run/checkpoint/state.safetensors"));
  REQUIRE(!std::filesystem::exists(folder / "run/checkpoint/state.safetensors.tmp"));
  CHECK(shell(train + " --resume").status == 0);
}

TEST_CASE_FIXTURE(BadInput, "out of memory: three lines say what holds it and what to lower") {
  const Ran ran = frugal("train " + config + " --set 'memory_limit=52 KiB'");
  check_fails(ran, 1,
              {"out of memory", "parameter", "activation", "input", "data.batch_size",
               "fewer compression.bits (now 4)", "memory_limit"});
  CHECK(ran.err.find("checkpointing") == std::string::npos);  // an mlp has no blocks
  const auto last =
      std::find_if(ran.err.rbegin(), ran.err.rend(), [](char c) { return c != '\n'; });
  CHECK(std::count(last, ran.err.rend(), '\n') == 2);
  const std::string other = "train " + config + " --set 'memory_limit=52 KiB' --set ";
  check_fails(frugal(other + "compression.policy=actnn"), 1, {"fewer compression.bits (now 4)"});
  check_fails(frugal(other + "compression.policy=acgc --set compression.level=null"), 1,
              {"compression.acgc.growth (now 1)"});
}

TEST_CASE_FIXTURE(BadInput, "a loss that is not finite stops the run and keeps the checkpoint") {
  // Without clipping, a rate of 1e4 overflows within a few steps.
  const std::string diverge =
      " --set optim.lr=10000 --set optim.clip_norm=0 --set "
      "schedule.name=constant --set train.checkpoint_interval=1";
  const Ran ran = frugal("train " + config + diverge + " --out " + folder / "run");
  check_fails(ran, 1, {"step ", "first non-finite tensor: "});
  const auto kept =
      data::SafetensorsFile::open(folder / "run/checkpoint/last.safetensors").read_all();
  for (const auto& [name, tensor] : kept)
    for (double value : tensor.to_vector()) REQUIRE(std::isfinite(value));
}

}  // namespace frugal::apps
