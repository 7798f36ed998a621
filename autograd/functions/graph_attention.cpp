#include "ops/graph/graph_attention.h"

#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"

namespace frugal {
namespace {

// The gradient of a score is a sum over the features of h. With few features, the noise of rounding
// is as large as the sum. So rows of at most this width are kept whole, as the scores are.
constexpr int64_t kNarrow = 16;

}  // namespace

// Given the coefficients, the gradients are linear in h. The coefficients are computed again from
// a_src and a_dst.
Variable graph_attention(const GraphPtr& graph, const Variable& h, const Variable& a_src,
                         const Variable& a_dst, const GraphAttentionOptions& options) {
  FRUGAL_CHECK(graph != nullptr, "[graph_attention] expected a graph, got none");
  const ops::GraphAttentionSettings settings{options.slope, options.dropout, options.key};
  const Tensor y = ops::graph_attention(*graph, h.value(), a_src.value(), a_dst.value(), settings);
  const bool narrow = h.size(1) * h.size(2) <= kNarrow;
  const auto describe = [&](TracedOp& t) {
    t.graph = graph.get();
    t.set("slope", options.slope);
    t.set("dropout", options.dropout);
  };
  return record({"graph_attention", describe}, {h, a_src, a_dst}, y,
                {narrow ? save_whole(h.value()) : save(h).with_channel_axes(2),
                 save_whole(a_src.value()), save_whole(a_dst.value())},
                [graph, settings](const Backward& b) {
                  const ops::GraphAttentionGradients g = ops::graph_attention_backward(
                      *graph, b.dy(), b.saved(0), b.saved(1), b.saved(2), settings);
                  return Grads{g.h, g.a_src, g.a_dst};
                });
}

Variable head_scores(const Variable& h, const Variable& weight) {
  const Use use = Use::product({.input = 1});
  return record("head_scores", {h, weight}, ops::head_scores(h.value(), weight.value()),
                {save_if(weight.requires_grad(), h).with_use(use).with_channel_axes(2),
                 save_if(h.requires_grad(), weight)},
                [](const Backward& b) {
                  Grads grads(2);
                  if (b.needs(0)) grads[0] = ops::head_scores_backward_input(b.dy(), b.saved(1));
                  if (b.needs(1)) grads[1] = ops::head_scores_backward_weight(b.dy(), b.saved(0));
                  return grads;
                });
}

}  // namespace frugal
