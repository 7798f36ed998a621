// The subcommands of `frugal-lab` study what compression does to activations and gradients. Others
// measure tokenizers and the writing of texts.
#pragma once
#include <string>
#include <vector>

#include "apps/bench/bench_place.h"

namespace frugal::lab {

struct LabArguments : apps::PlaceArguments {  // the place: spmm
  std::string config;
  std::vector<std::string> sets;
  int64_t nodes = 169343;                     // spmm: ogbn-arxiv's
  int64_t train_steps = 400, batches = 32;    // gradient: before, and for the unit
  std::vector<int64_t> bits = {4, 3, 2};      // gradient: `repeats` draws at each
  int64_t references = 8;                     // sensitivity: measurements with whole batches
  bool policies = false;                      // gradient: these, and not ways to keep signs
  bool layers = false;                        // gradient: of each layer, as CONFIG compresses
  std::vector<std::string> whole;             // gradient by layer: ops whose tensors stay whole
  std::string texts, out;                     // tokens: what is encoded, and where the ids go
  int64_t tokens = 256, network_layers = 30;  // generate: of a text, and of the decoder
  bool json = false;
};
// A graph's sums over neighbours, the graph where the features are.
void study_spmm(const LabArguments& arguments);
// Bias and variance of the gradient of CONFIG's network under each way to keep activations.
void study_gradient(const LabArguments& arguments);
// Bias and variance of that gradient under each policy, at equal bits.
void study_policies(const LabArguments& arguments);
// Bias and variance of the gradient of each layer, over the variance between minibatches there.
void study_layers(const LabArguments& arguments);
// Sensitivities of CONFIG's network as training measures them, beside the reference.
void study_sensitivity(const LabArguments& arguments);
// Error-bounded codecs at AC-GC's bounds on the activations of CONFIG's network, and whether its
// gradients keep what was allowed.
void study_bounds(const LabArguments& arguments);
// The speed and the ids of a tokenizer; `config` is its file.
void study_tokens(const LabArguments& arguments);
// Times the tokens that a decoder of SmolLM2-135M's width writes. Five ways are compared: no cached
// keys and values, f32, numbers of bf16, frozen int8, frozen nf4.
void study_generate(const LabArguments& arguments);
// The texts of the conversations in `texts` and their answers, by the template of a folder,
// `config`: JSON lines.
void study_chat(const LabArguments& arguments);

}  // namespace frugal::lab
