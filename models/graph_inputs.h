// What graph networks read of a batch: its edges as a graph, and its features.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "core/memo.h"
#include "core/tensor_identity.h"
#include "models/graph_layers.h"

namespace frugal::models {

// Builds graphs and sparse features from a batch's tensors and remembers two of each: the same
// tensors, unchanged, are not sorted again. forget_idle() drops what the next step has no use for:
// what was made of a sampled graph, whose tensors nobody holds any more, and of a graph that was
// only evaluated.
class GraphInputs {
 public:
  // Errors: no edge_index among the extras; those of make_graph().
  GraphPtr graph(const Context& context, int64_t nodes, const ops::GraphOptions& options);
  // With dropout `p` in training.  Errors: another number of features or rows; no random stream.
  NodeFeatures features(const char* model, const Variable& x, const Context& context,
                        int64_t in_features, double p);
  void forget_idle();

 private:
  static constexpr size_t kKept = 2;  // one for training, one for testing
  // What a graph or a sparse matrix is built from: the identities of its tensors, and the number of
  // nodes or of features.
  using Key = std::pair<std::vector<TensorIdentity>, int64_t>;
  template <class Value>
  struct Entry {
    std::shared_ptr<const Value> value;
    bool trained = false;  // whether it was used in training
  };
  template <class Value>
  using Entries = Memo<Key, Entry<Value>>;
  template <class Value, class Make>
  static std::shared_ptr<const Value> find(Entries<Value>& kept, const std::vector<Tensor>& tensors,
                                           int64_t extent, bool training, Make make);
  Entries<ops::Graph> graphs_{kKept};
  Entries<ops::SparseMatrix> sparse_{kKept};
};

}  // namespace frugal::models
