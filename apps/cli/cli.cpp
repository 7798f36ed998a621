#include "apps/cli/cli.h"

#include <cstdio>
#include <limits>

#include "apps/cli/command_line.h"
#include "apps/cli/commands.h"
#include "apps/cli/version.h"
#include "apps/config/resolve.h"
#include "apps/text/wrapped.h"
#include "distributed/communicator.h"

namespace frugal::apps {
namespace {

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

// What the command line fills. It lives as long as one call, so the next one finds the defaults.
struct Arguments {
  TrainArguments train;
  bool print_config = false, help_config = false;
  EvalArguments eval;
  PredictArguments predict;
  GradArguments grad;
  PlanArguments plan;
  ProfileArguments profile;
  LrFindArguments lr_find;
  CurveArguments curve;
  ReportArguments report;
  std::string file;                  // inspect
  std::vector<std::string> folders;  // compare
  bool json = false;                 // inspect, compare
  GenerateArguments generate;
  ExportArguments exported;
  DataArguments data;
  ReproduceArguments reproduce;
  BenchArguments bench;
  DistributedBenchArguments distributed;
};

void add_train(CLI::App& app, Arguments& all) {
  TrainArguments& a = all.train;
  CLI::App* sub = command(app, "train", "Train a model as a configuration says");
  auto* config = sub->add_option("CONFIG", a.config, "Configuration, JSON");
  add_sets(sub, a.sets);
  sub->add_option(
         "--out", a.out,
         "Folder for config.json, metrics.jsonl, metrics.csv, summary.json, report.html and "
         "checkpoint/")
      ->type_name("DIR")
      ->check([](const std::string& out) {
        return out.empty() ? "expected a folder, got an empty name" : "";
      });
  sub->add_flag("--resume", a.resume, "Continue the run in --out from its last checkpoint");
  sub->add_flag("--data-changed", a.data_changed,
                "With --resume: go on although the data have changed since the run began");
  sub->add_flag("--overwrite", a.overwrite, "Replace the run in --out");
  sub->add_option("--extend", a.extend,
                  "With --resume: let the run, also one that has ended, go on until it has so many "
                  "epochs in all (steps, if train.steps says when to stop)")
      ->type_name("EPOCHS")
      ->check(whole(1, int64_t{1} << 40));
  sub->add_option("--init-from", a.init_from,
                  "Start from these weights, such as the folder of another run: the same as "
                  "--set model.weights=PATH")
      ->type_name("PATH")
      ->check(check_named);
  sub->add_flag("--quiet", a.quiet, "Print nothing but the summary, and errors");
  sub->add_flag("--json", a.json, "Print the summary as JSON instead of a table");
  sub->add_flag("--print-config", all.print_config,
                "Print the configuration with all defaults, and stop");
  sub->add_flag("--help-config", all.help_config, "Print every key of configurations, and stop");
  sub->callback([config, &all, &a] {
    if (all.help_config) return print(wrapped(config_help()));
    if (config->count() == 0) throw ConfigError("", "train: expected a CONFIG file");
    if (!all.print_config) return train_command(a);
    Config resolved = load_config(a.config, a.sets);
    resolve_if_data_are_there(resolved);
    print(config_text(resolved));
  });
}

CLI::Option* add_weights(CLI::App* sub, std::string& weights) {
  return sub->add_option("--weights", weights, "A run's: best, last or a safetensors file")
      ->check(check_named)
      ->capture_default_str();
}
// A network that is trained: by a run, or by others.
template <class Arguments>
void add_trained(CLI::App* sub, Arguments& a) {
  sub->add_option("RUN", a.config, "Folder of a run, or a configuration with --checkpoint")
      ->required()
      ->check(check_named);
  CLI::Option* const checkpoint =
      sub->add_option("--checkpoint", a.checkpoint, "Weights, safetensors")
          ->type_name("FILE")
          ->check(check_named);
  add_weights(sub, a.weights)->excludes(checkpoint);
}
void add_tta(CLI::App* sub, std::string& tta) {
  sub->add_option("--tta", tta,
                  "Average over views of a picture: none, flip (and its mirror image) or ten_crop "
                  "(centre, corners, their mirror images)")
      ->check(CLI::IsMember({"none", "flip", "ten_crop"}))
      ->capture_default_str();
}

void add_eval(CLI::App& app, EvalArguments& a) {
  CLI::App* sub = command(app, "eval", "Loss and accuracy of a run's weights, or of others");
  add_trained(sub, a);
  sub->add_option("--split", a.split, "test or val")
      ->check(CLI::IsMember({"test", "val"}))
      ->capture_default_str();
  sub->add_option("--data", a.data,
                  "JSON lines of texts, or of questions with choices, in the place of the run's "
                  "data; for a language model")
      ->type_name("FILE")
      ->check(check_named);
  add_tta(sub, a.tta);
  add_sets(sub, a.sets);
  sub->add_flag("--json", a.json,
                "Print {\"loss\", \"accuracy\", \"samples\", \"weights\"}, and the data's metric");
  sub->callback([&a] { eval_command(a); });
}

void add_predict(CLI::App& app, PredictArguments& a) {
  CLI::App* sub = command(
      app, "predict", "Classes or numbers for pictures, texts, rows or nodes, by a run's network");
  sub->add_option("RUN", a.run, "Folder of a run")->required()->check(check_named);
  sub->add_option("INPUT", a.inputs,
                  "Pictures or folders of them; texts or files of one in each line; tables or "
                  "arrays of rows; numbers of nodes")
      ->required();
  sub->add_option("--top", a.top, "How many classes to print")
      ->check(whole(1, 1 << 20))
      ->capture_default_str();
  sub->add_option("--out", a.out,
                  "Folder for masks (PNG), with a network that gives a class to each pixel")
      ->check(check_folder);
  sub->add_flag("--overwrite", a.overwrite, "Write over masks in that folder");
  sub->add_option("--batch-size", a.batch_size, "Inputs at once")
      ->check(whole(1, 1 << 16))
      ->capture_default_str();
  add_weights(sub, a.weights);
  add_tta(sub, a.tta);
  add_sets(sub, a.sets);
  sub->add_flag("--json", a.json, "Print an object for each input, one in each line");
  sub->callback([&a] { predict_command(a); });
}

void add_grad(CLI::App& app, GradArguments& a) {
  CLI::App* sub = command(
      app, "grad", "One training-mode forward and backward, for comparison with other frameworks");
  sub->add_option("CONFIG", a.config, "Configuration, JSON; only the model matters")->required();
  sub->add_option("--weights", a.weights, "Every parameter and buffer, PyTorch's names and layouts")
      ->required()
      ->type_name("FILE")
      ->check(check_named);
  sub->add_option("--batch", a.batch,
                  "input [N, C, H, W] f32 and target [N] i64; without target the loss is the sum "
                  "of the output")
      ->required()
      ->type_name("FILE")
      ->check(check_named);
  sub->add_option("--out", a.out, "Gets loss, output, grad/<parameter> and buffer/<name>")
      ->required()
      ->type_name("FILE")
      ->check(check_place);
  sub->add_flag("--f64", a.f64,
                "Compute in f64 on the CPU, which is slow, and write f64: a difference that stays "
                "is no rounding");
  add_sets(sub, a.sets);
  sub->add_flag("--json", a.json, "Print {\"loss\", \"memory\"}");
  sub->callback([&a] { grad_command(a); });
}

void add_plan(CLI::App& app, PlanArguments& a) {
  CLI::App* sub =
      command(app, "plan", "What a step takes with each way to keep activations, and what fits");
  auto* config = sub->add_option("CONFIG", a.config, "Configuration, JSON");
  auto* model = sub->add_option("--model", a.model,
                                "Instead of CONFIG: a network by its name, on random samples")
                    ->excludes(config)
                    ->check(check_named);
  sub->add_option("--shape", a.shape,
                  "With --model: of a sample, such as 224,224,3 of pictures, 128 of tokens")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole(1, 1 << 20))
      ->needs(model);
  sub->add_option("--batch", a.batch, "With --model: samples of a batch")
      ->check(whole(1, 1 << 20))
      ->needs(model);
  auto* memory =
      sub->add_option("--memory", a.memory,
                      "What tensors may take, such as \"2 GiB\", instead of the free memory")
          ->type_name("BYTES")
          ->check([](const std::string& text) {
            return text.empty() ? "expected bytes such as \"2 GiB\", got an empty text" : "";
          });
  auto* max = sub->add_option("--max", a.max,
                              "The largest batch, layers, width or resolution that fits into "
                              "--memory, with each way")
                  ->type_name("WHAT")
                  ->check(CLI::IsMember({"batch", "layers", "width", "resolution"}))
                  ->needs(memory);
  sub->add_flag("--only", a.only, "With --max: only the way that the configuration has itself")
      ->needs(max);
  sub->add_option("--ranks", a.ranks, "What each of so many processes takes that train together")
      ->check(whole(1, 1 << 20))
      ->capture_default_str();
  sub->add_flag("--explain", a.explain, "Which tensors take most, and what would lower that")
      ->excludes(max);
  add_sets(sub, a.sets);
  sub->add_flag("--json", a.json, "Print the plan as JSON");
  sub->callback([&a] {
    if (a.config.empty() && a.model.empty())
      throw ConfigError("", "plan: expected a CONFIG file, or --model with a network's name");
    plan_command(a);
  });
}

void add_profile(CLI::App& app, ProfileArguments& a) {
  CLI::App* sub = command(app, "profile", "Time and bytes of a training step, by op or by layer");
  sub->add_option("CONFIG", a.config, "Configuration, JSON")->required();
  sub->add_option("--by", a.by, "A row for each op, or for each layer")
      ->check(CLI::IsMember({"op", "layer"}))
      ->capture_default_str();
  sub->add_option("--steps", a.steps, "Steps to measure, after two that warm up")
      ->check(whole(1, 1000))
      ->capture_default_str();
  sub->add_option("--trace", a.trace,
                  "Also write each op and the memory over time, for ui.perfetto.dev")
      ->type_name("FILE")
      ->check(check_place);
  add_sets(sub, a.sets);
  sub->add_flag("--json", a.json, "Print JSON");
  sub->callback([&a] { profile_command(a); });
}

void add_lr_find(CLI::App& app, LrFindArguments& a) {
  CLI::App* sub = command(app, "lr-find", "Suggest a learning rate: train at rising rates");
  sub->add_option("CONFIG", a.config, "Configuration, JSON")->required();
  sub->add_option("--from", a.from, "The first step's rate")
      ->check(real(1e-30, 1e6))
      ->capture_default_str();
  sub->add_option("--to", a.to, "The last step's rate")
      ->check(real(1e-30, 1e6))
      ->capture_default_str();
  sub->add_option("--steps", a.steps, "How many steps")
      ->check(whole(10, 100000))
      ->capture_default_str();
  add_sets(sub, a.sets);
  sub->add_flag("--json", a.json, "Print JSON, with each step's rate and loss");
  sub->callback([&a] { lr_find_command(a); });
}

void add_curve(CLI::App& app, CurveArguments& a) {
  CLI::App* sub = command(app, "curve", "Draw the loss or accuracy of runs over their steps");
  sub->add_option("RUN", a.folders, "Folders given to train --out")->required()->check(check_there);
  sub->add_option("--of", a.of, "loss, accuracy, lr or grad_norm")
      ->check(CLI::IsMember({"loss", "accuracy", "lr", "grad_norm"}))
      ->capture_default_str();
  sub->add_option("--svg", a.svg, "Also write an SVG file")->type_name("FILE")->check(check_place);
  sub->add_flag("--json", a.json, "Print the points as JSON");
  sub->callback([&a] { curve_command(a); });
}

void add_report(CLI::App& app, ReportArguments& a) {
  CLI::App* sub = command(app, "report", "Make a page of one run, or of several beside each other");
  sub->add_option("RUN", a.folders, "Folders given to train --out, also of runs that are at work")
      ->required()
      ->check(check_there);
  sub->add_option("--out", a.out,
                  "The page to write; default: report.html in the folder of the run, or here for "
                  "several runs")
      ->type_name("FILE")
      ->check(check_place);
  sub->callback([&a] { report_command(a); });
}

void add_files(CLI::App& app, Arguments& a) {
  CLI::App* inspect =
      command(app, "inspect", "What a file of weights, a model, an adapter or a run holds");
  inspect
      ->add_option("FILE", a.file,
                   "A safetensors file, a folder of Hugging Face's hub, an adapter, or a run")
      ->required()
      ->check(check_there);
  inspect->add_flag("--json", a.json, "Print JSON");
  inspect->callback([&a] { inspect_command(a.file, a.json); });
  CLI::App* compare =
      command(app, "compare", "Finished runs side by side, as multiples of the first");
  compare->add_option("DIR", a.folders, "Folders given to train --out")
      ->required()
      ->check(check_there);
  compare->add_flag("--json", a.json, "Print their summaries as JSON");
  compare->callback([&a] { compare_command(a.folders, a.json); });
  command(app, "schema", "Print the JSON Schema of configurations")->callback([] {
    print(config_schema().dump(2) + "\n");
  });
}

void add_generate(CLI::App& app, GenerateArguments& a) {
  CLI::App* sub = command(app, "generate", "Text from a language model");
  add_trained(sub, a);
  add_sets(sub, a.sets);
  sub->add_option("--prompt", a.prompt, "Text to continue; with --chat, a message to answer");
  CLI::Option* chat = sub->add_flag(
      "--chat", a.chat,
      "A conversation, as the chat template of the run's tokenizer writes it. Without "
      "--prompt, each line of the input is a message, until the input ends");
  sub->add_option("--system", a.system, "What the role system says first, with --chat")
      ->needs(chat);
  sub->add_option("--tokens", a.tokens,
                  "How many to add at most; the model's end of a text ends it before")
      ->check(whole(0, int64_t{1} << 40))
      ->capture_default_str();
  sub->add_option("--temperature", a.temperature, "0: always the likeliest token")
      ->check(real(0, 1e6));
  sub->add_option("--top-k", a.top_k, "Draw from so many likeliest tokens only; 0: from all")
      ->check(whole(0, int64_t{1} << 40));
  sub->add_option("--top-p", a.top_p,
                  "Draw from the fewest likeliest tokens whose probabilities add up to this; 1: "
                  "from all")
      ->check(real(1e-9, 1));
  sub->add_option("--min-p", a.min_p,
                  "Draw from tokens of at least this share of the highest probability; 0: from all")
      ->check(real(0, 1));
  sub->add_option("--repetition-penalty", a.repetition_penalty,
                  "Divides logits above 0 of tokens that the text has, and multiplies those below; "
                  "1: none")
      ->check(real(1e-3, 1e3));
  one_each(sub->add_option("--stop", a.stop, "A text at which it ends, unprinted; repeatable")
               ->type_name("TEXT"));
  sub->add_option("--seed", a.seed, "Decides the draws")
      ->check(whole(0, std::numeric_limits<int64_t>::max()));
  sub->callback([&a] { generate_command(a); });
}

void add_export(CLI::App& app, ExportArguments& a) {
  CLI::App* sub =
      command(app, "export", "A network for other programs: ONNX, safetensors or a folder");
  sub->add_option("RUN", a.source, "Folder of a run, or a configuration with --checkpoint")
      ->required()
      ->check(check_named);
  sub->add_option("--format", a.format,
                  "onnx, safetensors, or hf: a folder as Hugging Face's hub has it. A run with "
                  "an adapter also gives merged: hf, with the adapter in the weights; and the "
                  "adapter alone: peft, mlx-lora, gguf-lora. Default: by the ending of --output")
      ->check(
          CLI::IsMember({"onnx", "safetensors", "hf", "merged", "peft", "gguf-lora", "mlx-lora"}));
  sub->add_option("--output,--out", a.output, "Default: MODEL with the format behind a dot, here")
      ->type_name("FILE")
      ->check(check_named);
  CLI::Option* const weights = sub->add_option("--weights", a.weights, "A run's: best or last")
                                   ->check(CLI::IsMember({"best", "last"}))
                                   ->capture_default_str();
  CLI::Option* const checkpoint =
      sub->add_option("--checkpoint", a.checkpoint, "Other weights, safetensors")
          ->type_name("FILE")
          ->check(check_named)
          ->excludes(weights);
  sub->add_option("--dtype", a.dtype,
                  "f32, f16 or bf16, in safetensors, hf, merged, peft and mlx-lora")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str();
  sub->add_option("--example", a.example,
                  "Write random inputs and what the network makes of them, safetensors; for ONNX")
      ->type_name("FILE")
      ->check(check_place);
  sub->add_flag(
      "--trunk", a.trunk,
      "The trained trunk alone, under torchvision's names; for simsiam, byol and moco_v2");
  sub->add_flag("--random", a.random, "Export random weights of a configuration")
      ->excludes(checkpoint);
  sub->add_flag("--overwrite", a.overwrite, "Replace files that exist");
  add_sets(sub, a.sets);
  sub->add_flag("--json", a.json, "Print what was written as JSON");
  sub->callback([&a] { export_command(a); });
}

void add_data(CLI::App& app, DataArguments& a) {
  CLI::App* data = command(app, "data", "Get the usual datasets, and check them");
  data->require_subcommand(1);
  const auto common = [&a](CLI::App* sub) {
    sub->add_option("--dir", a.dir,
                    "Folder; default: $FRUGAL_DATA, or ~/.cache/frugal/datasets; list looks in "
                    "/usr/share/datasets, too")
        ->type_name("DIR")
        ->check(check_folder);
    return sub;
  };
  CLI::App* list = common(command(*data, "list", "Which there are, and which the folder has"));
  list->add_flag("--json", a.json, "Print JSON, with addresses and checksums");
  list->callback([&a] { data_list_command(a); });
  CLI::App* check = common(command(*data, "check", "Sizes and checksums of what the folder has"));
  check->add_option("NAME", a.names, "Datasets; default: all that are there");
  check->callback([&a] { data_check_command(a); });
  CLI::App* fetch = common(command(*data, "fetch", "Download, check and unpack"));
  fetch->add_option("NAME", a.names, "Datasets")->required();
  fetch->add_option("--url", a.url,
                    "Another address: of the file, or ending in / where there are several");
  fetch->add_option("--sha256", a.sha256, "Another checksum of the file, or none");
  fetch->callback([&a] { data_fetch_command(a); });
}

void add_reproduce(CLI::App& app, ReproduceArguments& a) {
  CLI::App* sub = command(app, "reproduce",
                          "The tables and figures of the papers, beside the published values");
  sub->add_option("TABLE", a.names,
                  "Names of tables, or their files; without any: a list of all, with what each "
                  "needs and what is done");
  sub->add_option("--scale", a.scale,
                  "smoke (seconds), reduced or full; a table without reduced takes full for it")
      ->check(CLI::IsMember({"smoke", "reduced", "full"}))
      ->capture_default_str();
  sub->add_option("--seeds", a.seeds, "Runs of each cell that trains; default: as the table says")
      ->check(whole(1, 1000));
  sub->add_option("--out", a.out,
                  "Folder for results.sqlite, runs, and the tables as .md, .csv and .html")
      ->type_name("DIR")
      ->check(check_folder)
      ->capture_default_str();
  sub->add_option("--jobs", a.jobs, "Cells at once; default: one for each core")
      ->check(whole(1, 1024));
  sub->add_option("--device", a.device,
                  "cpu, cuda or cuda:N for the cells that train; default: as the table says. "
                  "Results name the GPU")
      ->check(check_named);
  sub->add_option("--precision", a.precision, "f32, tf32 or bf16 on that device")
      ->check(check_named);
  sub->add_option("--tables", a.tables, "Folder of tables instead of configs/reproduce")
      ->type_name("DIR")
      ->check(check_named);
  sub->add_option("--page", a.page, "Write a page with all tables and the results that there are")
      ->type_name("FILE")
      ->check(check_place);
  sub->add_flag("--commands", a.commands, "Print the command of each cell, and run nothing");
  sub->add_flag("--json", a.json, "Print JSON");
  sub->callback([&a] { reproduce_command(a); });
}

// What moved to the other binary says so, whatever follows it.
void add_moved(CLI::App& bench) {
  for (const char* name : {"bounds", "gradient", "sensitivity", "spmm"}) {
    CLI::App* moved = command(bench, name, "");
    moved->group("");  // not in the help
    moved->prefix_command();
    moved->set_help_flag();
    moved->callback([name] {
      throw ConfigError("", fmt::format("bench {0}: this is now `frugal-lab {0}`, with the same "
                                        "options",
                                        name));
    });
  }
}

void add_bench_distributed(CLI::App& bench, DistributedBenchArguments& a) {
  CLI::App* sub = command(bench, "distributed",
                          "Several ranks beside one: speed, sums of gradients, memory of a rank");
  sub->add_option("--workload", a.workload, "r20 (batch 128), r18 (batch 32) or bert, as of step")
      ->check(CLI::IsMember({"r20", "r18", "bert"}))
      ->capture_default_str();
  sub->add_option("--ranks", a.ranks, "Processes that train together, with a thread each")
      ->check(whole(2, 1024))
      ->capture_default_str();
  sub->add_option("--rounds", a.rounds, "Runs of each kind, one after the other; medians count")
      ->check(whole(1, 1000))
      ->capture_default_str();
  sub->add_option("--steps", a.steps, "Steps of a run, after three that warm up")
      ->check(whole(1, 100000))
      ->capture_default_str();
  sub->add_option("--mebibytes", a.mebibytes, "Size of the tensor that ranks add up, in MiB")
      ->check(whole(1, 4096))
      ->capture_default_str();
  sub->add_option("--only", a.only,
                  "One part: scaling, all-reduce or memory. mpirun may start the command with "
                  "all-reduce, also on several machines")
      ->check(CLI::IsMember({"scaling", "all-reduce", "memory"}));
  add_sets(sub, a.sets);
  sub->add_flag("--json", a.json, "Print JSON");
  sub->callback([&a] { bench_distributed(a); });
}

void add_bench(CLI::App& app, Arguments& all) {
  BenchArguments& a = all.bench;
  CLI::App* bench = command(app, "bench", "Measure speed and memory");
  bench->require_subcommand(1);
  const auto common = [&a](CLI::App* sub) { return add_repeats(sub, a.json, a.repeats); };
  CLI::App* quantizer =
      common(command(*bench, "quantizer",
                     "Packing and unpacking beside copying, on CUDA by bytes read and written"));
  quantizer->add_option("--mebibytes", a.mebibytes, "Size of the tensor in MiB")
      ->check(whole(1, 1 << 16))
      ->capture_default_str();
  quantizer->add_option("--channels", a.channels, "Its last axis")
      ->check(whole(1, 1 << 16))
      ->capture_default_str();
  add_place(quantizer, a.device, a.dtype);
  quantizer->callback([&a] { bench_quantizer(a); });
  CLI::App* ops = common(command(*bench, "ops", "Every op forward and backward"));
  add_place(ops, a.device, a.dtype);
  ops->callback([&a] { bench_ops(a); });
  CLI::App* step = common(command(*bench, "step", "A training step at each level, alternating"));
  auto* config = step->add_option("CONFIG", a.config, "Configuration, JSON");
  step->add_option(
          "--workload", a.workload,
          "Instead of CONFIG: r20 (batch 128), r18 (batch 32), r50 (batch 4 of 224 pixels), bert "
          "(4 layers of 256), lora (4 layers of TinyLlama's shapes), gcn (3 layers, the size of "
          "ogbn-arxiv)")
      ->excludes(config);
  one_each(
      step->add_option(
              "--variant", a.variants,
              "A row beside L0 without recipes, instead of the usual ones (levels; with another "
              "policy than gact and with a budget the configuration itself), such as "
              "\"adaptive: compression.level=L2\"; repeatable")
          ->type_name("NAME: PATH=VALUE ..."));
  step->add_option("--trace", a.trace,
                   "Write live bytes after each allocation and release of one more step, CSV")
      ->type_name("FILE")
      ->check(check_place);
  step->add_option("--record-profile", a.profile,
                   "Write how many bytes each packed tensor took, for compression.advanced.profile "
                   "on meta")
      ->type_name("FILE")
      ->check(check_place);
  step->add_flag("--only", a.only, "No row of L0 without recipes, and no ratios to it");
  add_sets(step, a.sets);
  step->callback([&a] { bench_step(a); });
  CLI::App* variance =
      command(*bench, "variance",
              "What compression adds to the gradient, over the variance between minibatches");
  variance->add_option("CONFIG", a.config, "Configuration, JSON")->required();
  variance->add_option("--train-steps", a.train_steps, "Steps of plain training before")
      ->check(whole(0, 1000000))
      ->capture_default_str();
  variance->add_option("--batches", a.batches, "Minibatches whose variance is the unit")
      ->check(whole(8, 1000000))
      ->capture_default_str();
  variance->add_option("--draws", a.draws, "Gradients of one batch with different rounding")
      ->check(whole(8, 1000000))
      ->capture_default_str();
  variance
      ->add_option("--layers", a.layers,
                   "Also by layer: which layers' gradients vary, and whose tensors make them. "
                   "Layers are named by so many parts of their parameters' names; 0: not by layer")
      ->check(whole(0, 100))
      ->capture_default_str();
  variance->add_flag("--json", a.json, "Print JSON");
  add_sets(variance, a.sets);
  variance->callback([&a] { bench_variance(a); });
  add_bench_distributed(*bench, all.distributed);
  add_moved(*bench);
}

// Errors: several processes, for a command that uses one.
void check_ranks(const std::string& name, const std::string& second) {
  const distributed::Launch launched = distributed::launch();
  if (launched.ranks == 1 || name == "train" || name.empty() || name.starts_with("-")) return;
  if (name == "bench" && second == "distributed") return;  // it checks more
  throw ConfigError("", fmt::format("{}: expected one process, got one of {} ({}); only `frugal "
                                    "train` uses several",
                                    name, launched.ranks, launched.variable));
}

}  // namespace

int run_cli(int argc, char** argv) {
  CLI::App app("Frugal: deep learning with compressed activations", "frugal");
  app.set_version_flag("--version", std::string("frugal ") + kVersion);
  Arguments a;
  return run_command_line(app, argc, argv, [&](CLI::App& all) {
    check_ranks(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
    add_train(all, a);
    add_eval(all, a.eval);
    add_predict(all, a.predict);
    add_grad(all, a.grad);
    add_plan(all, a.plan);
    add_profile(all, a.profile);
    add_lr_find(all, a.lr_find);
    add_curve(all, a.curve);
    add_report(all, a.report);
    add_generate(all, a.generate);
    add_export(all, a.exported);
    add_files(all, a);
    add_data(all, a.data);
    add_reproduce(all, a.reproduce);
    add_bench(all, a);
  });
}

}  // namespace frugal::apps
