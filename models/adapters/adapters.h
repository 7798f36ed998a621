// Adapters: small trained matrices beside the frozen linear layers and embeddings of a network.
// Names, targets and scales are those of Hugging Face's library PEFT. Ref: Hu et al. 2022 (LoRA),
// Kalajdzievski 2023 (rsLoRA), Liu et al. 2024 (DoRA).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/option.h"
#include "models/embedding_table.h"
#include "models/init.h"
#include "models/layers.h"

namespace frugal::models {

// none:    there are no adapters
// lora:    y = W x + b + alpha / rank * B A drop(x)
// rslora:  the same with alpha / sqrt(rank)
// dora:    the rows of W + alpha / rank * B A get trained lengths
// rsdora:  the same with alpha / sqrt(rank)
enum class AdapterType : uint8_t { none, lora, rslora, dora, rsdora };
// Which biases are trained: no others than those of modules_to_save; all; those of layers that
// carry an adapter.
enum class TrainedBiases : uint8_t { none, all, lora_only };

struct AdapterOptions {
  AdapterType type = AdapterType::none;
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;  // the probability that a value which an adapter reads becomes 0
  // Which layers carry an adapter: the whole names of their modules, or their ends behind a dot.
  // With `is_pattern`, there is one entry: a regular expression that fits the whole name of a
  // module, or all-linear, every linear layer but the output head.
  std::vector<std::string> targets = {"all-linear"};
  bool is_pattern = true;
  // Ranks and alphas of some layers, each "PATTERN=VALUE". The first pattern counts that fits a
  // module's whole name, or its end behind a dot.
  std::vector<std::string> ranks, alphas;
  std::vector<std::string> trained;  // modules that are trained as they are, named as targets are
  TrainedBiases bias = TrainedBiases::none;

  static std::vector<by_name::Option<AdapterOptions>> list();
  bool has_magnitude() const { return type >= AdapterType::dora; }
  bool is_rank_stabilized() const {
    return type == AdapterType::rslora || type == AdapterType::rsdora;
  }
  int64_t rank_of(const std::string& module) const;
  double alpha_of(const std::string& module) const;
  double scale_of(const std::string& module) const;
};

// Gives the layers that `options` names an adapter that changes no output yet, and freezes all else
// but what options.trained and options.bias name. A is drawn from U(-1 / sqrt(in), 1 / sqrt(in)), B
// is 0; of an embedding, A is 0 and B drawn from N(0, 1). Embeddings read no dropout. Type none:
// does nothing. Errors (OptionError, at an option's name): a target that fits no linear layer and
// no EmbeddingTable, or another module; an embedding with lengths of rows; the output head as a
// target; a pattern that is no regular expression; a rank above the layer's inputs or outputs.
void add_adapters(Module& network, Init& init, const AdapterOptions& options);

struct AdaptedLayer {
  std::string name;
  LinearLayer* layer;               // null: an embedding
  EmbeddingTable* table = nullptr;  // null: a linear layer
  Shape shape() const;              // the shape of the weight
  int64_t rank() const;             // REQUIRES (here and below): an adapter
  double scale() const;
};
std::vector<AdaptedLayer> adapted_layers(Module& network);
// For weights that were loaded after add_adapters(): LinearLayer::reset_magnitude() of all layers.
void reset_magnitudes(Module& network);
// Writes what adapters do into the weights, and takes the adapters away. Files of the network's
// state then hold all of it. An output head may share the weight of an embedding with an adapter.
// Such a head keeps a copy of the weight from before. Then this returns true, and the option
// `tied` = false describes the network.
bool merge_adapters(Module& network);

// Is a parameter of this name an adapter's?
bool is_of_adapter(const std::string& parameter);

// Is `entry` the module's name, or its end behind a dot?
bool is_named_by(const std::string& entry, const std::string& module);
// Does a regular expression fit the whole name? Errors (OptionError at `option`): it is none.
bool is_fitted_by(const std::string& option, const std::string& pattern, const std::string& name);

}  // namespace frugal::models
