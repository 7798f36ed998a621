// The options that all graph networks have, by their names.
#pragma once
#include <vector>

#include "models/graph_layers.h"
#include "models/zoo/keys.h"

namespace frugal::models::keys {

// S: the options of one of them, a GnnOptions.
template <class S>
std::vector<Option<S>> of_graph_networks() {
  return {{kWidth, &S::hidden},
          {kLayers, &S::layers},
          {kDropout, &S::dropout},
          {{"batch_norm", range::flag(), "Graph networks: batch norm after each hidden layer."},
           &S::batch_norm},
          {{"residual", range::flag(),
            "Graph networks: add a layer's input to its output, where widths agree."},
           &S::residual},
          {{"jump", range::choice("none, cat, max"),
            "Graph networks: jumping knowledge, the outputs of all layers side by side or "
            "their maximum."},
           &S::jk},
          {kInFeatures, &S::in_features},
          {kNumClasses, &S::num_classes}};
}

}  // namespace frugal::models::keys
