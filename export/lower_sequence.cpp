// Embeddings, norms over the last axis, attention, rotary positions.
#include <cmath>

#include "export/lowering.h"
#include "ops/sequence/rotary.h"

namespace frugal::exports {
namespace {

using Op = Lowering::Op;

// Below every score, and finite: infinities would make NaN of a row whose keys are all hidden.
constexpr double kHidden = -1e30;

void embedding(Lowering& l, const Op& op) {
  l.set(op.output(),
        l.emit("Gather", {l.plain(op.input(0)), l.plain(op.input(1))}, {{"axis", int64_t{0}}}));
}

// ---- norms over the last axis; opset 13 has no node for them

std::string last_mean(Lowering& l, const std::string& x) {
  return l.emit("ReduceMean", {x}, {{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{1}}});
}

std::string scale_of(Lowering& l, const Op& op) {
  const std::string weight = l.plain(op.input(1));
  const double offset = op.number("offset");
  return offset == 0 ? weight : l.emit("Add", {weight, l.scalar(offset)});
}

// x / sqrt(mean(x^2) + eps), times the weight, plus the bias.
std::string normalized(Lowering& l, const Op& op, const std::string& x) {
  const std::string square = last_mean(l, l.emit("Pow", {x, l.scalar(2)}));
  const std::string root = l.emit("Sqrt", {l.emit("Add", {square, l.scalar(op.number("eps"))})});
  std::string y = l.emit("Div", {x, root});
  if (op.has(1)) y = l.emit("Mul", {y, scale_of(l, op)});
  if (op.has(2)) y = l.emit("Add", {y, l.plain(op.input(2))});
  return y;
}

std::string centred(Lowering& l, const std::string& x) {
  return l.emit("Sub", {x, last_mean(l, x)});
}

// ONNX Runtime makes one node of the last centring and what follows it. Up to 1.23 that node takes
// the variance as mean(x^2) - mean(x)^2, which is wrong where the mean is large: so its input is
// centred already (findings/onnxruntime_layer_norm.sh).
std::string layer_norm_of(Lowering& l, const Op& op) {
  const std::string x = centred(l, l.plain(op.input(0)));
  return normalized(l, op, centred(l, x));
}
void layer_norm(Lowering& l, const Op& op) { l.set(op.output(), layer_norm_of(l, op)); }
void layer_norm_relu(Lowering& l, const Op& op) {
  l.set(op.output(), lower_relu(l, layer_norm_of(l, op)));
}
void rms_norm(Lowering& l, const Op& op) {
  l.set(op.output(), normalized(l, op, l.plain(op.input(0))));
}

// ---- attention

// The parts of a score: q [N, heads, T, D], k [N, heads, D, S], v [N, heads, S, D].
struct Parts {
  std::string q, k, v;
  std::string t, s;  // scalars i64
  int64_t width;     // D
};

std::string attend(Lowering& l, const Op& op, const Parts& p, int bias, int mask) {
  if (op.number("dropout") != 0) l.fail("expected evaluation, got dropout");
  const double given = op.number("scale");
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(p.width));
  std::string scores = l.emit("Mul", {l.emit("MatMul", {p.q, p.k}), l.scalar(scale)});
  if (const double cap = op.number("soft_cap"); cap != 0)
    scores =
        l.emit("Mul", {l.emit("Tanh", {l.emit("Div", {scores, l.scalar(cap)})}), l.scalar(cap)});
  if (op.has(bias)) scores = l.emit("Add", {scores, l.plain(op.input(bias))});
  std::string seen;  // f32, 1 for the keys that are not padding; "": all
  const bool reaches = op.has(mask) && l.dtype(op.input(mask)) == DType::i64 &&
                       l.dim(op.input(mask)) == 3;  // [N, T, 1]
  if (op.has(mask) && l.dim(op.input(mask)) == 2) {
    // [N, S] as [N, 1, 1, S]
    const std::string wide = l.emit("Unsqueeze", {l.plain(op.input(mask)), l.ints({1, 2})});
    const std::string hidden = l.emit("Equal", {wide, l.scalar(0, DType::i64)});
    scores = l.emit("Where", {hidden, l.scalar(kHidden), scores});
    seen = l.to(l.emit("Not", {hidden}), DType::f32);
  } else if (op.has(mask) && !reaches) {
    scores = l.emit("Add", {scores, l.plain(op.input(mask))});
  }
  if (op.integer("causal") != 0) {
    const auto count = [&](const std::string& to) {
      return l.emit("Range", {l.scalar(0, DType::i64), to, l.scalar(1, DType::i64)});
    };
    // Query t sees the keys up to t + S - T.
    const std::string rows = l.emit("Add", {count(p.t), l.emit("Sub", {p.s, p.t})});
    const std::string at = l.emit("Unsqueeze", {rows, l.ints({1})}), keys = count(p.s);
    std::string later = l.emit("Less", {at, keys});
    if (const int64_t window = op.integer("window"); window != 0) {
      const std::string end =
          l.emit("Add", {keys, l.scalar(static_cast<double>(window), DType::i64)});
      later = l.emit("Or", {later, l.emit("LessOrEqual", {end, at})});
    }
    if (reaches) {  // [N, 1, T, 1] beside [T, 1] and [S]
      const std::string reach = l.emit("Max", {l.plain(op.input(mask)), l.scalar(0, DType::i64)});
      const std::string first = l.emit("Sub", {at, l.emit("Unsqueeze", {reach, l.ints({1})})});
      later = l.emit("Or", {later, l.emit("Less", {keys, first})});
    }
    scores = l.emit("Where", {later, l.scalar(kHidden), scores});
    if (p.t != p.s || !seen.empty()) {  // a query may see no key at all
      const std::string before = l.to(l.emit("Not", {later}), DType::f32);
      seen = seen.empty() ? before : l.emit("Mul", {seen, before});
    }
  }
  std::string shares = l.emit("Softmax", {scores}, {{"axis", int64_t{3}}});
  // A row whose keys are all hidden gives zeros.
  if (!seen.empty()) shares = l.emit("Mul", {shares, seen});
  return l.emit("MatMul", {shares, p.v});
}

constexpr int kHeadsOrder[] = {0, 2, 1, 3};

// x [N, heads / group, a, b], with `group` equal heads in the place of each. One of
// a and b may be -1: it follows from the others.
std::string repeated_heads(Lowering& l, const std::string& x, int64_t heads, int64_t group,
                           int64_t a, int64_t b) {
  if (group == 1) return x;
  const std::string apart = l.emit("Unsqueeze", {x, l.ints({2})});
  const std::string many = l.emit("Expand", {apart, l.ints({1, 1, group, 1, 1})});
  return l.emit("Reshape", {many, l.ints({0, heads, a, b})});
}

void attention(Lowering& l, const Op& op) {
  const int q = op.input(0), k = op.input(1), v = op.input(2);
  const Order heads(std::begin(kHeadsOrder), std::end(kHeadsOrder));
  const int64_t count = l.fixed(q, 2), group = count / l.fixed(k, 2), width = l.fixed(q, 3);
  const Parts parts{l.in_order(q, heads),
                    repeated_heads(l, l.in_order(k, {0, 2, 3, 1}), count, group, width, -1),
                    repeated_heads(l, l.in_order(v, heads), count, group, -1, width),
                    l.extent(q, 1),
                    l.extent(k, 1),
                    width};
  l.set(op.output(), attend(l, op, parts, 3, 4), heads);
}

// qkv [N, T, 3 heads, D]
void qkv_attention(Lowering& l, const Op& op) {
  const int qkv = op.input(0);
  const Order heads(std::begin(kHeadsOrder), std::end(kHeadsOrder));
  const int64_t third = l.fixed(qkv, 2) / 3;
  const std::vector<std::string> split = l.emit_many(
      "Split", {l.in_order(qkv, heads), l.ints({third, third, third})}, 3, {{"axis", int64_t{1}}});
  const std::string k =
      l.emit("Transpose", {split[1]}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  const std::string t = l.extent(qkv, 1);
  l.set(op.output(), attend(l, op, {split[0], k, split[2], t, t, l.fixed(qkv, 3)}, 1, 2), heads);
}

RotaryOptions rotary_options(const Op& op) {
  return {.base = op.number("base"),
          .scaling = static_cast<RotaryOptions::Scaling>(op.integer("scaling")),
          .factor = op.number("factor"),
          .first_length = op.number("first_length"),
          .low = op.number("low"),
          .high = op.number("high"),
          .most_turns = op.number("most_turns"),
          .least_turns = op.number("least_turns"),
          .whole_pairs = op.integer("whole_pairs") != 0,
          .gain = op.number("gain")};
}

// f32 [1, 1, half]
std::string fixed_speeds(Lowering& l, const RotaryOptions& options, int64_t half) {
  const std::vector<double> all = frequencies_of(options, half);
  const Tensor speeds = Tensor::empty({1, 1, half});
  for (int64_t i = 0; i < half; ++i)
    speeds.mut<float>()[i] = static_cast<float>(all[static_cast<size_t>(i)]);
  return l.initializer("speeds", speeds);
}

// Frequencies of dynamic options, in the same shape: at_length() in f64. `length`, a scalar i64, is
// known when the file runs.
std::string speeds_at(Lowering& l, const RotaryOptions& options, int64_t half,
                      const std::string& length) {
  const auto d = static_cast<double>(2 * half);
  const auto number = [&](double value) { return l.scalar(value, DType::f64); };
  const std::string stretched =
      l.emit("Mul", {l.to(length, DType::f64), number(options.factor / options.first_length)});
  const std::string growth = l.emit("Sub", {stretched, number(options.factor - 1)});
  const std::string more =
      l.emit("Mul", {l.emit("Log", {l.emit("Max", {growth, number(1)})}), number(d / (d - 2))});
  const std::string log_base = l.emit("Add", {more, number(std::log(options.base))});
  const Tensor shares = Tensor::empty({1, 1, half}, DType::f64);
  for (int64_t i = 0; i < half; ++i)
    shares.mut<double>()[i] = -static_cast<double>(i) / static_cast<double>(half);
  const std::string powers = l.emit("Mul", {l.initializer("shares", shares), log_base});
  return l.to(l.emit("Exp", {powers}), DType::f32);
}

// The frequencies that ops::rotary() takes for x and its positions.
std::string speeds_of(Lowering& l, const Op& op, const RotaryOptions& options) {
  const int x = op.input(0);
  const int64_t half = l.fixed(x, 3) / 2;
  if (options.scaling != RotaryOptions::Scaling::dynamic) return fixed_speeds(l, options, half);
  // Rows with positions of their own stay within first_length.
  const bool by_row = op.has(1) && l.dim(op.input(1)) == 2;
  if (half == 1 || by_row) return fixed_speeds(l, at_length(options, 0, 2 * half), half);
  if (!op.has(1) && l.is_fixed(x, 1))
    return fixed_speeds(l, at_length(options, l.shape(x)[1], 2 * half), half);
  std::string length = l.extent(x, 1);
  if (op.has(1)) {
    const std::string last =
        l.emit("ReduceMax", {l.plain(op.input(1))}, {{"keepdims", int64_t{0}}});
    length = l.emit("Max", {length, l.emit("Add", {last, l.scalar(1, DType::i64)})});
  }
  return speeds_at(l, options, half, length);
}

// Pairs (i, i + D/2) of x [N, T, heads, D] are turned by position times the frequency of the pair.
void rotary_embedding(Lowering& l, const Op& op) {
  const int x = op.input(0);
  const int64_t half = l.fixed(x, 3) / 2;
  const RotaryOptions options = rotary_options(op);
  const std::string at =
      op.has(1)
          ? l.plain(op.input(1))
          : l.emit("Range", {l.scalar(0, DType::i64), l.extent(x, 1), l.scalar(1, DType::i64)});
  const bool by_row = op.has(1) && l.dim(op.input(1)) == 2;
  const std::string rows =
      l.emit("Unsqueeze", {l.to(at, DType::f32), by_row ? l.ints({2, 3}) : l.ints({1, 2})});
  const std::string angles = l.emit("Mul", {rows, speeds_of(l, op, options)});
  std::string c = l.emit("Cos", {angles}), s = l.emit("Sin", {angles});
  if (options.gain != 1)
    for (std::string* factor : {&c, &s}) *factor = l.emit("Mul", {*factor, l.scalar(options.gain)});
  const std::vector<std::string> parts =
      l.emit_many("Split", {l.plain(x), l.ints({half, half})}, 2, {{"axis", int64_t{3}}});
  const std::string first =
      l.emit("Sub", {l.emit("Mul", {parts[0], c}), l.emit("Mul", {parts[1], s})});
  const std::string second =
      l.emit("Add", {l.emit("Mul", {parts[1], c}), l.emit("Mul", {parts[0], s})});
  l.set(op.output(), l.emit("Concat", {first, second}, {{"axis", int64_t{3}}}));
}

// act(gate) up
void gated(Lowering& l, const Op& op) {
  const std::string gate = l.plain(op.input(0)), up = l.plain(op.input(1));
  const auto kind = static_cast<Gate>(op.integer("kind"));
  const std::string made = kind == Gate::silu ? l.emit("Mul", {gate, l.emit("Sigmoid", {gate})})
                                              : lower_gelu(l, gate, kind == Gate::gelu_tanh);
  l.set(op.output(), l.emit("Mul", {made, up}));
}

}  // namespace

const LowerTable& sequence_lowerings() {
  static const LowerTable table = {
      {"embedding", embedding},
      {"layer_norm", layer_norm},
      {"layer_norm_relu", layer_norm_relu},
      {"rms_norm", rms_norm},
      {"attention", attention},
      {"qkv_attention", qkv_attention},
      {"rotary_embedding", rotary_embedding},
      {"gated", gated},
  };
  return table;
}

}  // namespace frugal::exports
