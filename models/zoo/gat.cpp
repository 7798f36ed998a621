#include "models/zoo/gat.h"

namespace frugal::models {

Gat::Gat(Init& init, const GatOptions& options)
    : GraphNetwork("gat", options, {true, ops::EdgeNorm::none, {}}),
      attention_dropout_(options.attention_dropout),
      slope_(options.slope) {
  FRUGAL_CHECK(options.heads >= 1 && options.hidden % options.heads == 0,
               "[gat] expected hidden units that divide into heads, got {} and {}", options.hidden,
               options.heads);
  FRUGAL_CHECK(options.attention_dropout >= 0 && options.attention_dropout < 1,
               "[gat] expected attention_dropout in [0, 1), got {}", options.attention_dropout);
  FRUGAL_CHECK(options.out_heads >= 0, "[gat] expected out_heads >= 0, got {}", options.out_heads);
  int64_t in = options.in_features;
  for (int64_t i = 0; i < options.layers; ++i) {
    Conv conv{};
    conv.averages = ends_with(i);
    conv.heads = conv.averages && options.out_heads > 0 ? options.out_heads : options.heads;
    conv.width = conv.averages ? options.num_classes : options.hidden / options.heads;
    const int64_t out = conv.heads * conv.width;
    const std::string name = "convs." + std::to_string(i);
    const Shape scores{1, conv.heads, conv.width};
    conv.source = register_parameter(name + ".att_src", glorot(init, scores));
    conv.target = register_parameter(name + ".att_dst", glorot(init, scores));
    conv.bias =
        register_parameter(name + ".bias", constant(init, {conv.averages ? conv.width : out}, 0));
    conv.weight = register_parameter(name + ".lin.weight", glorot(init, {out, in}));
    convs_.push_back(conv);
    in = out;
  }
  add_norms_and_head(init, options.hidden);
}

Variable Gat::convolve(int64_t conv, NodeFeatures x, const GraphPtr& graph, Context& context) {
  const Conv& c = convs_[static_cast<size_t>(conv)];
  const int64_t nodes = graph->nodes;
  const Variable h = reshape(project(std::move(x), c.weight), {nodes, c.heads, c.width});
  GraphAttentionOptions options;
  options.slope = slope_;
  if (context.training && attention_dropout_ > 0) {
    options.dropout = attention_dropout_;
    options.key = next_key(context);
  }
  Variable y =
      graph_attention(graph, h, head_scores(h, c.source), head_scores(h, c.target), options);
  if (c.averages && c.heads > 1)
    y = mean(y, {1});
  else
    y = reshape(y, {nodes, c.heads * c.width});
  return add(y, cast(c.bias, y.value().dtype()));
}

}  // namespace frugal::models
