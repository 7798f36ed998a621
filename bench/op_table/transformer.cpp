#include "autograd/packed_functions.h"
#include "autograd/transformer_functions.h"
#include "bench/op_table/op_table.h"
#include "ops/dense/copy.h"

namespace frugal::op_table {
namespace {

Failure refused(std::function<void()> run, const std::string& message) {
  return {std::move(run), message};
}

Tensor integers(const std::vector<int64_t>& values, const Shape& shape, const Variable& like) {
  return beside(like, Tensor::from<int64_t>(values, shape));
}

// ids count up in steps of 3 through the vocabulary: most occur more than once. The row of padding
// gets no gradient, whatever the difference.
Case lookup(const std::string& name, const Shape& ids, const Shape& weight, int64_t padding = -1) {
  return {.name = name,
          .inputs = {{weight, true}},
          .run =
              [=](const Variables& v) {
                std::vector<int64_t> at;
                for (int64_t i = 0; i < ids.numel(); ++i) at.push_back(i * 3 % weight[0]);
                return embedding(integers(at, ids, v[0]), v[0], padding);
              },
          .saved = [=](int64_t) { return std::vector<int64_t>{ids.numel() * 8}; },
          .smooth = padding < 0};
}

enum class Norm { layer, relu, rms };

Case norm(const std::string& name, const Shape& x, Norm kind, bool affine = true,
          double offset = 0) {
  const int64_t c = x.back(), n = x.numel(), rows = n / c;
  Case row{name, {{x, false, -1, 2}}, {}, {}};
  if (affine) {
    row.inputs.push_back({{c}, true, 0.5 - offset, 1.5 - offset});
    if (kind != Norm::rms) row.inputs.push_back({{c}, true});
  }
  row.run = [=](const Variables& v) {
    const Variable weight = affine ? v[1] : Variable(), bias = v.size() > 2 ? v[2] : Variable();
    if (kind == Norm::layer) return layer_norm(v[0], weight, bias);
    return kind == Norm::relu ? layer_norm_relu(v[0], weight, bias)
                              : rms_norm(v[0], weight, 1e-6, offset);
  };
  row.normalized_in = [c](int64_t i) { return i / c; };
  row.saved = [=](int64_t e) {
    std::vector<int64_t> bytes{n * e, rows * e};  // x, 1 / std
    if (kind != Norm::rms) bytes.push_back(rows * e);
    if (kind == Norm::relu) bytes.push_back(mask_bytes(n));
    if (offset != 0) bytes.push_back(c * e);  // weight + offset
    return bytes;
  };
  return row;
}

enum class Activation { gelu, tanh, relu };

Case activated(const std::string& name, const Shape& x, int64_t out, Activation kind,
               bool bias = true) {
  const int64_t h = x.numel() / x.back() * out;
  Case c{name, {{x}, {{out, x.back()}, true}}, {}, {}};
  if (bias) c.inputs.push_back({{out}, true});
  c.run = [=](const Variables& v) {
    const Variable b = bias ? v[2] : Variable();
    if (kind == Activation::relu) return linear_relu(v[0], v[1], b);
    return linear_gelu(v[0], v[1], b, kind == Activation::gelu ? Gelu::exact : Gelu::tanh);
  };
  c.saved = [=](int64_t e) {
    return std::vector<int64_t>{x.numel() * e, kind == Activation::relu ? mask_bytes(h) : h * e};
  };
  return c;
}

Case gates(const std::string& name, const Shape& shape, Gate kind) {
  return {name,
          {{shape, false, -3, 3}, {shape}},
          [=](const Variables& v) { return gated(v[0], v[1], kind); },
          elements({shape.numel(), shape.numel()})};
}

void add_gated(std::vector<Op>& rows) {
  rows.push_back({.name = "gated",
                  .cases = {gates("silu", {3, 4, 5}, Gate::silu), gates("gelu", {9, 7}, Gate::gelu),
                            gates("gelu by tanh", {17, 3}, Gate::gelu_tanh),
                            gates("no rows", {0, 3}, Gate::silu)},
                  .failures = {refused(
                      [] {
                        gated(leaf({2, 3}), leaf({3, 2}));
                      },
                      "[gated] expected up of shape [2, 3]")},
                  .bench = gates("SmolLM2-135M", {4, 512, 1536}, Gate::silu)});
  rows.back().bias = kSmooth;
}

// A frozen weight [out, C] in a format.
Case packed(const std::string& name, const Shape& x, int64_t out, ops::MatrixFormat format,
            bool bias = true) {
  Case c{name, {{x}}, {}, nothing()};
  if (bias) c.inputs.push_back({{out}, true});
  c.run = [=, in = x.back()](const Variables& v) {
    ops::PackedMatrix weight = ops::pack_matrix(Tensor::rand({out, in}, {7, 7}), format);
    const CategoryScope scope(Category::parameter);
    for (const auto& [ending, part] : weight.parts()) *part = beside(v[0], *part);
    return packed_linear(v[0], weight, bias ? v[1] : Variable());
  };
  return c;
}

void add_packed_linear(std::vector<Op>& rows) {
  using F = ops::MatrixFormat;
  rows.push_back(
      {.name = "packed_linear",
       .cases = {packed("nf4", {3, 4, 66}, 70, F::nf4), packed("int8", {5, 9}, 7, F::int8),
                 packed("bf16", {5, 8}, 16, F::bf16), packed("one row", {64}, 3, F::nf4, false),
                 packed("no rows", {0, 64}, 3, F::nf4)},
       .failures = {refused(
           [] {
             packed_linear(leaf({2, 3}), ops::pack_matrix(f32({4, 5}), F::nf4));
           },
           "[packed_linear] expected x [..., 5] for a weight [4, 5], got [2, 3]")}});
}

enum class Mask { none, padding, causal, joined, added, by_heads };

struct Extents {
  int64_t n, t, s, heads, d;
  int64_t group = 1;  // heads of q that share one of k and v
};

// The last keys of odd sequences are hidden; of the very last sequence all but the first.
Tensor padding_mask(const Extents& e, const Variable& like) {
  std::vector<int64_t> keep;
  for (int64_t n = 0; n < e.n; ++n)
    for (int64_t s = 0; s < e.s; ++s) keep.push_back(n % 2 == 0 || s < (e.s + 1) / 2 ? 1 : 0);
  return integers(keep, {e.n, e.s}, like);
}

// Samples of five tokens share rows, and the first of them has begun before.
Tensor places_in_samples(const Extents& e, const Variable& like) {
  std::vector<int64_t> places;
  for (int64_t n = 0; n < e.n; ++n)
    for (int64_t t = 0; t < e.t; ++t) places.push_back((t + 2 * n + 1) % 5);
  return integers(places, {e.n, e.t, 1}, like);
}

Tensor added_mask(const Shape& shape, const Variable& like) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(i % 7 == 3 ? -1e9 : 0.1 * static_cast<double>(i % 5));
  return beside(like, ops::cast(Tensor::from(values, shape), like.dtype()));
}

Tensor mask_of(Mask kind, const Extents& e, const Variable& like) {
  if (kind == Mask::padding) return padding_mask(e, like);
  if (kind == Mask::joined) return places_in_samples(e, like);
  if (kind == Mask::added) return added_mask({1, e.t, e.s}, like);
  if (kind == Mask::by_heads) return added_mask({e.n, e.heads, e.t, e.s}, like);
  return {};
}

int64_t mask_elements(Mask kind, const Extents& e) {
  if (kind == Mask::added) return e.t * e.s;
  return kind == Mask::by_heads ? e.n * e.heads * e.t * e.s : 0;
}

Case attend(const std::string& name, const Extents& e, Mask kind = Mask::none, double dropout = 0,
            bool bias = false, bool packed = false, int64_t window = 0, double soft_cap = 0) {
  const Shape q{e.n, e.t, e.heads, e.d}, k{e.n, e.s, e.heads / e.group, e.d};
  Case c{name, {{q}, {k}, {k}}, {}, {}};
  if (packed) c.inputs = {{{e.n, e.t, 3 * e.heads, e.d}}};
  if (bias) c.inputs.push_back({{e.heads, e.t, e.s}, true});
  AttentionOptions options;
  options.causal = kind == Mask::causal || kind == Mask::joined;
  options.dropout = dropout;
  options.key = {7, 3};
  options.window = window;
  options.soft_cap = soft_cap;
  c.run = [=](const Variables& v) {
    const Tensor mask = mask_of(kind, e, v[0]);
    const Variable added = bias ? v.back() : Variable();
    return packed ? qkv_attention(v[0], mask, added, options)
                  : scaled_dot_product_attention(v[0], v[1], v[2], mask, added, options);
  };
  c.saved = [=](int64_t element) {
    std::vector<int64_t> bytes{q.numel() * element, e.n * e.heads * e.t * element};  // y, lse
    if (packed)
      bytes.push_back(3 * q.numel() * element);
    else
      for (const Shape* x : {&q, &k, &k}) bytes.push_back(x->numel() * element);
    const int64_t integers = kind == Mask::padding  ? e.n * e.s
                             : kind == Mask::joined ? e.n * e.t
                                                    : 0;
    bytes.push_back(integers * 8 + mask_elements(kind, e) * element);
    return bytes;
  };
  return c;
}

void add_embedding(std::vector<Op>& rows) {
  const auto ids = [](std::vector<int64_t> at) {
    const auto n = static_cast<int64_t>(at.size());
    return Tensor::from<int64_t>(at, {n});
  };
  rows.push_back({.name = "embedding",
                  .cases = {lookup("tokens", {2, 7}, {5, 3}), lookup("one token", {1}, {1, 4}),
                            lookup("padding", {3, 4}, {6, 5}, 0),
                            lookup("more words than tokens", {2, 2}, {40, 17}),
                            lookup("no tokens", {0, 3}, {4, 2})},
                  .failures = {refused(
                                   [ids] {
                                     embedding(ids({0, 4}), leaf({4, 3}));
                                   },
                                   "[embedding] expected ids in [0, 4), got 4 at position 1"),
                               refused(
                                   [ids] {
                                     embedding(ids({-1}), leaf({4, 3}));
                                   },
                                   "[embedding] expected ids in [0, 4), got -1"),
                               refused(
                                   [] {
                                     embedding(f32({2}), leaf({4, 3}));
                                   },
                                   "[embedding] expected ids of dtype i64"),
                               refused([ids] { embedding(ids({0}), leaf({4})); },
                                       "[embedding] expected weight with 2 axes")},
                  .bench = lookup("BERT's words", {32, 128}, {30522, 256})});
}

void add_norms(std::vector<Op>& rows) {
  rows.push_back(
      {.name = "layer_norm",
       .cases = {norm("tokens", {2, 3, 5}, Norm::layer), norm("wide", {7, 65}, Norm::layer),
                 norm("one row", {8}, Norm::layer), norm("no affine", {9, 4}, Norm::layer, false),
                 norm("no rows", {0, 3}, Norm::layer)},
       .failures = {refused(
                        [] {
                          layer_norm(leaf({4, 3}), leaf({2}), {});
                        },
                        "[layer_norm] expected weight of shape [3]"),
                    refused(
                        [] {
                          layer_norm(leaf({4, 3}), {}, leaf({4}));
                        },
                        "[layer_norm] expected bias of shape [3]"),
                    refused(
                        [] {
                          layer_norm(leaf({4, 0}), {}, {});
                        },
                        "[layer_norm] expected x [..., C] with at least one channel"),
                    refused([] { layer_norm(leaf({}), {}, {}); },
                            "[layer_norm] expected x [..., C]"),
                    refused(
                        [] {
                          layer_norm(leaf({2, 3}), {}, {}, 0);
                        },
                        "[layer_norm] expected eps above 0")},
       .bench = norm("BERT-small", {32, 128, 256}, Norm::layer)});
  rows.back().bias = kStatistics;
  rows.back().other_form = true;  // normalized rows
  rows.push_back({.name = "layer_norm_relu",
                  .cases = {norm("rows by eight", {2, 4, 5}, Norm::relu),
                            norm("odd rows", {7, 33}, Norm::relu),
                            norm("no affine", {8, 3}, Norm::relu, false)},
                  .bench = norm("BERT-small", {32, 128, 256}, Norm::relu)});
  rows.back().bias = kStatistics;
  rows.back().other_form = true;  // normalized rows
  rows.push_back({.name = "rms_norm",
                  .cases = {norm("tokens", {2, 3, 5}, Norm::rms), norm("wide", {7, 65}, Norm::rms),
                            norm("no weight", {9, 4}, Norm::rms, false),
                            norm("weights from 1", {3, 4, 7}, Norm::rms, true, 1)},
                  .failures = {refused(
                                   [] {
                                     rms_norm(leaf({4, 3}), leaf({2}));
                                   },
                                   "[rms_norm] expected weight of shape [3]"),
                               refused(
                                   [] {
                                     rms_norm(leaf({2, 3}), {}, -1);
                                   },
                                   "[rms_norm] expected eps above 0")},
                  .bench = norm("BERT-small", {32, 128, 256}, Norm::rms)});
  rows.back().bias = kStatistics;
  rows.back().other_form = true;  // normalized rows
}

void add_linear_activations(std::vector<Op>& rows) {
  rows.push_back({.name = "linear_gelu",
                  .cases = {activated("exact", {5, 7}, 3, Activation::gelu),
                            activated("by tanh, no bias", {2, 3, 4}, 5, Activation::tanh, false),
                            activated("no rows", {0, 4}, 3, Activation::gelu)},
                  .failures = {refused(
                                   [] {
                                     linear_gelu(leaf({2, 3}), leaf({4, 5}), {});
                                   },
                                   "[linear_gelu] expected x [..., 5]"),
                               refused(
                                   [] {
                                     linear_gelu(leaf({2, 3}), leaf({4, 3}), leaf({3}));
                                   },
                                   "[linear_gelu] expected bias of shape [4]"),
                               refused(
                                   [] {
                                     linear_gelu(leaf({2, 3}), leaf({3}), {});
                                   },
                                   "[linear_gelu] expected weight with 2 axes")},
                  .bench = activated("BERT-small", {32, 128, 256}, 1024, Activation::gelu)});
  rows.back().bias = kSmooth;
  rows.push_back({.name = "linear_relu",
                  .cases = {activated("rows by eight", {2, 4, 7}, 3, Activation::relu),
                            activated("odd rows, no bias", {5, 3}, 5, Activation::relu, false)},
                  .failures = {refused(
                      [] {
                        linear_relu(leaf({2, 3}), leaf({4, 5}), {});
                      },
                      "[linear_relu] expected x [..., 5]")},
                  .bench = activated("BERT-small", {32, 128, 256}, 1024, Activation::relu)});
}

std::vector<Failure> attention_failures() {
  const auto run = [](const Shape& q, const Shape& k, const Shape& v, const Tensor& mask = {},
                      double dropout = 0) {
    AttentionOptions options;
    options.dropout = dropout;
    scaled_dot_product_attention(leaf(q), leaf(k), leaf(v), mask, {}, options);
  };
  const Shape x{2, 3, 2, 4};
  return {refused(
              [=] {
                run({2, 3, 8}, x, x);
              },
              "[attention] expected q with 4 axes"),
          refused(
              [=] {
                run(x, {2, 3, 3, 4}, x);
              },
              "[attention] expected q [N, T, heads, D] and k [N, S, heads or a divisor of them, "
              "D]"),
          refused(
              [=] {
                AttentionOptions window;
                window.window = 2;
                scaled_dot_product_attention(leaf(x), leaf(x), leaf(x), {}, {}, window);
              },
              "[attention] expected a window of at least 1 key with causal"),
          refused(
              [=] {
                AttentionOptions cap;
                cap.soft_cap = 2;
                scaled_dot_product_attention(leaf(x), leaf(x), leaf(x), f32({1, 3, 3}), {}, cap);
              },
              "[attention] expected a soft cap above 0 without a bias or a mask that is added"),
          refused(
              [=] {
                run(x, x, {2, 4, 2, 4});
              },
              "[attention] expected v of shape [2, 3, 2, 4]"),
          refused(
              [=] {
                run({2, 3, 2, 0}, {2, 3, 2, 0}, {2, 3, 2, 0});
              },
              "[attention] expected heads of at least one channel"),
          refused(
              [=] {
                run(x, x, x, Tensor::zeros({2, 4}, DType::i64));
              },
              "[attention] expected an i64 mask of shape [2, 3]"),
          refused(
              [=] {
                run(x, x, x, f32({3, 3, 3}));
              },
              "[attention] expected a mask [N, S] i64"),
          refused(
              [=] {
                run(x, x, x, Tensor::zeros({2, 3, 1}, DType::i64));
              },
              "[attention] expected `causal` with a mask [N, T, 1] i64"),
          refused(
              [=] {
                run(x, x, x, Tensor::zeros({2, 4, 1}, DType::i64));
              },
              "[attention] expected an i64 mask of 3 axes of shape [2, 3, 1]"),
          refused(
              [=] {
                run(x, x, x, f32({3, 3}));
              },
              "[attention] expected a mask [N, S] i64"),
          refused(
              [=] {
                run(x, x, x, Tensor::zeros({1, 3, 3}, DType::f64));
              },
              "of q's dtype"),
          refused([=] { run(x, x, x, {}, 1); }, "[attention] expected dropout in [0, 1), got 1"),
          refused(
              [=] {
                scaled_dot_product_attention(leaf(x), leaf(x), leaf(x), {}, leaf({1, 3, 3}));
              },
              "[attention] expected bias of shape [2, 3, 3]")};
}

void add_attention(std::vector<Op>& rows) {
  rows.push_back(
      {.name = "attention",
       .cases = {attend("self", {2, 3, 3, 2, 5}),
                 attend("one query", {1, 1, 7, 3, 4}),
                 attend("one key", {2, 3, 1, 1, 4}),
                 attend("padding", {3, 4, 7, 2, 5}, Mask::padding),
                 attend("causal, more keys", {2, 3, 5, 2, 4}, Mask::causal),
                 attend("causal, more queries", {1, 5, 3, 2, 4}, Mask::causal),
                 attend("added mask", {2, 3, 5, 2, 4}, Mask::added),
                 attend("added by heads", {2, 3, 5, 2, 4}, Mask::by_heads),
                 attend("dropout", {2, 5, 6, 2, 3}, Mask::none, 0.3),
                 attend("dropout, padding, bias", {3, 3, 5, 2, 4}, Mask::padding, 0.25, true),
                 attend("more than a tile", {1, 65, 131, 1, 3}, Mask::causal),
                 attend("shared keys", {2, 3, 5, 4, 3, 2}),
                 attend("shared keys, dropout, padding", {3, 4, 4, 6, 2, 3}, Mask::padding, 0.25),
                 attend("window", {2, 5, 7, 2, 3}, Mask::causal, 0, false, false, 3),
                 attend("samples in one row", {3, 9, 9, 2, 3}, Mask::joined),
                 attend("samples in one row, window", {2, 11, 11, 4, 2, 2}, Mask::joined, 0.2,
                        false, false, 3),
                 attend("samples in one row over tiles", {2, 140, 141, 2, 3, 2}, Mask::joined),
                 attend("soft cap", {2, 3, 4, 2, 3}, Mask::padding, 0, false, false, 0, 0.6),
                 attend("shared keys, window, cap", {1, 6, 6, 4, 3, 4}, Mask::causal, 0, false,
                        false, 2, 0.5),
                 attend("shared keys, window over tiles", {1, 70, 150, 2, 3, 2}, Mask::causal, 0,
                        false, false, 20),
                 attend("no queries", {2, 0, 3, 2, 4}),
                 attend("no keys", {1, 2, 0, 1, 4})},
       .failures = attention_failures(),
       .bench = attend("BERT-small", {32, 128, 128, 4, 64}, Mask::padding)});
  rows.back().bias = kScores;
  // The finite differences of this many elements take long.
  for (const char* name :
       {"more than a tile", "shared keys, window over tiles", "samples in one row over tiles"})
    for (Case& c : rows.back().cases)
      if (c.name == name) c.smooth = false;
  rows.push_back(
      {.name = "qkv_attention",
       .cases = {attend("self", {2, 3, 3, 2, 5}, Mask::none, 0, false, true),
                 attend("causal, dropout", {2, 4, 4, 1, 3}, Mask::causal, 0.25, false, true),
                 attend("samples in one row", {2, 9, 9, 1, 3}, Mask::joined, 0, false, true),
                 attend("bias", {2, 3, 3, 2, 4}, Mask::none, 0, true, true)},
       .failures = {refused(
                        [] {
                          qkv_attention(leaf({2, 3, 4, 5}));
                        },
                        "[attention] expected qkv [N, T, 3 heads, D]"),
                    refused(
                        [] {
                          qkv_attention(leaf({2, 3, 6}));
                        },
                        "[attention] expected qkv [N, T, 3 heads, D]")},
       .bench =
           attend("GPT-2, 1024 tokens", {1, 1024, 1024, 12, 64}, Mask::causal, 0, false, true)});
  rows.back().bias = kScores;
}

Case turned(const std::string& name, const Shape& x, bool positions = false,
            const RotaryOptions& options = {}, bool by_row = false) {
  const Shape given = by_row ? Shape{x[0], x[1]} : Shape{x[1]};
  return {
      .name = name,
      .inputs = {{x}},
      .run =
          [=](const Variables& v) {
            std::vector<int64_t> at;
            for (int64_t i = 0; i < given.numel(); ++i) at.push_back((3 * i + 2) % 26);
            return rotary_embedding(v[0], positions ? integers(at, given, v[0]) : Tensor(),
                                    options);
          },
      .saved = [=](int64_t) { return std::vector<int64_t>{positions ? given.numel() * 8 : 0}; }};
}

Case groups_of(const std::string& name, const Shape& x, int64_t groups, bool affine = true) {
  Case c{name, {{x, false, -1, 2}}, {}, elements({x.numel(), x[0] * groups, x[0] * groups})};
  if (affine) {
    c.inputs.push_back({{x.back()}, true, 0.5, 1.5});
    c.inputs.push_back({{x.back()}, true});
  }
  c.run = [=](const Variables& v) {
    return group_norm(v[0], groups, affine ? v[1] : Variable(), affine ? v[2] : Variable());
  };
  c.normalized_in = [groups, channels = x.back(),
                     sample = x.numel() / std::max<int64_t>(x[0], 1)](int64_t i) {
    return i / sample * groups + i % channels / (channels / groups);
  };
  return c;
}

Case sequence(const std::string& name, const Shape& x, const Shape& weight, int64_t stride,
              int64_t padding, int64_t dilation, int64_t groups) {
  return {.name = name,
          .inputs = {{x}, {weight, true}, {{weight[0]}, true}},
          .run =
              [=](const Variables& v) {
                return conv1d(v[0], v[1], v[2], stride, padding, dilation, groups);
              },
          .saved = elements({x.numel()})};
}

void add_others(std::vector<Op>& rows) {
  rows.push_back(
      {.name = "rotary_embedding",
       .cases = {turned("in order", {2, 3, 2, 4}), turned("positions", {1, 5, 3, 6}, true),
                 turned("one pair", {2, 1, 1, 2}),
                 turned("positions of each row", {3, 7, 2, 4}, true, {}, true),
                 turned(
                     "positions of each row, not beyond the first length", {2, 30, 1, 4}, true,
                     {.scaling = RotaryOptions::Scaling::dynamic, .factor = 2, .first_length = 26},
                     true),
                 turned("for longer sequences", {1, 7, 2, 8}, true,
                        {.base = 100,
                         .scaling = RotaryOptions::Scaling::yarn,
                         .factor = 4,
                         .first_length = 4,
                         .gain = 1.1}),
                 turned(
                     "with the length", {1, 6, 1, 6}, false,
                     {.scaling = RotaryOptions::Scaling::dynamic, .factor = 2, .first_length = 3})},
       .failures = {refused(
                        [] {
                          rotary_embedding(leaf({1, 2, 3, 5}));
                        },
                        "[rotary] expected an even number of channels"),
                    refused(
                        [] {
                          rotary_embedding(leaf({2, 3, 4}));
                        },
                        "[rotary] expected x with 4 axes"),
                    refused(
                        [] {
                          rotary_embedding(leaf({1, 2, 1, 2}), Tensor::zeros({3}, DType::i64));
                        },
                        "[rotary] expected positions of shape [2]"),
                    refused(
                        [] {
                          rotary_embedding(leaf({1, 2, 1, 2}), Tensor::zeros({2, 2}, DType::i64));
                        },
                        "[rotary] expected positions of each row of shape [1, 2]"),
                    refused(
                        [] {
                          rotary_embedding(leaf({1, 2, 1, 2}), Tensor::full({1, 2}, 9, DType::i64),
                                           {.scaling = RotaryOptions::Scaling::dynamic,
                                            .factor = 2,
                                            .first_length = 9});
                        },
                        "[rotary] expected positions below first_length 9 where each row"),
                    refused(
                        [] {
                          rotary_embedding(leaf({1, 2, 1, 2}), f32({2}));
                        },
                        "[rotary] expected positions of dtype i64"),
                    refused(
                        [] {
                          rotary_embedding(leaf({1, 2, 1, 2}), {}, {.base = 0});
                        },
                        "[rotary] expected base above 0"),
                    refused(
                        [] {
                          rotary_embedding(leaf({1, 2, 1, 2}), {}, {.factor = 0.5});
                        },
                        "[rotary] expected a factor of at least 1"),
                    refused(
                        [] {
                          rotary_embedding(leaf({1, 2, 1, 2}), {},
                                           {.scaling = RotaryOptions::Scaling::llama3});
                        },
                        "[rotary] expected first_length above 0")},
       .bench = turned("GPT, 1024 tokens", {1, 1024, 12, 64})});
  rows.push_back(
      {.name = "group_norm",
       .cases = {groups_of("images", {2, 3, 4, 6}, 3), groups_of("one group", {3, 5, 4}, 1),
                 groups_of("instances", {2, 7, 3}, 3),
                 groups_of("rows, no affine", {4, 6}, 2, false),
                 groups_of("no samples", {0, 3, 4}, 2)},
       .failures = {refused(
                        [] {
                          group_norm(leaf({2, 3, 4}), 3, {}, {});
                        },
                        "[group_norm] expected groups that divide 4 channels, got 3"),
                    refused(
                        [] {
                          group_norm(leaf({2, 3, 4}), 0, {}, {});
                        },
                        "[group_norm] expected groups that divide 4 channels, got 0"),
                    refused([] { group_norm(leaf({4}), 2, {}, {}); },
                            "[group_norm] expected x [N, ..., C]"),
                    refused(
                        [] {
                          group_norm(leaf({2, 4}), 2, leaf({2}), {});
                        },
                        "[group_norm] expected weight of shape [4]"),
                    refused(
                        [] {
                          group_norm(leaf({2, 4}), 2, {}, {}, 0);
                        },
                        "[group_norm] expected eps above 0")},
       .bench = groups_of("64 channels", {32, 32, 32, 64}, 8)});
  rows.back().bias = kStatistics;
  rows.back().other_form = true;  // normalized rows
  rows.push_back({.name = "conv1d",
                  .cases = {sequence("same", {2, 7, 3}, {4, 3, 3}, 1, 1, 1, 1),
                            sequence("strided, dilated", {2, 11, 4}, {3, 3, 4}, 2, 2, 2, 1),
                            sequence("two groups", {1, 5, 4}, {6, 2, 2}, 1, 0, 1, 2)},
                  .failures = {refused(
                                   [] {
                                     conv1d(leaf({1, 2, 5, 3}), leaf({4, 3, 3}), {});
                                   },
                                   "[conv1d] expected x with 3 axes"),
                               refused(
                                   [] {
                                     conv1d(leaf({2, 5, 3}), leaf({4, 3}), {});
                                   },
                                   "[conv1d] expected weight with 3 axes")},
                  .bench = sequence("256 channels", {32, 128, 256}, {256, 3, 256}, 1, 1, 1, 1)});
}

}  // namespace

void add_transformer(std::vector<Op>& rows) {
  add_embedding(rows);
  add_norms(rows);
  add_linear_activations(rows);
  add_gated(rows);
  add_packed_linear(rows);
  add_attention(rows);
  add_others(rows);
}

}  // namespace frugal::op_table
