#include "models/zoo/mlp.h"

namespace frugal::models {

Mlp::Mlp(Init& init, const MlpOptions& options) : options_(options) {
  int64_t in = options.in_features;
  auto append = [&](int64_t out) {
    layers_.push_back(register_module("fc" + std::to_string(layers_.size() + 1),
                                      std::make_shared<Linear>(init, in, out)));
    in = out;
  };
  for (int64_t width : options.hidden) append(width);
  append(options.num_classes);
}

Variable Mlp::forward(Variable x, Context& context) {
  const int64_t n = x.size(0);
  FRUGAL_CHECK(x.value().numel() == n * options_.in_features,
               "[mlp] expected {} features a sample, got {}", options_.in_features,
               describe(x.value()));
  // Images are flattened as [C, H, W], so that weights trained elsewhere fit.
  const bool image = x.value().dim() == 4 && x.size(3) > 1;
  Variable y = image ? transpose(transpose(x, 2, 3), 1, 2) : x;
  y = reshape(y, {n, options_.in_features});
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    y = relu(layers_[i]->forward(y, context));
    if (options_.dropout > 0 && context.training) {
      FRUGAL_CHECK(context.rng != nullptr, "[mlp] expected a random stream for dropout");
      y = dropout(y, options_.dropout, context.rng->next());
    }
  }
  return layers_.back()->forward(y, context);
}

}  // namespace frugal::models
