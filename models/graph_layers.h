// Shared by the graph networks: their inputs, and the layers around a convolution.
//
// Inputs of forward(x, context): x [V, F] f32 has one row for each node.
// context.extra("edge_index") is [2, E] i64 (from, to). context.extra("edge_weight") [E] f32 is
// optional; the networks normalise it. context.extra("edge_norm") [E] f32 may be given instead:
// these are the coefficients of the aggregation, so nothing is normalised and no loops are added.
// Sparse features: context.extra("x_row_ptr") [V + 1] i64, ("x_col") [entries] i64 or i32 and
// optionally ("x_value") [entries] f32 are a CSR matrix (ones without values); x is then [V, 0].
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/graph_functions.h"
#include "models/layers.h"

namespace frugal::models {

enum class JumpingKnowledge : uint8_t { none, cat, max };  // Ref: Xu et al. 2018
enum class GnnActivation : uint8_t { relu, elu };

// The order of layers is conv, norm, activation, dropout, ..., conv. With jumping knowledge all
// convolutions are hidden ones, and a linear layer on their (joined) outputs follows. Gcnii always
// has that form.
struct GnnOptions {
  int64_t in_features = 1433;
  int64_t hidden = 16;
  int64_t num_classes = 7;
  int64_t layers = 2;
  double dropout = 0.5;      // after each activation
  double input_dropout = 0;  // dropout of the features
  bool batch_norm = false;   // norms between layers; their names begin with norms.{i}.module
  bool residual = false;     // act(norm(conv(x)) + x), if the two shapes are equal
  JumpingKnowledge jk = JumpingKnowledge::none;
  GnnActivation activation = GnnActivation::relu;
};

// U(-a, a) with a = sqrt(6 / (fan_in + fan_out)), where the fans are the last two extents, as in
// PyTorch Geometric.
Tensor glorot(Init& init, const Shape& shape);

// The features of nodes: a dense tensor, or a sparse matrix with its dropout. Every use of the
// sparse matrix draws the same dropout.
struct NodeFeatures {
  Variable dense;
  SparsePtr sparse;
  DType dtype = DType::f32;  // that a projection of sparse features has: f32 or bf16
  double dropout = 0;
  RngKey key{};
};
// features weight^T + bias; bias may be undefined.
Variable project(NodeFeatures features, const Variable& weight, const Variable& bias = {});

class GraphInputs;  // graph_inputs.h

// The layers around the convolutions of graph networks. Names: norms.{i}.module.
class GraphModule : public Module {
 public:
  ~GraphModule() override;
  GraphModule(GraphModule&&);
  void forget_idle() override;  // see GraphInputs

 protected:
  // `graph_options`: how edges become a graph; edge_weight is filled in from the batch. Errors:
  // extents below 1, dropout outside [0, 1).
  GraphModule(const char* name, const GnnOptions& options, const ops::GraphOptions& graph_options);
  bool joins() const { return options_.jk != JumpingKnowledge::none; }
  // Adds the norms of the first `count` convolutions, if the options ask for norms.
  void add_norms(Init& init, int64_t count, int64_t width);
  // The number of features that join() returns for outputs of this width.
  int64_t joined(int64_t width) const;

  // Errors: checkpointing is on; those of GraphInputs.
  GraphPtr graph_of(const Variable& x, const Context& context);
  NodeFeatures features_of(const Variable& x, const Context& context, double dropout);
  // dropout(act(norm(y) + x)) where y = conv(x). x is added only if the options ask for it and it
  // has the shape of y.
  Variable activate(int64_t conv, Variable y, const Variable& x, Context& context);
  Variable join(const Variables& outputs) const;
  const GnnOptions& options() const { return options_; }
  RngKey next_key(Context& context) const;  // Errors: no random stream

 private:
  const char* name_;
  GnnOptions options_;
  ops::GraphOptions graph_options_;
  std::unique_ptr<GraphInputs> inputs_;
  std::vector<std::shared_ptr<BatchNorm2d>> norms_;
};

// A stack of convolutions. Names: convs.{i}, lin (with jumping knowledge).
class GraphNetwork : public GraphModule {
 public:
  Variable forward(Variable x, Context& context) override;
  std::string head_prefix() override;

 protected:
  using GraphModule::GraphModule;
  // `width`: of the output of a hidden convolution. REQUIRES: called once, at the end of the
  // constructor.
  void add_norms_and_head(Init& init, int64_t width);
  // Whether this is the last convolution, whose outputs are the classes.
  bool ends_with(int64_t conv) const { return conv + 1 == options().layers && !joins(); }
  virtual Variable convolve(int64_t conv, NodeFeatures x, const GraphPtr& graph,
                            Context& context) = 0;

 private:
  std::shared_ptr<Linear> head_;
};

}  // namespace frugal::models
