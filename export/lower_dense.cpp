// Elementwise ops, reductions, products of matrices, changes of shape.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "export/lowering.h"

namespace frugal::exports {

namespace {

using Op = Lowering::Op;

int axis_of(const Lowering& l, const Op& op, const char* key) {
  return normalize_axis("export", static_cast<int>(op.integer(key)), l.dim(op.input(0)));
}

// The place of our axis in a tensor that is held in this order.
int64_t place(const Order& order, int axis) {
  return std::find(order.begin(), order.end(), axis) - order.begin();
}

// ---- elementwise: they work in any order of axes

void unary(Lowering& l, const Op& op, const char* node, Lowering::Attributes attributes = {}) {
  const Order order = l.order_of(op.input(0));
  l.set(op.output(), l.emit(node, {l.in_order(op.input(0), order)}, std::move(attributes)), order);
}
template <const char* const& Node>
void plain_unary(Lowering& l, const Op& op) {
  unary(l, op, Node);
}

// The order in which both inputs are taken: that of an input with all axes of the output which is
// no constant. Where the other one has fewer axes and is no constant, both are plain.
void binary(Lowering& l, const Op& op, const char* node) {
  const int a = op.input(0), b = op.input(1), dim = l.dim(op.output());
  const auto leads = [&](int value) { return l.dim(value) == dim && !l.is_constant(value); };
  const Order order = leads(a) ? l.order_of(a) : leads(b) ? l.order_of(b) : natural(dim);
  if (l.dim(a) == dim && l.dim(b) == dim) {
    l.set(op.output(), l.emit(node, {l.in_order(a, order), l.in_order(b, order)}), order);
    return;
  }
  l.set(op.output(), l.emit(node, {l.plain(a), l.plain(b)}));
}

template <const char* const& Node>
void plain_binary(Lowering& l, const Op& op) {
  binary(l, op, Node);
}

void with_scalar(Lowering& l, const Op& op, const char* node, double value) {
  const Order order = l.order_of(op.input(0));
  const std::string x = l.in_order(op.input(0), order);
  l.set(op.output(), l.emit(node, {x, l.scalar(value, l.dtype(op.input(0)))}), order);
}
void scale(Lowering& l, const Op& op) { with_scalar(l, op, "Mul", op.number("factor")); }
void add_scalar(Lowering& l, const Op& op) { with_scalar(l, op, "Add", op.number("term")); }

void relu(Lowering& l, const Op& op) { unary(l, op, "Relu"); }
void leaky_relu(Lowering& l, const Op& op) {
  unary(l, op, "LeakyRelu", {{"alpha", op.number("slope")}});
}
void elu(Lowering& l, const Op& op) { unary(l, op, "Elu", {{"alpha", 1.0}}); }

void gelu(Lowering& l, const Op& op) {
  const Order order = l.order_of(op.input(0));
  l.set(op.output(), lower_gelu(l, l.in_order(op.input(0), order), op.integer("tanh") != 0), order);
}

void silu(Lowering& l, const Op& op) {
  const Order order = l.order_of(op.input(0));
  const std::string x = l.in_order(op.input(0), order);
  l.set(op.output(), l.emit("Mul", {x, l.emit("Sigmoid", {x})}), order);
}

void clamp(Lowering& l, const Op& op) {
  const Order order = l.order_of(op.input(0));
  l.set(op.output(),
        l.emit("Clip", {l.in_order(op.input(0), order), l.scalar(op.number("lo")),
                        l.scalar(op.number("hi"))}),
        order);
}

void cast(Lowering& l, const Op& op) {
  const Order order = l.order_of(op.input(0));
  l.set(op.output(), l.to(l.in_order(op.input(0), order), l.dtype(op.output())), order);
}

// ---- reductions

void reduce(Lowering& l, const Op& op, const char* node) {
  const int x = op.input(0);
  std::vector<int64_t> axes;
  for (const int64_t axis : op.integers("axes"))
    axes.push_back(normalize_axis("export", static_cast<int>(axis), l.dim(x)));
  std::sort(axes.begin(), axes.end());
  Lowering::Attributes attributes{{"keepdims", op.integer("keep_dim")}};
  std::vector<std::string> inputs{l.plain(x)};
  if (!axes.empty()) {
    if (node == std::string("ReduceSum"))  // an input since opset 13, of this reduction alone
      inputs.push_back(l.ints(axes));
    else
      attributes.emplace_back("axes", axes);
  }
  l.set(op.output(), l.emit(node, std::move(inputs), std::move(attributes)));
}
void sum(Lowering& l, const Op& op) { reduce(l, op, "ReduceSum"); }
void mean(Lowering& l, const Op& op) { reduce(l, op, "ReduceMean"); }
void max(Lowering& l, const Op& op) { reduce(l, op, "ReduceMax"); }

void softmax_as(Lowering& l, const Op& op, const char* node) {
  const int64_t axis = axis_of(l, op, "axis");
  l.set(op.output(), l.emit(node, {l.plain(op.input(0))}, {{"axis", axis}}));
}
void softmax(Lowering& l, const Op& op) { softmax_as(l, op, "Softmax"); }
void log_softmax(Lowering& l, const Op& op) { softmax_as(l, op, "LogSoftmax"); }

// ---- products

// x weight^T + bias. Weights stay as files have them, [out, in] or (GPT-2) [in, out].
std::string linear_of(Lowering& l, const Op& op) {
  const int x = op.input(0), weight = op.input(1);
  const Order file = [&] {
    l.in_order(weight, l.order_of(weight));
    return l.order_of(weight);
  }();
  const std::string held = l.in_order(weight, file), in = l.plain(x);
  const bool out_first = file == natural(2);
  if (l.dim(x) == 2) {
    std::vector<std::string> inputs{in, held};
    if (op.has(2)) inputs.push_back(l.plain(op.input(2)));
    return l.emit("Gemm", std::move(inputs), {{"transB", int64_t{out_first}}});
  }
  const std::string product = l.emit("MatMul", {in, l.in_order(weight, {1, 0})});
  return op.has(2) ? l.emit("Add", {product, l.plain(op.input(2))}) : product;
}
void linear(Lowering& l, const Op& op) { l.set(op.output(), linear_of(l, op)); }
void linear_relu(Lowering& l, const Op& op) { l.set(op.output(), lower_relu(l, linear_of(l, op))); }

void matmul(Lowering& l, const Op& op) {
  l.set(op.output(), l.emit("MatMul", {l.plain(op.input(0)), l.plain(op.input(1))}));
}

// (1 - beta) x + beta x weight
void identity_linear(Lowering& l, const Op& op) {
  const double beta = op.number("beta");
  const std::string x = l.plain(op.input(0));
  const std::string product = l.emit("MatMul", {x, l.plain(op.input(1))});
  l.set(op.output(), l.emit("Add", {l.emit("Mul", {x, l.scalar(1 - beta)}),
                                    l.emit("Mul", {product, l.scalar(beta)})}));
}

// ---- shapes

// Whether the elements lie as in the natural order, because only axes of extent 1 moved.
bool lies_naturally(const Lowering& l, int value, const Order& order) {
  int last = -1;
  for (const int axis : order) {
    if (axis > 0 && !l.is_fixed(value, axis)) return false;
    if (axis > 0 && l.shape(value)[axis] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

void reshape(Lowering& l, const Op& op) {
  const int x = op.input(0);
  bool same = l.dim(x) == l.dim(op.output());
  for (int axis = 0; same && axis < l.dim(x); ++axis)
    same = l.extents(x, axis) == l.extents(op.output(), axis);
  if (same) return l.set_permuted(op.output(), x, natural(l.dim(x)));
  const Order held = l.order_of(x);
  const std::string from = lies_naturally(l, x, held) ? l.in_order(x, held) : l.plain(x);
  l.set(op.output(), l.reshaped(from, x, op.output()));
}

void transpose(Lowering& l, const Op& op) {
  const int a = axis_of(l, op, "a"), b = axis_of(l, op, "b");
  Order axes = natural(l.dim(op.input(0)));
  std::swap(axes[static_cast<size_t>(a)], axes[static_cast<size_t>(b)]);
  l.set_permuted(op.output(), op.input(0), axes);
}

void slice(Lowering& l, const Op& op) {
  const int x = op.input(0), axis = axis_of(l, op, "axis");
  const Order order = l.order_of(x);
  const std::vector<int64_t> ends = op.each_integer("end");
  const std::string whole = l.in_order(x, order);
  const std::string free =
      std::equal(ends.begin() + 1, ends.end(), ends.begin()) ? "" : l.extent_of_input(ends);
  if (ends != l.extents(x, axis) && !free.empty()) {  // such as positions up to the last token
    l.set(op.output(),
          l.emit("Slice", {whole, l.ints({op.integer("begin")}),
                           l.emit("Unsqueeze", {free, l.ints({0})}), l.ints({place(order, axis)})}),
          order);
    return;
  }
  int64_t end = std::numeric_limits<int64_t>::max();  // to the end, whatever the extent is
  if (ends != l.extents(x, axis)) end = op.integer("end");
  l.set(op.output(), l.slice(whole, {op.integer("begin")}, {end}, {place(order, axis)}), order);
}

void concat(Lowering& l, const Op& op) {
  const int axis = axis_of(l, op, "axis");
  Order order = natural(l.dim(op.output()));
  for (const int x : op.recorded.inputs)
    if (!l.is_constant(x)) {
      order = l.order_of(x);
      break;
    }
  std::vector<std::string> parts;
  for (const int x : op.recorded.inputs) parts.push_back(l.in_order(x, order));
  // One part is a copy.
  l.set(op.output(),
        parts.size() == 1 ? parts[0] : l.emit("Concat", parts, {{"axis", place(order, axis)}}),
        order);
}

void pad(Lowering& l, const Op& op) {
  const Order order = l.order_of(op.input(0));
  const std::vector<int64_t>&before = op.integers("before"), &after = op.integers("after");
  std::vector<int64_t> pads;
  for (const std::vector<int64_t>* side : {&before, &after})
    for (const int axis : order) pads.push_back((*side)[static_cast<size_t>(axis)]);
  l.set(op.output(),
        l.emit("Pad", {l.in_order(op.input(0), order), l.ints(pads), l.scalar(op.number("value"))},
               {{"mode", std::string("constant")}}),
        order);
}

constexpr const char* kAdd = "Add";
constexpr const char* kSub = "Sub";
constexpr const char* kMul = "Mul";
constexpr const char* kDiv = "Div";
constexpr const char* kNeg = "Neg";
constexpr const char* kExp = "Exp";
constexpr const char* kLog = "Log";
constexpr const char* kSqrt = "Sqrt";
constexpr const char* kSigmoid = "Sigmoid";
constexpr const char* kTanh = "Tanh";

}  // namespace

std::string lower_relu(Lowering& l, const std::string& x) { return l.emit("Relu", {x}); }

// The nodes that PyTorch writes, which runtimes know as gelu.
std::string lower_gelu(Lowering& l, const std::string& x, bool tanh) {
  if (!tanh) {
    const std::string erf = l.emit("Erf", {l.emit("Div", {x, l.scalar(std::numbers::sqrt2)})});
    return l.emit("Mul", {l.emit("Mul", {x, l.emit("Add", {erf, l.scalar(1)})}), l.scalar(0.5)});
  }
  const std::string cube = l.emit("Pow", {x, l.scalar(3)});
  const std::string inner = l.emit("Add", {x, l.emit("Mul", {cube, l.scalar(0.044715)})});
  const double factor = std::sqrt(2 / std::numbers::pi);
  const std::string bend = l.emit("Tanh", {l.emit("Mul", {inner, l.scalar(factor)})});
  return l.emit("Mul", {l.emit("Mul", {x, l.scalar(0.5)}), l.emit("Add", {bend, l.scalar(1)})});
}

const LowerTable& dense_lowerings() {
  static const LowerTable table = {
      {"add", plain_binary<kAdd>},
      {"sub", plain_binary<kSub>},
      {"mul", plain_binary<kMul>},
      {"div", plain_binary<kDiv>},
      {"neg", plain_unary<kNeg>},
      {"exp", plain_unary<kExp>},
      {"log", plain_unary<kLog>},
      {"sqrt", plain_unary<kSqrt>},
      {"sigmoid", plain_unary<kSigmoid>},
      {"tanh", plain_unary<kTanh>},
      {"scale", scale},
      {"add_scalar", add_scalar},
      {"relu", relu},
      {"leaky_relu", leaky_relu},
      {"elu", elu},
      {"gelu", gelu},
      {"silu", silu},
      {"clamp", clamp},
      {"cast", cast},
      {"sum", sum},
      {"mean", mean},
      {"max", max},
      {"softmax", softmax},
      {"log_softmax", log_softmax},
      {"linear", linear},
      {"linear_relu", linear_relu},
      {"linear_gelu", gelu},  // its input is the output of a linear op of its own
      {"matmul", matmul},
      {"identity_linear", identity_linear},
      {"reshape", reshape},
      {"transpose", transpose},
      {"slice", slice},
      {"concat", concat},
      {"pad", pad},
  };
  return table;
}

}  // namespace frugal::exports
