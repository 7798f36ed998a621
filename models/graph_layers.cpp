#include "models/graph_layers.h"

#include <cmath>

#include "autograd/trace.h"
#include "models/graph_inputs.h"

namespace frugal::models {
namespace {

// Graphs are built on the host (or on meta), and counted where the model is.
template <class T>
T on(Device device, T made) {
  return device.type == DeviceType::cpu ? made : ops::to_device(made, device);
}

// A graph is no tensor, so a trace learns of it here.
void tell(Trace& trace, const Tensor& edges, const ops::GraphOptions& options,
          const GraphPtr& graph) {
  TracedOp op;
  op.name = "make_graph";
  op.inputs = {edges, options.edge_weight};
  op.graph = graph.get();
  op.set("self_loops", options.self_loops);
  op.set("norm", static_cast<int64_t>(options.norm));
  trace.add(std::move(op));
}

// The largest of the elements at equal positions.
Variable elementwise_max(const Variables& xs) {
  Variables stacked;
  for (const Variable& x : xs) stacked.push_back(reshape(x, {x.size(0), 1, x.size(1)}));
  return max(concat(stacked, 1), 1);
}

}  // namespace

Tensor glorot(Init& init, const Shape& shape) {
  const auto fans = static_cast<double>(shape[shape.dim() - 1] + shape[shape.dim() - 2]);
  return uniform(init, shape, std::sqrt(6 / fans));
}

Variable project(NodeFeatures features, const Variable& weight, const Variable& bias) {
  if (features.sparse == nullptr) return linear_over(std::move(features.dense), weight, bias);
  const Variable y = sparse_linear(features.sparse, weight, bias, features.dropout, features.key);
  return features.dtype == DType::bf16 ? cast(y, features.dtype) : y;
}

template <class Value, class Make>
std::shared_ptr<const Value> GraphInputs::find(Entries<Value>& kept,
                                               const std::vector<Tensor>& tensors, int64_t extent,
                                               bool training, Make make) {
  const Key key{{tensors.begin(), tensors.end()}, extent};
  Entry<Value>& entry =
      kept.find_or_make(key, [&] { return Entry<Value>{std::make_shared<const Value>(make())}; });
  entry.trained = entry.trained || training;
  return entry.value;
}

void GraphInputs::forget_idle() {
  const auto is_idle = [](const Key& key, const auto& entry) {
    return !entry.trained || key.first.front().is_gone();
  };
  graphs_.forget_if(is_idle);
  sparse_.forget_if(is_idle);
}

GraphPtr GraphInputs::graph(const Context& context, int64_t nodes,
                            const ops::GraphOptions& options) {
  const Tensor edges = context.extra("edge_index"), norm = context.extra("edge_norm");
  const Tensor weight = norm.defined() ? norm : context.extra("edge_weight");
  FRUGAL_CHECK(edges.defined(), "[graph] expected a batch with edge_index [2, E], got none");
  FRUGAL_CHECK(!norm.defined() || !context.extra("edge_weight").defined(),
               "[graph] expected edge_weight or edge_norm, got both");
  ops::GraphOptions all = options;
  if (norm.defined()) all = {.positions = options.positions};
  all.edge_weight = weight;
  const GraphPtr graph = find(graphs_, {edges, weight, norm}, nodes, context.training, [&] {
    return on(context.device, ops::make_graph(edges, nodes, all));
  });
  if (Trace* trace = active_trace(); trace != nullptr) tell(*trace, edges, all, graph);
  return graph;
}

NodeFeatures GraphInputs::features(const char* model, const Variable& x, const Context& context,
                                   int64_t in_features, double p) {
  FRUGAL_CHECK(x.value().dim() == 2, "[{}] expected x [V, F], got {}", model, describe(x.value()));
  const bool drops = p > 0 && context.training;
  FRUGAL_CHECK(!drops || context.rng != nullptr, "[{}] expected a random stream for dropout",
               model);
  NodeFeatures out;
  const Tensor row_ptr = context.extra("x_row_ptr"), col = context.extra("x_col");
  if (row_ptr.defined()) {
    FRUGAL_CHECK(col.defined(), "[{}] expected x_col beside x_row_ptr, got none", model);
    const Tensor value = context.extra("x_value");
    out.sparse = find(sparse_, {row_ptr, col, value}, in_features, context.training, [&] {
      return on(context.device, ops::make_sparse(row_ptr, col, value, in_features));
    });
    FRUGAL_CHECK(out.sparse->rows() == x.size(0),
                 "[{}] expected sparse features of {} nodes, got {}", model, x.size(0),
                 out.sparse->rows());
    out.dtype = context.dtype;
    if (drops) {
      out.dropout = p;
      out.key = context.rng->next();
    }
    return out;
  }
  FRUGAL_CHECK(x.size(1) == in_features, "[{}] expected {} features a node, got {}", model,
               in_features, describe(x.value()));
  out.dense = drops ? dropout(x, p, context.rng->next()) : x;
  return out;
}

GraphModule::GraphModule(const char* name, const GnnOptions& options,
                         const ops::GraphOptions& graph_options)
    : name_(name),
      options_(options),
      graph_options_(graph_options),
      inputs_(std::make_unique<GraphInputs>()) {
  FRUGAL_CHECK(options.layers >= 1 && options.in_features >= 1 && options.hidden >= 1 &&
                   options.num_classes >= 1,
               "[{}] expected layers, features, hidden units and classes of at least 1, got {}, "
               "{}, {}, {}",
               name, options.layers, options.in_features, options.hidden, options.num_classes);
  for (const double p : {options.dropout, options.input_dropout})
    FRUGAL_CHECK(p >= 0 && p < 1, "[{}] expected dropout in [0, 1), got {}", name, p);
}

GraphModule::GraphModule(GraphModule&&) = default;
GraphModule::~GraphModule() = default;

void GraphModule::forget_idle() { inputs_->forget_idle(); }

void GraphModule::add_norms(Init& init, int64_t count, int64_t width) {
  if (!options_.batch_norm) return;
  for (int64_t i = 0; i < count; ++i)
    norms_.push_back(register_module("norms." + std::to_string(i) + ".module",
                                     std::make_shared<BatchNorm2d>(init, width)));
}

int64_t GraphModule::joined(int64_t width) const {
  return options_.jk == JumpingKnowledge::cat ? width * options_.layers : width;
}

GraphPtr GraphModule::graph_of(const Variable& x, const Context& context) {
  FRUGAL_CHECK(context.checkpointed_blocks == 0 || !context.training,
               "[{}] expected no checkpointing, which graph networks do not have", name_);
  return inputs_->graph(context, x.size(0), graph_options_);
}

NodeFeatures GraphModule::features_of(const Variable& x, const Context& context, double dropout) {
  return inputs_->features(name_, x, context, options_.in_features, dropout);
}

RngKey GraphModule::next_key(Context& context) const {
  FRUGAL_CHECK(context.rng != nullptr, "[{}] expected a random stream for dropout", name_);
  return context.rng->next();
}

// One tensor is saved: the input of the norm, from which the rest is rebuilt, or else the output,
// with the sign in its codes.
Variable GraphModule::activate(int64_t conv, Variable y, const Variable& x, Context& context) {
  const double p = context.training ? options_.dropout : 0;
  const bool relu_form = options_.activation == GnnActivation::relu;
  const bool adds = options_.residual && x.defined() && x.shape() == y.shape();
  if (!norms_.empty()) {
    BatchNorm2d& norm = *norms_[static_cast<size_t>(conv)];
    if (relu_form) {
      y = adds ? norm.forward_add_relu(y, x, context) : norm.forward_relu(std::move(y), context);
      return p > 0 ? dropout_over(std::move(y), p, next_key(context)) : y;
    }
    y = norm.forward(std::move(y), context);
  }
  if (adds) y = add(y, x);
  if (relu_form) return p > 0 ? relu_dropout(y, p, next_key(context)) : relu(y);
  y = elu(y);
  return p > 0 ? dropout_over(std::move(y), p, next_key(context)) : y;
}

Variable GraphModule::join(const Variables& outputs) const {
  FRUGAL_ASSERT(joins());
  return options_.jk == JumpingKnowledge::cat ? concat(outputs, 1) : elementwise_max(outputs);
}

void GraphNetwork::add_norms_and_head(Init& init, int64_t width) {
  add_norms(init, joins() ? options().layers : options().layers - 1, width);
  if (joins())
    head_ = register_module("lin",
                            std::make_shared<Linear>(init, joined(width), options().num_classes));
}

std::string GraphNetwork::head_prefix() {
  return joins() ? "lin." : fmt::format("convs.{}.", options().layers - 1);
}

Variable GraphNetwork::forward(Variable x, Context& context) {
  const GraphPtr graph = graph_of(x, context);
  NodeFeatures features = features_of(x, context, options().input_dropout);
  x = Variable();
  Variables outputs;
  for (int64_t i = 0; i < options().layers; ++i) {
    const Variable side = options().residual ? features.dense : Variable();
    Variable y = convolve(i, std::move(features), graph, context);
    if (ends_with(i)) return y;
    y = activate(i, std::move(y), side, context);
    features = NodeFeatures{};
    features.dense = y;
    if (head_ != nullptr) outputs.push_back(std::move(y));
  }
  features = NodeFeatures{};
  return head_->forward(join(outputs), context);
}

}  // namespace frugal::models
