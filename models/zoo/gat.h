// GAT. Ref: Velickovic et al. 2018. Inputs: models/graph_layers.h.
#pragma once
#include "models/zoo/graph_keys.h"

namespace frugal::models {

struct GatOptions : GnnOptions {
  GatOptions() {
    hidden = 64;
    dropout = input_dropout = 0.6;
    activation = GnnActivation::elu;
  }
  int64_t heads = 8;               // heads of a hidden layer, which divide `hidden` among them
  int64_t out_heads = 1;           // heads of the last layer, whose mean is the output; 0: as many
                                   // as `heads`
  double attention_dropout = 0.6;  // dropout of the attention coefficients
  double slope = 0.2;              // slope of leaky_relu in the attention scores

  static Published<GatOptions> published() { return {{"gat", {}}}; }
  static std::vector<Option<GatOptions>> list() {
    return joined(keys::of_graph_networks<GatOptions>(),
                  {{keys::kInputDropout, &GatOptions::input_dropout},
                   {keys::kHeads, &GatOptions::heads},
                   {{"out_heads", range::integer(1, 4096),
                     "gat: heads of the last layer, which averages them; null: 1.", Key::own},
                    &GatOptions::out_heads},
                   {keys::kAttentionDropout, &GatOptions::attention_dropout},
                   {{"slope", range::number(0, 1),
                     "gat: of the leaky relu of its scores; null: 0.2.", Key::own},
                    &GatOptions::slope}});
  }
};

// [V, F] -> [V, num_classes]: attention over the edges into each node and a self-loop. Edge weights
// are ignored. If edges are a sample of a graph, the softmax is over the sampled edges. Names as in
// PyTorch Geometric: convs.{i}.lin.weight [heads * F, in], convs.{i}.att_src and att_dst [1, heads,
// F], convs.{i}.bias. A layer keeps its input, the projected features, and two scores for each node
// and head.
class Gat : public GraphNetwork {
 public:
  Gat(Init& init, const GatOptions& options);  // Errors: hidden is not a multiple of heads

 protected:
  Variable convolve(int64_t conv, NodeFeatures x, const GraphPtr& graph, Context& context) override;

 private:
  struct Conv {
    int64_t heads, width;
    bool averages;
    Variable weight, source, target, bias;
  };
  double attention_dropout_, slope_;
  std::vector<Conv> convs_;
};

}  // namespace frugal::models
