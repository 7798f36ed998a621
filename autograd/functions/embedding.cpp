#include "ops/sequence/embedding.h"

#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"

namespace frugal {

// y = weight[ids], dweight[v] = sum of dy where ids = v. The gradient is sparse rows if only few
// rows can be reached.  Saves: ids, which the batch holds anyway.
// Recipe: bit-equal, from ids and the weight. So sums of embeddings, and norms of them, need no
// memory of their own.
Variable embedding(const Tensor& ids, const Variable& weight, int64_t padding_idx) {
  return record(
      {"embedding", [&](TracedOp& t) { t.tensor(ids); }}, {weight},
      ops::embedding(ids, weight.value()), {save_exact(ids), for_recipe(weight)},
      [vocabulary = weight.size(0), padding_idx](const Backward& b) {
        const Tensor at = b.saved(0);
        if (2 * at.numel() <= vocabulary && at.device().type != DeviceType::cuda)
          return Grads{Gradient(ops::embedding_backward_rows(b.dy(), at, vocabulary, padding_idx))};
        return Grads{ops::embedding_backward(b.dy(), at, vocabulary, padding_idx)};
      },
      linear_recipe([](const Slots& s) { return ops::embedding(s.unpack(0), s.unpack(1)); }, true));
}

}  // namespace frugal
