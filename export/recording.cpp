#include "export/recording.h"

#include <map>
#include <tuple>

#include "autograd/record.h"

namespace frugal::exports {
namespace {

// What makes two tensors the same value: the same elements of the same storage, in the same order.
// A storage's id is never used again.
using Identity = std::tuple<uint64_t, int64_t, std::vector<int64_t>, std::vector<int64_t>, DType>;

Identity identity_of(const Tensor& x) {
  return {x.storage()->id(),
          x.offset(),
          {x.shape().begin(), x.shape().end()},
          {x.strides().begin(), x.strides().end()},
          x.dtype()};
}

class Recorder : public Trace {
 public:
  explicit Recorder(const NamedTensors& inputs) {
    for (const auto& [name, tensor] : inputs) {
      made_.inputs.push_back(add_value(tensor));
      made_.values.back().constant = {};
    }
  }

  void add(TracedOp traced) override {
    Recording::Op op;
    op.name = std::move(traced.name);
    op.attributes = std::move(traced.attributes);
    bool constant = true;
    for (const Tensor& x : traced.inputs) {
      op.inputs.push_back(x.defined() ? value_of(x) : -1);
      constant = constant && (!x.defined() || value(op.inputs.back()).constant.defined());
    }
    if (traced.graph != nullptr) {
      if (!traced.output.defined()) graphs_[traced.graph] = static_cast<int>(graphs_.size());
      const auto found = graphs_.find(traced.graph);
      FRUGAL_CHECK(found != graphs_.end(),
                   "[export] expected {} to work on a graph that is made of edge_index in the "
                   "forward pass, got another one",
                   op.name);
      op.graph = found->second;
      constant = false;
    }
    if (traced.output.defined()) {
      // An op that writes over one of its inputs gives that tensor a new value.
      op.output = add_value(traced.output);
      made_.values.back().producer = static_cast<int>(made_.ops.size());
      if (!constant) made_.values.back().constant = {};
    }
    made_.ops.push_back(std::move(op));
  }

  Recording finish(const Tensor& output) {
    const auto found = known_.find(identity_of(output));
    FRUGAL_CHECK(found != known_.end() && !value(found->second).constant.defined(),
                 "[export] expected an output that ops of autograd/functions.h make of the "
                 "inputs, got {} from elsewhere",
                 describe(output));
    made_.output = found->second;
    return std::move(made_);
  }

 private:
  Recording::Value& value(int index) { return made_.values[static_cast<size_t>(index)]; }
  int add_value(const Tensor& x) {
    const int index = static_cast<int>(made_.values.size());
    made_.values.push_back({x.shape(), x.dtype(), x});
    known_[identity_of(x)] = index;
    return index;
  }
  // A tensor that nobody has made is a constant.
  int value_of(const Tensor& x) {
    const auto found = known_.find(identity_of(x));
    return found != known_.end() ? found->second : add_value(x);
  }

  Recording made_;
  std::map<Identity, int> known_;
  std::map<const void*, int> graphs_;
};

Tensor run(Module& module, const NamedTensors& inputs) {
  FRUGAL_CHECK(!inputs.empty(), "[export] expected at least one input, got none");
  Context context;
  context.training = false;
  context.device = inputs[0].second.device();
  context.extras = {inputs.begin() + 1, inputs.end()};
  const NoGrad no_grad;
  return module.forward(Variable(inputs[0].second), context).value();
}

}  // namespace

Recording record_evaluation(Module& module, const NamedTensors& inputs) {
  Recorder recorder(inputs);
  const TraceScope scope(recorder);
  return recorder.finish(run(module, inputs));
}

Tensor evaluate(Module& module, const NamedTensors& inputs) { return run(module, inputs); }

}  // namespace frugal::exports
