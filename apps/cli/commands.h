// The subcommands of the binary: what each reads, does and prints on stdout.
#pragma once
#include <string>
#include <vector>

#include "apps/config/config.h"

namespace frugal::apps {

struct TrainArguments {
  std::string config;
  std::vector<std::string> sets;
  std::string out;
  bool resume = false, json = false;
};
void train_command(const TrainArguments& arguments);

struct EvalArguments {
  std::string config, checkpoint;
  std::vector<std::string> sets;
  bool json = false;
};
void eval_command(const EvalArguments& arguments);

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
  bool json = false;
};
void grad_command(const GradArguments& arguments);

// Text from a language model of a run of `train`: continues `prompt`, and is printed as it comes.
struct GenerateArguments {
  std::string config, checkpoint, prompt = "\n";
  std::vector<std::string> sets;
  int64_t tokens = 200, top_k = 0;
  double temperature = 1;
  uint64_t seed = 0;
};
void generate_command(const GenerateArguments& arguments);

// How each saved tensor would be kept within CONFIG's memory_budget, before anything is measured.
struct PlanArguments {
  std::string config;
  std::vector<std::string> sets;
  bool json = false;
};
void plan_command(const PlanArguments& arguments);

// The usual datasets below `dir`, or in data::data_folders().
struct DataArguments {
  std::vector<std::string> names;  // check: all where there are none
  std::string dir, url, sha256;    // fetch: the latter two instead of what the table has
  bool json = false;
};
void data_list_command(const DataArguments& arguments);
// Fails where a file of a named set is missing, or one of any set is different.
void data_check_command(const DataArguments& arguments);
void data_fetch_command(const DataArguments& arguments);

void inspect_command(const std::string& file, bool json);

// Summaries of finished runs side by side, with multiples of the first, and where their
// configurations differ.
void compare_command(const std::vector<std::string>& folders, bool json);

struct BenchArguments {
  std::string what, config, workload;
  std::vector<std::string> sets;
  int64_t repeats = 0;                        // 0: what suits
  int64_t mebibytes = 256, channels = 64;     // quantizer: size of the tensor, and its last axis
  std::string device = "cpu", dtype = "f32";  // quantizer, ops, spmm
  int64_t nodes = 169343;                     // spmm: ogbn-arxiv's
  int64_t train_steps = 400, batches = 32;    // gradient: before, and for the unit
  std::vector<int64_t> bits = {4, 3, 2};      // gradient: `repeats` draws at each
  int64_t references = 8;                     // sensitivity: measurements with whole batches
  std::vector<std::string> variants;          // step: "NAME: path=value path=value"
  bool only = false;                          // step: not beside "L0 without recipes"
  bool policies = false;                      // gradient: these, and not ways to keep signs
  bool json = false;
};
void bench_quantizer(const BenchArguments& arguments);
void bench_ops(const BenchArguments& arguments);  // walks the tests' table of ops
// A graph's sums over neighbours, the graph where the features are.
void bench_spmm(const BenchArguments& arguments);
void bench_step(const BenchArguments& arguments);
// Bias and variance of the gradient of CONFIG's network under each way to keep activations.
void bench_gradient(const BenchArguments& arguments);
// The same of each policy at equal bits.
void bench_policies(const BenchArguments& arguments);
// Ways to round CONFIG's activations, side by side at equal bytes.
void bench_levels(const BenchArguments& arguments);
// Sensitivities of CONFIG's network as training measures them, beside the reference.
void bench_sensitivity(const BenchArguments& arguments);
// Error-bounded codecs at AC-GC's bounds on the activations of CONFIG's network, and whether its
// gradients keep what was allowed.
void bench_bounds(const BenchArguments& arguments);

}  // namespace frugal::apps
