// GCN. Ref: Kipf & Welling 2017. Inputs: models/graph_layers.h.
#pragma once
#include "models/zoo/graph_keys.h"

namespace frugal::models {

struct GcnOptions : GnnOptions {
  static Published<GcnOptions> published() { return {{"gcn", {}}}; }
  static std::vector<Option<GcnOptions>> list() {
    return joined(keys::of_graph_networks<GcnOptions>(),
                  {{keys::kInputDropout, &GcnOptions::input_dropout}});
  }
};

// [V, F] -> [V, num_classes]: conv(x) = D^-1/2 (A + I) D^-1/2 x weight^T + bias. The graph gets
// self-loops. Names as in PyTorch Geometric: convs.{i}.lin.weight [out, in], convs.{i}.bias [out].
// A layer keeps one tensor, its input. Norm, activation and dropout are rebuilt from it, or their
// signs lie in its codes.
class Gcn : public GraphNetwork {
 public:
  Gcn(Init& init, const GnnOptions& options);

 protected:
  Variable convolve(int64_t conv, NodeFeatures x, const GraphPtr& graph, Context& context) override;

 private:
  struct Conv {
    Variable weight, bias;
  };
  std::vector<Conv> convs_;
};

}  // namespace frugal::models
