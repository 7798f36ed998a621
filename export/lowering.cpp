#include "export/lowering.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/words/quoted.h"
#include "ops/dense/copy.h"

namespace frugal::exports {
namespace {

const LowerOp* find_lowering(const std::string& name) {
  for (const LowerTable* table :
       {&dense_lowerings(), &image_lowerings(), &sequence_lowerings(), &graph_lowerings()})
    for (const auto& [known, lower] : *table)
      if (name == known) return &lower;
  return nullptr;
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  if (a.storage() == b.storage() && a.offset() == b.offset() && a.strides() == b.strides())
    return true;
  if (a.raw() == nullptr || b.raw() == nullptr) return a.device() == b.device();  // on meta
  const Tensor x = ops::contiguous(a), y = ops::contiguous(b);
  return std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.nbytes())) == 0;
}

// Where each of `order` stands in `from`.
Order positions_in(const Order& from, const Order& order) {
  Order at;
  for (const int axis : order)
    at.push_back(static_cast<int>(std::find(from.begin(), from.end(), axis) - from.begin()));
  return at;
}

bool is_image(const Shape& shape, DType dtype) { return shape.dim() == 4 && is_floating(dtype); }

std::vector<int64_t> wide(const Order& order) { return {order.begin(), order.end()}; }

}  // namespace

Order natural(int dim) {
  Order order(static_cast<size_t>(dim));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order channels_first(int dim) {
  Order order{0, dim - 1};
  for (int axis = 1; axis < dim - 1; ++axis) order.push_back(axis);
  return order;
}

Lowering::Lowering(Module& module, std::vector<Recording> passes, std::vector<FreeSize> sizes)
    : passes_(std::move(passes)), sizes_(std::move(sizes)) {
  check_alignment();
  name_parameters(module);
}

void Lowering::fail(const std::string& why) const {
  throw Error(
      fmt::format("[export] {}: {}", at_hand_ != nullptr ? at_hand_->name : "the network", why));
}

void Lowering::check_alignment() const {
  const Recording& first = passes_[0];
  for (const Recording& pass : passes_) {
    bool same = pass.ops.size() == first.ops.size() && pass.values.size() == first.values.size() &&
                pass.output == first.output;
    for (size_t i = 0; same && i < first.ops.size(); ++i)
      same = pass.ops[i].name == first.ops[i].name && pass.ops[i].inputs == first.ops[i].inputs &&
             pass.ops[i].output == first.ops[i].output && pass.ops[i].graph == first.ops[i].graph;
    FRUGAL_CHECK(same,
                 "[export] expected a network that runs the same ops whatever the sizes of its "
                 "inputs are, got {} ops and then {}",
                 first.ops.size(), pass.ops.size());
  }
}

void Lowering::name_parameters(Module& module) {
  for (const Module::NamedParameter& p : module.parameters()) {
    const Tensor& value = p.parameter->value();
    parameters_[{value.storage()->id(), value.offset()}] = {p.name, p.layout, value.shape()};
  }
  for (const Module::NamedBuffer& b : module.buffers())
    parameters_[{b.buffer->storage()->id(), b.buffer->offset()}] = {b.name, Module::Layout::plain,
                                                                    b.buffer->shape()};
}

const TracedOp::Value& Lowering::Op::attribute(const char* key) const {
  const auto find = [&](const Recording::Op& op) -> const TracedOp::Value& {
    for (const auto& [name, value] : op.attributes)
      if (name == key) return value;
    throw Error(fmt::format("[export] {}: expected an attribute {}, got none", op.name, key));
  };
  const TracedOp::Value& value = find(recorded);
  for (const Recording::Op* other : in_passes)
    FRUGAL_CHECK(find(*other) == value,
                 "[export] {}: expected {} not to depend on the sizes of the inputs, but it does",
                 recorded.name, key);
  return value;
}

std::vector<int64_t> Lowering::Op::each_integer(const char* key) const {
  std::vector<int64_t> values;
  for (const Recording::Op* op : in_passes)
    for (const auto& [name, value] : op->attributes)
      if (name == key) values.push_back(std::get<int64_t>(value));
  return values;
}

std::vector<int64_t> Lowering::extents(int value, int axis) const {
  std::vector<int64_t> all;
  for (const Recording& pass : passes_)
    all.push_back(pass.values[static_cast<size_t>(value)].shape[axis]);
  return all;
}

bool Lowering::is_fixed(int value, int axis) const {
  const std::vector<int64_t> all = extents(value, axis);
  return std::all_of(all.begin(), all.end(), [&](int64_t extent) { return extent == all[0]; });
}

int64_t Lowering::fixed(int value, int axis) const {
  if (!is_fixed(value, axis))
    fail(fmt::format("expected axis {} of {} not to depend on the sizes of the inputs, but it does",
                     axis, shape(value)));
  return shape(value)[axis];
}

bool Lowering::is_same_everywhere(int value) {
  if (!is_constant(value)) return false;
  const auto known = same_.find(value);
  if (known != same_.end()) return known->second;
  const bool same = std::all_of(passes_.begin(), passes_.end(), [&](const Recording& pass) {
    const Tensor& other = pass.values[static_cast<size_t>(value)].constant;
    return other.defined() && equal_bits(recorded(value).constant, other);
  });
  same_[value] = same;
  return same;
}

// ---- names and nodes

std::string Lowering::unique(const std::string& wish) {
  if (names_.insert(wish).second) return wish;
  for (;;) {
    std::string name = fmt::format("{}_{}", wish, ++counts_[wish]);
    if (names_.insert(name).second) return name;
  }
}

std::vector<std::string> Lowering::emit_many(const char* op, std::vector<std::string> inputs,
                                             int outputs, Attributes attributes) {
  std::string wish = op;
  std::transform(wish.begin(), wish.end(), wish.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  OnnxNode node{op, std::move(inputs), {}, std::move(attributes)};
  for (int i = 0; i < outputs; ++i)
    node.outputs.push_back(unique(fmt::format("{}_{}", wish, ++counts_["node " + wish])));
  graph_.nodes.push_back(node);
  return node.outputs;
}

std::string Lowering::emit(const char* op, std::vector<std::string> inputs, Attributes attributes) {
  return emit_many(op, std::move(inputs), 1, std::move(attributes))[0];
}

std::string Lowering::initializer(const std::string& name, const Tensor& value) {
  std::string made = unique(name);
  graph_.initializers.emplace_back(made, value);
  return made;
}

std::string Lowering::scalar(double value, DType dtype) {
  const std::string key = fmt::format("scalar_{}_{}", name_of(dtype), value);
  std::string& made = scalars_[key];
  if (made.empty()) made = initializer(key, Tensor::full({}, value, dtype));
  return made;
}

std::string Lowering::ints(const std::vector<int64_t>& values) {
  const std::string key = fmt::format("ints_{}", fmt::join(values, "_"));
  std::string& made = scalars_[key];
  if (made.empty())
    made = initializer(key, Tensor::from(values, {static_cast<int64_t>(values.size())}));
  return made;
}

std::string Lowering::to(const std::string& name, DType dtype) {
  // TensorProto::DataType
  const int64_t type = dtype == DType::f32   ? 1
                       : dtype == DType::i64 ? 7
                       : dtype == DType::f64 ? 11
                                             : -1;
  if (type < 0) fail(fmt::format("expected f32, got {}", name_of(dtype)));
  return emit("Cast", {name}, {{"to", type}});
}

std::string Lowering::slice(const std::string& name, const std::vector<int64_t>& begin,
                            const std::vector<int64_t>& end, const std::vector<int64_t>& axes,
                            const std::vector<int64_t>& steps) {
  std::vector<std::string> inputs{name, ints(begin), ints(end), ints(axes)};
  if (!steps.empty()) inputs.push_back(ints(steps));
  return emit("Slice", std::move(inputs));
}

std::string Lowering::extent(int value, int axis) {
  if (is_fixed(value, axis)) return scalar(static_cast<double>(shape(value)[axis]), DType::i64);
  const auto known = extents_.find({value, axis});
  if (known != extents_.end()) return known->second;
  const Held& held = held_.at(value);
  const int64_t at = positions_in(held.made, {axis})[0];
  const std::string all = emit("Shape", {held.names.at(held.made)});
  const std::string made =
      emit("Gather", {all, scalar(static_cast<double>(at), DType::i64)}, {{"axis", int64_t{0}}});
  extents_[{value, axis}] = made;
  return made;
}

std::string Lowering::extent_of_input(const std::vector<int64_t>& in_passes) {
  for (const int input : passes_[0].inputs)
    for (int axis = 0; axis < dim(input); ++axis)
      if (extents(input, axis) == in_passes) return extent(input, axis);
  return "";
}

std::string Lowering::reshaped(const std::string& name, int like, int value) {
  if (passes_[0].values[static_cast<size_t>(like)].shape == shape(value)) {
    bool same = true;
    for (const Recording& pass : passes_)
      same = same && pass.values[static_cast<size_t>(like)].shape ==
                         pass.values[static_cast<size_t>(value)].shape;
    if (same) return name;
  }
  std::vector<int64_t> target;
  std::vector<int> open;  // axes whose extents depend on the sizes and are not those of `like`
  for (int axis = 0; axis < dim(value); ++axis) {
    if (is_fixed(value, axis)) {
      target.push_back(shape(value)[axis]);
    } else if (axis < dim(like) && extents(like, axis) == extents(value, axis)) {
      target.push_back(0);  // as it is
    } else {
      open.push_back(axis);
      target.push_back(-1);
    }
  }
  if (open.size() <= 1) {
    if (target.size() == 2 && target[0] == 0 && dim(like) > 1)  // as PyTorch writes it
      return emit("Flatten", {name}, {{"axis", int64_t{1}}});
    return emit("Reshape", {name, ints(target)});
  }
  // The shape is put together when the network runs: any value with such an extent tells it.
  std::vector<std::string> parts;
  for (int axis = 0; axis < dim(value); ++axis) {
    std::string part;
    if (is_fixed(value, axis)) {
      part = ints({shape(value)[axis]});
    } else {
      const std::string free = extent_of_input(extents(value, axis));
      if (free.empty())
        fail(fmt::format("expected at most one extent that depends on the sizes, got {} axes of {}",
                         open.size(), shape(value)));
      part = emit("Unsqueeze", {free, ints({0})});
    }
    parts.push_back(part);
  }
  return emit("Reshape", {name, emit("Concat", parts, {{"axis", int64_t{0}}})});
}

// ---- values

Order Lowering::order_of(int value) const {
  const auto held = held_.find(value);
  return held != held_.end() ? held->second.made : natural(dim(value));
}

void Lowering::set_permuted(int value, int other, const Order& axes) {
  if (held_.find(other) == held_.end()) plain(other);
  const Held& from = held_.at(other);
  Order inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i)
    inverse[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  const auto renamed = [&](const Order& order) {
    Order out;
    for (const int axis : order) out.push_back(inverse[static_cast<size_t>(axis)]);
    return out;
  };
  Held made{renamed(from.made), {}};
  for (const auto& [order, name] : from.names) made.names[renamed(order)] = name;
  held_[value] = made;
}

std::string Lowering::in_order(int value, const Order& order) {
  const auto found = held_.find(value);
  if (found == held_.end() || found->second.names.empty()) {
    if (is_same_everywhere(value)) return constant_in_order(value, order);
    if (is_constant(value) && recorded(value).producer < 0)
      set(value, counted(value));
    else if (found == held_.end())
      fail(fmt::format("expected its input {} to come from a recorded op, got none", shape(value)));
    return in_order(value, order);
  }
  Held& held = found->second;
  const auto known = held.names.find(order);
  if (known != held.names.end()) return known->second;
  const std::string made = emit("Transpose", {held.names.at(held.made)},
                                {{"perm", wide(positions_in(held.made, order))}});
  held.names[order] = made;
  return made;
}

std::string Lowering::constant_in_order(int value, const Order& order) {
  const Tensor& tensor = recorded(value).constant;
  const auto known = parameters_.find({tensor.storage()->id(), tensor.offset()});
  if (known != parameters_.end() && known->second.shape == tensor.shape() &&
      tensor.is_contiguous()) {
    Order file = natural(tensor.dim());
    switch (known->second.layout) {
      case Module::Layout::plain:
        break;
      case Module::Layout::conv_weight:
        file = channels_first(tensor.dim());
        break;
      case Module::Layout::transposed_linear:
        file = {1, 0};
        break;
    }
    set(value, initializer(known->second.name, tensor.permute(file)), file);
    return in_order(value, order);
  }
  // A constant without a name is written in each order that is asked for.
  const std::string made = initializer("constant", tensor.permute(order));
  held_[value].names[order] = made;
  if (held_[value].made.empty()) held_[value].made = order;
  return made;
}

std::string Lowering::counted(int value) {
  bool counts = dim(value) == 1 && dtype(value) == DType::i64;
  std::optional<int64_t> first;
  for (const Recording& pass : passes_) {
    const Tensor& constant = pass.values[static_cast<size_t>(value)].constant;
    if (!counts || constant.raw() == nullptr) break;
    const std::vector<int64_t> values = constant.to_vector<int64_t>();
    if (!first && !values.empty()) first = values[0];
    for (size_t i = 0; i < values.size(); ++i)
      counts = counts && values[i] == *first + static_cast<int64_t>(i);
  }
  const std::string count = counts ? extent_of_input(extents(value, 0)) : "";
  if (!count.empty()) {
    const std::string begin = scalar(static_cast<double>(first.value_or(0)), DType::i64);
    const std::string end = first.value_or(0) == 0 ? count : emit("Add", {count, begin});
    return emit("Range", {begin, end, scalar(1, DType::i64)});
  }
  fail(
      fmt::format("its input {} {} differs with the inputs of the network and does not come from "
                  "a recorded op; a forward pass must compute with the functions of "
                  "autograd/functions.h",
                  shape(value), name_of(dtype(value))));
}

OnnxValue Lowering::described(const std::string& name, int value, const Order& order) const {
  OnnxValue out{name, dtype(value)};
  for (const int axis : order) {
    OnnxExtent extent{shape(value)[axis]};
    if (!is_fixed(value, axis)) {
      extent.size = -1;
      for (size_t s = 0; s < sizes_.size(); ++s) {
        std::vector<int64_t> expected(passes_.size(), sizes_[s].example);
        expected[s + 1] = sizes_[s].other;
        if (extents(value, axis) == expected) extent.name = sizes_[s].name;
      }
    }
    out.shape.push_back(extent);
  }
  return out;
}

void Lowering::rename(const std::string& from, const std::string& to) {
  for (OnnxNode& node : graph_.nodes) {
    std::replace(node.inputs.begin(), node.inputs.end(), from, to);
    std::replace(node.outputs.begin(), node.outputs.end(), from, to);
  }
}

void Lowering::drop_unread() {
  std::set<std::string> read;
  for (const OnnxValue& output : graph_.outputs) read.insert(output.name);
  std::vector<OnnxNode> nodes;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    if (std::none_of(node->outputs.begin(), node->outputs.end(),
                     [&](const std::string& name) { return read.contains(name); }))
      continue;
    read.insert(node->inputs.begin(), node->inputs.end());
    nodes.push_back(std::move(*node));
  }
  graph_.nodes = {std::make_move_iterator(nodes.rbegin()), std::make_move_iterator(nodes.rend())};
  std::erase_if(graph_.initializers, [&](const auto& each) { return !read.contains(each.first); });
  std::erase_if(graph_.inputs, [&](const auto& each) { return !read.contains(each.name); });
}

OnnxGraph Lowering::run(const std::vector<std::string>& inputs, const std::string& output) {
  names_.insert(output);
  const Recording& first = passes_[0];
  for (size_t i = 0; i < first.inputs.size(); ++i) {
    const int value = first.inputs[i];
    const Order order =
        is_image(shape(value), dtype(value)) ? channels_first(4) : natural(dim(value));
    set(value, unique(inputs[i]), order);
    graph_.inputs.push_back(described(inputs[i], value, order));
  }
  for (size_t i = 0; i < first.ops.size(); ++i) {
    const Recording::Op& op = first.ops[i];
    at_hand_ = &op;
    if (op.output < 0) {
      graphs_[op.graph] = &op;
      continue;
    }
    if (is_same_everywhere(op.output)) continue;  // computed here
    const LowerOp* lower = find_lowering(op.name);
    if (lower == nullptr)
      fail(fmt::format("expected an op that has a form in ONNX; these have one: {}",
                       fmt::join(onnx_ops(), ", ")));
    Op call{op, {}};
    for (const Recording& pass : passes_) call.in_passes.push_back(&pass.ops[i]);
    (*lower)(*this, call);
  }
  at_hand_ = nullptr;
  std::string made = plain(first.output);
  const bool of_node =
      std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const OnnxNode& node) {
        return std::find(node.outputs.begin(), node.outputs.end(), made) != node.outputs.end();
      });
  if (!of_node) made = emit("Identity", {made});
  rename(made, output);
  graph_.outputs.push_back(described(output, first.output, natural(dim(first.output))));
  drop_unread();
  return std::move(graph_);
}

OnnxGraph to_onnx(Module& module, const OnnxInputs& inputs, const std::string& output) {
  std::vector<Recording> passes;
  std::vector<std::string> names;
  std::vector<int64_t> examples;
  for (const FreeSize& size : inputs.sizes) examples.push_back(size.example);
  for (size_t pass = 0; pass <= inputs.sizes.size(); ++pass) {
    std::vector<int64_t> sizes = examples;
    if (pass > 0) sizes[pass - 1] = inputs.sizes[pass - 1].other;
    const NamedTensors made = inputs.make(sizes);
    passes.push_back(record_evaluation(module, made));
    if (pass > 0) continue;
    for (const auto& [name, tensor] : made) names.push_back(name);
  }
  return Lowering(module, std::move(passes), inputs.sizes).run(names, output);
}

NamedTensors as_in_onnx(const NamedTensors& inputs) {
  NamedTensors out;
  for (const auto& [name, tensor] : inputs)
    out.emplace_back(name, is_image(tensor.shape(), tensor.dtype())
                               ? ops::contiguous(tensor.permute({0, 3, 1, 2}))
                               : tensor);
  return out;
}

std::vector<std::string> onnx_ops() {
  std::vector<std::string> names{"make_graph"};
  for (const LowerTable* table :
       {&dense_lowerings(), &image_lowerings(), &sequence_lowerings(), &graph_lowerings()})
    for (const auto& [name, lower] : *table) names.emplace_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace frugal::exports
