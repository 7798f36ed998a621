// GAT. Ref: Velickovic et al. 2018. Inputs: models/graph_layers.h.
#pragma once
#include "models/graph_layers.h"

namespace frugal::models {

struct GatOptions : GnnOptions {
  GatOptions() {
    hidden = 64;
    dropout = input_dropout = 0.6;
    activation = GnnActivation::elu;
  }
  int64_t heads = 8;               // of the hidden layers, which split `hidden` between them
  int64_t out_heads = 1;           // of the last layer, which averages them; 0: `heads`
  double attention_dropout = 0.6;  // of the coefficients
  double slope = 0.2;              // of their leaky_relu
};

// [V, F] -> [V, num_classes]: attention over the edges into each node and a self-loop (edge weights
// play no part; of edges drawn from a graph, a softmax over these). Names as PyTorch Geometric's:
// convs.{i}.lin.weight [heads * F, in], convs.{i}.att_src and att_dst [1, heads, F],
// convs.{i}.bias. A layer keeps its input, the projected features, and two scores a node and head.
class Gat : public GraphNetwork {
 public:
  Gat(Init& init, const GatOptions& options);  // Errors: hidden is no multiple of heads

 protected:
  Variable convolve(int64_t conv, const NodeFeatures& x, const GraphPtr& graph,
                    Context& context) override;

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
