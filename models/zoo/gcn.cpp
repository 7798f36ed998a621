#include "models/zoo/gcn.h"

namespace frugal::models {

Gcn::Gcn(Init& init, const GnnOptions& options)
    : GraphNetwork("gcn", options, {true, ops::EdgeNorm::symmetric, {}, false}) {
  int64_t in = options.in_features;
  for (int64_t i = 0; i < options.layers; ++i) {
    const int64_t out = ends_with(i) ? options.num_classes : options.hidden;
    const std::string name = "convs." + std::to_string(i);
    convs_.push_back({register_parameter(name + ".lin.weight", glorot(init, {out, in})),
                      register_parameter(name + ".bias", constant(init, {out}, 0))});
    in = out;
  }
  add_norms_and_head(init, options.hidden);
}

Variable Gcn::convolve(int64_t conv, NodeFeatures x, const GraphPtr& graph, Context&) {
  const Conv& c = convs_[static_cast<size_t>(conv)];
  return spmm(graph, project(std::move(x), c.weight), {1, c.bias, {}, 1});
}

}  // namespace frugal::models
