// EmbeddingTable: a row for each token of a vocabulary. It may carry an adapter, as linear layers
// do (models/layers.h).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/init.h"
#include "models/module.h"

namespace frugal::models {

class Dense;  // dense.h

// Parameter: weight [tokens, channels].
class EmbeddingTable : public Module {
 public:
  // is_head: the output head has the same weight, so that a merged adapter would change it.
  explicit EmbeddingTable(Tensor weight, bool is_head);

  // ids [...] i64 -> [..., channels]: rows of the weight, and with an adapter scale a[id] b^T.
  // Saves: ids; with an adapter also a[id], which is `rank` numbers a token, for the gradient of b.
  Variable rows(const Tensor& ids) const;
  Variable forward(Variable ids, Context& context) override;
  const Variable& weight() const { return weight_; }

  // Parameters: lora_embedding_A [tokens, rank], in files [rank, tokens], and lora_embedding_B
  // [channels, rank], as PEFT names them.
  struct Adapter {
    Variable a, b;
    double scale = 1;
  };
  const Adapter* adapter() const { return adapter_.get(); }  // null: it carries none
  // An adapter that changes no output yet: a is 0, b is drawn from N(0, 1), as in PEFT.
  // Errors: it carries one already.
  void add_adapter(Init& init, int64_t rank, double scale);
  // Writes what the adapter does into the weight, and takes the adapter away. Errors: is_head().
  void merge_adapter();
  bool is_head() const { return is_head_; }
  // A layer for an output head that had this weight until now: its weight is a copy.
  std::shared_ptr<Dense> leave_head();

 private:
  Variable weight_;
  bool is_head_;
  std::unique_ptr<Adapter> adapter_;
};

// The names of the weights of layers that look rows up: EmbeddingTable, and in lists of layers
// TokenEmbedding and PositionEmbedding (models/sequential_parts.h). Encoders have theirs as
// parameters of their own, whose names contain "embeddings.".
std::vector<std::string> table_names(Module& net);

}  // namespace frugal::models
