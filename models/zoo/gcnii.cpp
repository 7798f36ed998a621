#include "models/zoo/gcnii.h"

#include <cmath>

namespace frugal::models {

Gcnii::Gcnii(Init& init, const GcniiOptions& options)
    : GraphModule("gcnii", options, {true, ops::EdgeNorm::symmetric, {}, false}),
      alpha_(options.alpha),
      theta_(options.theta) {
  FRUGAL_CHECK(options.alpha >= 0 && options.alpha <= 1 && options.theta > 0,
               "[gcnii] expected alpha in [0, 1] and theta > 0, got {} and {}", options.alpha,
               options.theta);
  FRUGAL_CHECK(options.input_dropout == 0,
               "[gcnii] expected no input_dropout beside dropout, which features share, got {}",
               options.input_dropout);
  const double bound = 1 / std::sqrt(static_cast<double>(options.in_features));
  first_weight_ = register_parameter("lins.0.weight",
                                     uniform(init, {options.hidden, options.in_features}, bound));
  first_bias_ = register_parameter("lins.0.bias", uniform(init, {options.hidden}, bound));
  last_ = register_module(
      "lins.1", std::make_shared<Linear>(init, joined(options.hidden), options.num_classes));
  for (int64_t i = 0; i < options.layers; ++i)
    weights_.push_back(register_parameter("convs." + std::to_string(i) + ".weight1",
                                          glorot(init, {options.hidden, options.hidden})));
  add_norms(init, options.layers, options.hidden);
}

Variable Gcnii::forward(Variable x, Context& context) {
  const GraphPtr graph = graph_of(x, context);
  const NodeFeatures features = features_of(x, context, options().dropout);
  const double p = context.training ? options().dropout : 0;
  const Variable initial = relu(project(features, first_weight_, first_bias_));
  x = p > 0 ? dropout(initial, p, next_key(context)) : initial;
  Variables outputs;
  for (int64_t l = 0; l < options().layers; ++l) {
    const double beta = std::log(theta_ / static_cast<double>(l + 1) + 1);
    const Variable side = options().residual ? x : Variable();
    Variable y = spmm(graph, std::move(x), {1 - alpha_, {}, initial, alpha_});
    y = identity_linear(y, weights_[static_cast<size_t>(l)], beta);
    x = activate(l, std::move(y), side, context);
    if (joins()) outputs.push_back(x);
  }
  if (joins()) x = join(outputs);
  return last_->forward(x, context);
}

}  // namespace frugal::models
