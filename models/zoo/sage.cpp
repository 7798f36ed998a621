#include "models/zoo/sage.h"

#include <cmath>

namespace frugal::models {

Sage::Sage(Init& init, const SageOptions& options)
    : GraphNetwork("sage", options, {.positions = options.aggregation == SageAggregation::max}),
      aggregation_(options.aggregation) {
  int64_t in = options.in_features;
  for (int64_t i = 0; i < options.layers; ++i) {
    const int64_t out = ends_with(i) ? options.num_classes : options.hidden;
    const std::string name = "convs." + std::to_string(i);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    Conv conv;
    conv.left = register_parameter(name + ".lin_l.weight", uniform(init, {out, in}, bound));
    conv.bias = register_parameter(name + ".lin_l.bias", uniform(init, {out}, bound));
    conv.right = register_parameter(name + ".lin_r.weight", uniform(init, {out, in}, bound));
    convs_.push_back(conv);
    in = out;
  }
  add_norms_and_head(init, options.hidden);
}

Variable Sage::convolve(int64_t conv, NodeFeatures x, const GraphPtr& graph, Context& context) {
  const Conv& c = convs_[static_cast<size_t>(conv)];
  const bool weighted =
      context.extra("edge_weight").defined() || context.extra("edge_norm").defined();
  if (aggregation_ == SageAggregation::max) {
    FRUGAL_CHECK(x.dense.defined() && !weighted,
                 "[sage] expected dense features and no edge weights for the maximum, got {}",
                 weighted ? "weights" : "sparse features");
    const Variable most = linear(neighbour_max(graph, x.dense), c.left, c.bias);
    return add(most, linear(x.dense, c.right));
  }
  // The mean and the linear layer may be exchanged. Both projections save the same x.
  Variable neighbours = project(x, c.left);
  const SpmmTerms terms{1, {}, project(std::move(x), c.right, c.bias), 1};
  return weighted ? spmm(graph, std::move(neighbours), terms)
                  : neighbour_mean(graph, std::move(neighbours), terms);
}

}  // namespace frugal::models
