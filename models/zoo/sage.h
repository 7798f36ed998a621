// GraphSAGE. Ref: Hamilton et al. 2017. Inputs: models/graph_layers.h.
#pragma once
#include "models/zoo/graph_keys.h"

namespace frugal::models {

enum class SageAggregation : uint8_t { mean, max };

struct SageOptions : GnnOptions {
  SageAggregation aggregation = SageAggregation::mean;

  static Published<SageOptions> published() { return {{"sage", {}}}; }
  static std::vector<Option<SageOptions>> list() {
    return joined(keys::of_graph_networks<SageOptions>(),
                  {{keys::kInputDropout, &SageOptions::input_dropout},
                   {{"aggregation", range::choice("mean, max"),
                     "sage: what it takes of a node's neighbours."},
                    &SageOptions::aggregation}});
  }
};

// [V, F] -> [V, num_classes]: conv(x) = aggregate_j(x[j]) lin_l^T + bias + x[i] lin_r^T. With edge
// weights or norms (only for the mean) the aggregate is the weighted sum. Names as in PyTorch
// Geometric: convs.{i}.lin_l.{weight,bias}, convs.{i}.lin_r.weight. The mean is taken after the
// projection, so a layer keeps only its input. With max it also keeps the maxima, and features must
// be dense.
class Sage : public GraphNetwork {
 public:
  Sage(Init& init, const SageOptions& options);

 protected:
  Variable convolve(int64_t conv, NodeFeatures x, const GraphPtr& graph, Context& context) override;

 private:
  struct Conv {
    Variable left, bias, right;
  };
  SageAggregation aggregation_;
  std::vector<Conv> convs_;
};

}  // namespace frugal::models
