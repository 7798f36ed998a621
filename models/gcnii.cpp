#include "models/gcnii.h"

#include <cmath>

namespace frugal::models {

Gcnii::Gcnii(Init& init, const GcniiOptions& options) : options_(options) {
  FRUGAL_CHECK(options.layers >= 1 && options.in_features >= 1 && options.hidden >= 1 &&
                   options.num_classes >= 1,
               "[gcnii] expected layers, features, hidden units and classes of at least 1, got {}, "
               "{}, {}, {}",
               options.layers, options.in_features, options.hidden, options.num_classes);
  FRUGAL_CHECK(options.dropout >= 0 && options.dropout < 1,
               "[gcnii] expected dropout in [0, 1), got {}", options.dropout);
  FRUGAL_CHECK(options.alpha >= 0 && options.alpha <= 1 && options.theta > 0,
               "[gcnii] expected alpha in [0, 1] and theta > 0, got {} and {}", options.alpha,
               options.theta);
  const double bound = 1 / std::sqrt(static_cast<double>(options.in_features));
  first_weight_ = register_parameter("lins.0.weight",
                                     uniform(init, {options.hidden, options.in_features}, bound));
  first_bias_ = register_parameter("lins.0.bias", uniform(init, {options.hidden}, bound));
  last_ = register_module("lins.1",
                          std::make_shared<Linear>(init, options.hidden, options.num_classes));
  for (int64_t i = 0; i < options.layers; ++i)
    weights_.push_back(register_parameter("convs." + std::to_string(i) + ".weight1",
                                          glorot(init, {options.hidden, options.hidden})));
}

Variable Gcnii::forward(Variable x, Context& context) {
  check_no_checkpoints("gcnii", context);
  const GraphPtr graph = inputs_.graph(context, x.size(0), {true, ops::EdgeNorm::symmetric, {}});
  const NodeFeatures features =
      inputs_.features("gcnii", x, context, options_.in_features, options_.dropout);
  const double p = context.training ? options_.dropout : 0;
  const Variable initial = relu(project(features, first_weight_, first_bias_));
  x = p > 0 ? dropout(initial, p, context.rng->next()) : initial;
  for (size_t l = 0; l < weights_.size(); ++l) {
    const double beta = std::log(options_.theta / static_cast<double>(l + 1) + 1);
    x = spmm(graph, x, {1 - options_.alpha, {}, initial, options_.alpha});
    x = identity_linear(x, weights_[l], beta);
    x = p > 0 ? relu_dropout(x, p, context.rng->next()) : relu(x);
  }
  return last_->forward(x, context);
}

}  // namespace frugal::models
