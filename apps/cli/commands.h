// The subcommands of the binary: what each reads, does and prints on stdout.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/bench_place.h"
#include "apps/cli/training_run.h"
#include "apps/config/config.h"
#include "data/image/views.h"

namespace frugal::apps {

// "none", "flip" or "ten_crop".
data::Views views_named(const std::string& name);

struct TrainArguments {
  std::string config;
  std::vector<std::string> sets;
  std::string out;
  std::string init_from;  // sets model.weights
  int64_t extend = 0;     // epochs (or train.steps) of the whole run; 0: as the configuration says
  bool resume = false, json = false;
  bool data_changed = false;  // with resume: the data may be others than when the run began
  bool overwrite = false;     // a run that is in `out` goes
  bool quiet = false;         // nothing on stderr but errors
  TrainCallbacks callbacks = {};
};
void train_command(const TrainArguments& arguments);

// Loss, accuracy and metric of a run's weights, or of other weights under a configuration; how
// many questions with choices are answered right.
struct EvalArguments {
  std::string config, checkpoint;  // config: the folder of a run, or a configuration
  std::string weights = "last";    // best or last: which weights of a run without `checkpoint`
  std::string split = "test", tta = "none";
  // A file of JSON lines for a language model, all of whose texts or questions
  // (data/text/chat/choice_questions.h) are taken in the place of the run's data; empty: none.
  std::string data;
  std::vector<std::string> sets;
  bool json = false;
};
void eval_command(const EvalArguments& arguments);

// Prints the likeliest classes of pictures, texts, rows or nodes, as they come, or the numbers that
// are predicted. A broken input is named on stderr, and the others are printed. Errors: any input
// was broken; a file of rows that cannot be read, before anything is printed.
struct PredictArguments {
  std::string run, weights = "best", tta = "none";
  std::string out;  // a folder for the masks of a network that gives a class to each pixel
  std::vector<std::string> inputs, sets;
  int64_t top = 5, batch_size = 64;
  bool json = false;
  bool overwrite = false;  // replaces masks that are there already
};
void predict_command(const PredictArguments& arguments);

// One training-mode forward and backward for comparison with other frameworks. All files are
// safetensors with PyTorch's names and layouts (OIHW, NCHW):
//   weights: every parameter and buffer of the model
//   batch:   images, tokens or a graph, see grad_batch.h
//   out:     loss [], output [..., classes], grad/<parameter>, buffer/<name> after the forward pass
// The loss is the cross-entropy with train.label_smoothing, or without target the sum of the
// output. num_classes, in_channels and vocab_size, where null, come from the files.
struct GradArguments {
  std::string config, weights, batch, out;
  std::vector<std::string> sets;
  bool f64 = false;  // computes in f64, and `out` is f64: then a difference is no rounding
  bool json = false;
};
void grad_command(const GradArguments& arguments);

// Text from a language model of a run of `train`: continues `prompt`, and is printed as it comes.
struct GenerateArguments {
  std::string config, checkpoint;     // config: the folder of a run, or a configuration
  std::optional<std::string> prompt;  // none: a line end; with `chat`, the lines of the input
  bool chat = false;                  // the run's chat template writes what the network reads
  std::string system;                 // with `chat`, what the system says first
  std::string weights = "best";       // best or last: which weights of a run without `checkpoint`
  std::vector<std::string> sets;
  int64_t tokens = 200, top_k = 0;
  double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  std::vector<std::string> stop;  // texts that end what is generated, and are not printed
  uint64_t seed = 0;
};
void generate_command(const GenerateArguments& arguments);

// The learning-rate range test: a curve of the loss over rising rates, and a rate. Writes nothing.
struct LrFindArguments {
  std::string config;
  std::vector<std::string> sets;
  double from = 1e-6, to = 10;
  int64_t steps = 100;
  bool json = false;
};
void lr_find_command(const LrFindArguments& arguments);

// The loss, or another measure, of runs over their steps.
struct CurveArguments {
  std::vector<std::string> folders;
  std::string of = "loss", svg;  // svg: a file to write
  bool json = false;
};
void curve_command(const CurveArguments& arguments);

// A page of one run, in its folder, or of several beside each other.
struct ReportArguments {
  std::vector<std::string> folders;
  std::string out;  // the file; empty: report.html in the folder of the run, or here for several
};
std::string write_report(const ReportArguments& arguments);  // gives the file
void report_command(const ReportArguments& arguments);       // prints its name

// A network for other programs: its weights (safetensors), or all of its evaluation (ONNX).
struct ExportArguments {
  std::string source;            // the folder of a run, or a configuration
  std::string checkpoint;        // weights; empty: those of the run
  std::string weights = "best";  // best or last: which weights of a run
  std::string format;  // onnx, safetensors, hf, merged, peft, gguf-lora or mlx-lora; empty: by the
                       // ending of `output`
  std::string output;  // empty: MODEL and the format in the current folder
  std::string dtype = "f32";  // f32, f16 or bf16; not for onnx
  std::string example;        // gets inputs, and what the network makes of them; for ONNX
  std::vector<std::string> sets;
  bool trunk = false;  // exports the trunk of simsiam, byol or moco_v2 alone, under its own names
  bool random = false, overwrite = false, json = false;
};
void export_command(const ExportArguments& arguments);

// Says what a step takes with each way to keep activations, before anything is trained. It also
// says which preset fits into `memory` (such as "2 GiB"; empty: what the machine has free), and how
// each saved tensor would be kept within a memory_budget. `max` asks for the largest value that
// fits into `memory` with each way. `explain` asks which tensors take most.
struct PlanArguments {
  std::string config, memory;
  // In the place of `config`: a network, the shape of a sample of it, and the samples of a batch.
  std::string model;
  std::vector<int64_t> shape;
  int64_t batch = 0;  // 0: the default
  std::string max;    // batch, layers, width or resolution; empty: see above
  int ranks = 1;      // so many train together; the plan is that of one of them
  std::vector<std::string> sets;
  bool explain = false, json = false;
  bool only = false;  // with max: only the way of the configuration
};
void plan_command(const PlanArguments& arguments);

// Time and bytes of a training step, by op or by layer; on meta bytes alone.
struct ProfileArguments {
  std::string config, by = "op";
  std::vector<std::string> sets;
  std::string trace;  // a file for ui.perfetto.dev
  int64_t steps = 3;
  bool json = false;
};
void profile_command(const ProfileArguments& arguments);

// The usual datasets below `dir`, or in data::data_folders().
struct DataArguments {
  std::vector<std::string> names;  // check: all where there are none
  std::string dir, url, sha256;    // fetch: url and sha256 replace those of the table
  bool json = false;
};
void data_list_command(const DataArguments& arguments);
// Fails if a file of a named set is missing, or a file of any set is different.
void data_check_command(const DataArguments& arguments);
void data_fetch_command(const DataArguments& arguments);

// What a safetensors file holds, or which network the folder of a model holds and whether its
// weights fit. Errors: weights that do not.
void inspect_command(const std::string& file, bool json);

// Prints the summaries of finished runs side by side, with multiples of the first, and where their
// configurations differ.
void compare_command(const std::vector<std::string>& folders, bool json);

// Makes tables and figures of papers: measures the cells that have no result yet, and writes the
// tables. Without names it prints which tables there are, what each needs, and what of it is done.
struct ReproduceArguments {
  std::vector<std::string> names;  // names of tables, or their files
  std::string scale = "reduced", out = "reproduce";
  std::string tables;             // the folder of the tables; empty: configs/reproduce
  std::string page;               // a page with all tables to write
  int64_t seeds = 0;              // 0: as the table says
  int64_t jobs = 0;               // processes at once; 0: one for each core
  std::string device, precision;  // where cells train, and in what; empty: as the table says
  bool commands = false;          // print the cells' commands, and run nothing
  bool json = false;
};
void reproduce_command(const ReproduceArguments& arguments);

struct BenchArguments : PlaceArguments {  // the place: quantizer, ops
  std::string config, workload;
  std::vector<std::string> sets;
  int64_t mebibytes = 256, channels = 64;  // quantizer: size of the tensor, and its last axis
  std::vector<std::string> variants;       // step: "NAME: path=value path=value"
  std::string trace;                       // step: a CSV file for the memory over one step
  // variance: steps of training before, minibatches for the unit, draws of the rounding
  int64_t train_steps = 400, batches = 32, draws = 32;
  int64_t layers = 0;   // variance: parts of the names of layers; 0: not by layer
  std::string profile;  // step: a file for the widths of packed tensors
  bool only = false;    // step: without the row "L0 without recipes" beside
  bool json = false;
};
void bench_quantizer(const BenchArguments& arguments);
void bench_ops(const BenchArguments& arguments);  // walks the table of ops
void bench_step(const BenchArguments& arguments);
// What several ranks gain: speed, the sum of gradients beside MPI's own, memory of a rank. Starts
// mpirun itself; as a rank of mpirun it measures `only` all-reduce.
struct DistributedBenchArguments {
  std::string workload = "r20";  // r20, r18 or bert
  std::string only;              // scaling, all-reduce or memory; empty: all three
  std::vector<std::string> sets;
  int64_t ranks = 2, rounds = 3, steps = 20;
  int64_t mebibytes = 25;  // all-reduce: size of the tensor
  bool json = false;
};
void bench_distributed(const DistributedBenchArguments& arguments);
// Bias and variance that compression adds to the gradient, over the variance between minibatches.
void bench_variance(const BenchArguments& arguments);

}  // namespace frugal::apps
