// Lowering: writes recorded ops as ONNX nodes. Internal to onnx_export.cpp and the lower_*.cpp
// files, one for each family of ops.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "export/onnx_export.h"
#include "export/recording.h"

namespace frugal::exports {

// Axis i of the ONNX tensor is axis order[i] of ours.
using Order = std::vector<int>;
Order natural(int dim);         // 0, 1, 2, ...
Order channels_first(int dim);  // 0, dim - 1, 1, 2, ...: NHWC as NCHW

class Lowering {
 public:
  // passes[0] is the one that is written; passes[i] has another value of sizes[i - 1].
  Lowering(Module& module, std::vector<Recording> passes, std::vector<FreeSize> sizes);
  OnnxGraph run(const std::vector<std::string>& inputs, const std::string& output);

  // ---- the op at hand
  struct Op {
    const Recording::Op& recorded;
    std::vector<const Recording::Op*> in_passes;  // the op in every pass

    int input(int i) const { return recorded.inputs[static_cast<size_t>(i)]; }
    bool has(int i) const { return i < static_cast<int>(recorded.inputs.size()) && input(i) >= 0; }
    int output() const { return recorded.output; }
    // Errors: it is not the same in all passes.
    const TracedOp::Value& attribute(const char* key) const;
    int64_t integer(const char* key) const { return std::get<int64_t>(attribute(key)); }
    double number(const char* key) const { return std::get<double>(attribute(key)); }
    const std::vector<int64_t>& integers(const char* key) const {
      return std::get<std::vector<int64_t>>(attribute(key));
    }
    // The integer in every pass.
    std::vector<int64_t> each_integer(const char* key) const;
  };

  // ---- values
  const Shape& shape(int value) const { return recorded(value).shape; }
  int dim(int value) const { return shape(value).dim(); }
  DType dtype(int value) const { return recorded(value).dtype; }
  bool is_constant(int value) const { return recorded(value).constant.defined(); }
  // The extent in every pass.
  std::vector<int64_t> extents(int value, int axis) const;
  bool is_fixed(int value, int axis) const;
  // Errors: an extent that is not the same in all passes.
  int64_t fixed(int value, int axis) const;

  // The order in which a value is held already.
  Order order_of(int value) const;
  // The name of the value's tensor in this order of axes.
  std::string in_order(int value, const Order& order);
  std::string plain(int value) { return in_order(value, natural(dim(value))); }
  // plain(), or "" if the op has no input i.
  std::string plain_or_none(const Op& op, int i) { return op.has(i) ? plain(op.input(i)) : ""; }
  void set(int value, const std::string& name, const Order& order) {
    held_[value] = {order, {{order, name}}};
  }
  void set(int value, const std::string& name) { set(value, name, natural(dim(value))); }
  // `value` is `other`, with axes in another order: axis i is axis axes[i] of `other`.
  void set_permuted(int value, int other, const Order& axes);

  // ---- nodes. Each returns the name of its output.
  using Attributes = std::vector<std::pair<std::string, OnnxNode::Attribute>>;
  std::string emit(const char* op, std::vector<std::string> inputs, Attributes attributes = {});
  std::vector<std::string> emit_many(const char* op, std::vector<std::string> inputs, int outputs,
                                     Attributes attributes = {});
  std::string initializer(const std::string& name, const Tensor& value);  // name: a wish
  std::string scalar(double value, DType dtype = DType::f32);             // f32, f64, i64
  std::string ints(const std::vector<int64_t>& values);                   // [n] i64
  // One extent as a scalar i64: a constant, or what a Shape node says.
  std::string extent(int value, int axis);
  // The extent of an input that has these numbers in the passes; "": there is none.
  std::string extent_of_input(const std::vector<int64_t>& in_passes);
  std::string to(const std::string& name, DType dtype);  // Cast
  std::string slice(const std::string& name, const std::vector<int64_t>& begin,
                    const std::vector<int64_t>& end, const std::vector<int64_t>& axes,
                    const std::vector<int64_t>& steps = {});
  // `name`, a plain tensor of the same elements as `like`, in the shape of `value`.
  std::string reshaped(const std::string& name, int like, int value);

  // ---- runs of equal indices, sorted: opset 13 has no sum over rows of equal index
  struct Runs {
    std::string order;       // [E] i64: positions in the index, sorted by value; the sort is stable
    std::string sorted;      // [E] i64: the values in this order
    std::string last, rows;  // [R] i64: where each run of equal values ends, and its value
  };
  Runs runs_of(const std::string& index);
  // values [E, ...] in the order of `runs` -> [R, ...] f32; `tail`: the extents behind the first.
  // Sums are made in f64: a sum is the difference of two sums over all that precedes.
  std::string sums(const std::string& values, const Runs& runs, const std::vector<int64_t>& tail);
  std::string maxima(const std::string& values, const Runs& runs);  // values [E, F]
  std::string counts(const Runs& runs);                             // [R] f32
  // [R, ...] -> [nodes, ...] with zeros in the other rows.
  std::string spread(const std::string& rows, const Runs& runs, const std::string& nodes,
                     const std::vector<int64_t>& tail);

  // The edges of the op's graph, sorted by target. Made once, when the first op works on the graph.
  struct Edges {
    Runs runs;           // runs of the edges with one target
    std::string source;  // [E] i64
    std::string weight;  // [E] f32; "": all are 1
  };
  const Edges& edges(const Op& op, int x);  // x: a value with a row for each node

  [[noreturn]] void fail(const std::string& why) const;  // names the op at hand

 private:
  struct Held {
    Order made;                          // the order in which a node made it
    std::map<Order, std::string> names;  // the tensor in `made` and those in other orders
  };
  const Recording::Value& recorded(int value) const {
    return passes_[0].values[static_cast<size_t>(value)];
  }
  void check_alignment() const;
  bool is_same_everywhere(int value);
  std::string constant_in_order(int value, const Order& order);
  // Numbers that count up, as many as an extent that the user chooses.
  std::string counted(int value);
  std::string unique(const std::string& wish);
  void name_parameters(Module& module);
  OnnxValue described(const std::string& name, int value, const Order& order) const;
  void rename(const std::string& from, const std::string& to);
  void drop_unread();

  std::vector<Recording> passes_;
  std::vector<FreeSize> sizes_;
  OnnxGraph graph_;
  std::map<int, Held> held_;
  std::map<int, bool> same_;  // is_same_everywhere(), which compares all elements
  std::map<std::string, std::string> scalars_;
  std::set<std::string> names_;
  std::map<std::string, int> counts_;
  struct Named {
    std::string name;
    Module::Layout layout;
    Shape shape;
  };
  std::map<std::pair<uint64_t, int64_t>, Named> parameters_;  // names by storage and offset
  std::map<int, const Recording::Op*> graphs_;
  std::map<int, Edges> edges_;
  std::map<std::pair<int, int>, std::string> extents_;
  const Recording::Op* at_hand_ = nullptr;
};

using LowerOp = void (*)(Lowering&, const Lowering::Op&);
using LowerTable = std::vector<std::pair<const char*, LowerOp>>;
// The table of ops, in families.
const LowerTable& dense_lowerings();
const LowerTable& image_lowerings();
const LowerTable& sequence_lowerings();
const LowerTable& graph_lowerings();

// Activations, shared by families.
std::string lower_gelu(Lowering& l, const std::string& x, bool tanh);
std::string lower_relu(Lowering& l, const std::string& x);

}  // namespace frugal::exports
