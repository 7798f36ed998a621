// Recording: the ops of one evaluation pass of a network, and which values they read and write.
#pragma once
#include <string>
#include <vector>

#include "autograd/trace.h"
#include "core/named_tensors.h"
#include "models/module.h"

namespace frugal::exports {

// Values are numbered in the order in which they occur, so two passes of one network number them in
// the same way.
struct Recording {
  struct Value {
    Shape shape;
    DType dtype = DType::f32;
    Tensor constant = {};  // undefined: the value follows from the inputs
    int producer = -1;     // index of the op that made it; -1: an input, a weight or a constant
  };
  struct Op {
    std::string name;
    std::vector<int> inputs;  // values; -1: undefined
    int output = -1;          // a value; -1: the op makes a graph
    int graph = -1;           // number of the graph that the op makes or takes; -1: none
    std::vector<std::pair<std::string, TracedOp::Value>> attributes = {};
  };
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<int> inputs;  // values, in the order of the inputs
  int output = -1;
};

// Runs the module in evaluation, without gradients, on the cpu in f32. inputs[0] is the input of
// forward(), the others are the context's extras.
// Errors: the output is not made by a recorded op.
Recording record_evaluation(Module& module, const NamedTensors& inputs);

// The evaluation's output alone.
Tensor evaluate(Module& module, const NamedTensors& inputs);

}  // namespace frugal::exports
