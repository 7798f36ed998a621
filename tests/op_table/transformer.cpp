#include "autograd/transformer_functions.h"

#include "tests/op_table/op_table.h"

namespace frugal::op_table {
namespace {

Tensor integers(const std::vector<int64_t>& values, const Shape& shape, const Variable& like) {
  if (like.device().type == DeviceType::meta) return Tensor::empty(shape, DType::i64, kMeta);
  return Tensor::from<int64_t>(values, shape);
}

// ids count up in steps of 3 through the vocabulary: most occur more than once. The row of padding
// gets no gradient, whatever the difference.
Case lookup(const std::string& name, const Shape& ids, const Shape& weight, int64_t padding = -1) {
  return {name,
          {{weight, true}},
          [=](const Variables& v) {
            std::vector<int64_t> at;
            for (int64_t i = 0; i < ids.numel(); ++i) at.push_back(i * 3 % weight[0]);
            return embedding(integers(at, ids, v[0]), v[0], padding);
          },
          [=](int64_t) { return std::vector<int64_t>{ids.numel() * 8}; },
          padding < 0};
}

enum class Norm { layer, relu, rms };

Case norm(const std::string& name, const Shape& x, Norm kind, bool affine = true) {
  const int64_t c = x.back(), n = x.numel(), rows = n / c;
  Case row{name, {{x, false, -1, 2}}, {}, {}};
  if (affine) {
    row.inputs.push_back({{c}, true, 0.5, 1.5});
    if (kind != Norm::rms) row.inputs.push_back({{c}, true});
  }
  row.run = [=](const Variables& v) {
    const Variable weight = affine ? v[1] : Variable(), bias = v.size() > 2 ? v[2] : Variable();
    if (kind == Norm::layer) return layer_norm(v[0], weight, bias);
    return kind == Norm::relu ? layer_norm_relu(v[0], weight, bias) : rms_norm(v[0], weight);
  };
  row.saved = [=](int64_t e) {
    std::vector<int64_t> bytes{n * e, rows * e};  // x, 1 / std
    if (kind != Norm::rms) bytes.push_back(rows * e);
    if (kind == Norm::relu) bytes.push_back(mask_bytes(n));
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

Failure refused(std::function<void()> run, const std::string& message) {
  return {std::move(run), message};
}

void add_embedding(std::vector<Op>& rows) {
  const auto ids = [](std::vector<int64_t> at) {
    const auto n = static_cast<int64_t>(at.size());
    return Tensor::from<int64_t>(at, {n});
  };
  rows.push_back(
      {"embedding",
       {lookup("tokens", {2, 7}, {5, 3}), lookup("one token", {1}, {1, 4}),
        lookup("padding", {3, 4}, {6, 5}, 0), lookup("more words than tokens", {2, 2}, {40, 17}),
        lookup("no tokens", {0, 3}, {4, 2})},
       {refused(
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
       lookup("BERT's words", {32, 128}, {30522, 256}),
       true});
}

void add_norms(std::vector<Op>& rows) {
  rows.push_back(
      {"layer_norm",
       {norm("tokens", {2, 3, 5}, Norm::layer), norm("wide", {7, 65}, Norm::layer),
        norm("one row", {8}, Norm::layer), norm("no affine", {9, 4}, Norm::layer, false),
        norm("no rows", {0, 3}, Norm::layer)},
       {refused(
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
        refused([] { layer_norm(leaf({}), {}, {}); }, "[layer_norm] expected x [..., C]"),
        refused(
            [] {
              layer_norm(leaf({2, 3}), {}, {}, 0);
            },
            "[layer_norm] expected eps above 0")},
       norm("BERT-small", {32, 128, 256}, Norm::layer)});
  rows.push_back(
      {"layer_norm_relu",
       {norm("rows by eight", {2, 4, 5}, Norm::relu), norm("odd rows", {7, 33}, Norm::relu),
        norm("no affine", {8, 3}, Norm::relu, false)},
       {},
       norm("BERT-small", {32, 128, 256}, Norm::relu)});
  rows.push_back({"rms_norm",
                  {norm("tokens", {2, 3, 5}, Norm::rms), norm("wide", {7, 65}, Norm::rms),
                   norm("no weight", {9, 4}, Norm::rms, false)},
                  {refused(
                       [] {
                         rms_norm(leaf({4, 3}), leaf({2}));
                       },
                       "[rms_norm] expected weight of shape [3]"),
                   refused(
                       [] {
                         rms_norm(leaf({2, 3}), {}, -1);
                       },
                       "[rms_norm] expected eps above 0")},
                  norm("BERT-small", {32, 128, 256}, Norm::rms)});
}

void add_linear_activations(std::vector<Op>& rows) {
  rows.push_back({"linear_gelu",
                  {activated("exact", {5, 7}, 3, Activation::gelu),
                   activated("by tanh, no bias", {2, 3, 4}, 5, Activation::tanh, false),
                   activated("no rows", {0, 4}, 3, Activation::gelu)},
                  {refused(
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
                  activated("BERT-small", {32, 128, 256}, 1024, Activation::gelu)});
  rows.push_back({"linear_relu",
                  {activated("rows by eight", {2, 4, 7}, 3, Activation::relu),
                   activated("odd rows, no bias", {5, 3}, 5, Activation::relu, false)},
                  {refused(
                      [] {
                        linear_relu(leaf({2, 3}), leaf({4, 5}), {});
                      },
                      "[linear_relu] expected x [..., 5]")},
                  activated("BERT-small", {32, 128, 256}, 1024, Activation::relu),
                  true});
}

}  // namespace

void add_transformer(std::vector<Op>& rows) {
  add_embedding(rows);
  add_norms(rows);
  add_linear_activations(rows);
}

}  // namespace frugal::op_table
