#include "autograd/functions.h"
#include "tests/op_table/op_table.h"

namespace frugal::op_table {
namespace {

Case soft(const std::string& name, const Shape& shape, int axis, bool log) {
  return {name,
          {{shape, false, -3, 3}},
          [=](const Variables& v) { return log ? log_softmax(v[0], axis) : softmax(v[0], axis); },
          elements({shape.numel()})};
}

Tensor targets(const std::vector<int64_t>& values, Device device) {
  if (device.type == DeviceType::meta)
    return Tensor::empty({static_cast<int64_t>(values.size())}, DType::i64, device);
  return Tensor::from<int64_t>(values, {static_cast<int64_t>(values.size())});
}

Case entropy(const std::string& name, int64_t classes, std::vector<int64_t> target,
             const CrossEntropyOptions& options) {
  const auto n = static_cast<int64_t>(target.size());
  return {name,
          {{{n, classes}, false, -3, 3}},
          [=](const Variables& v) {
            return cross_entropy(v[0], targets(target, v[0].device()), options);
          },
          [=](int64_t e) {
            return std::vector<int64_t>{n * classes * e, 8 * n, n * e};
          }};
}

}  // namespace

void add_loss(std::vector<Op>& rows) {
  for (bool log : {false, true})
    rows.push_back({log ? "log_softmax" : "softmax",
                    {soft("rows", {4, 6}, -1, log), soft("middle axis", {2, 5, 3}, 1, log),
                     soft("empty", {0, 4}, 1, log)},
                    {{[log] { log ? log_softmax(leaf({2}), 1) : softmax(leaf({2}), 1); },
                      "expected an axis in [-1, 1)"}},
                    soft("rows of 1000", {1024, 1000}, -1, log)});
  CrossEntropyOptions plain, smooth, ignoring;
  smooth.label_smoothing = 0.1;
  ignoring.ignore_index = 1;
  ignoring.label_smoothing = 0.2;
  rows.push_back({"cross_entropy",
                  {entropy("plain", 5, {0, 4, 2}, plain), entropy("smoothed", 5, {0, 4, 2}, smooth),
                   entropy("some ignored", 4, {1, 3, 1, 0}, ignoring)},
                  {{[] {
                      cross_entropy(leaf({2, 3}), Tensor::full({2}, 3, DType::i64));
                    },
                    "[cross_entropy] expected"},
                   {[] {
                      cross_entropy(leaf({2, 3}), Tensor::zeros({3}, DType::i64));
                    },
                    "[cross_entropy] expected"}},
                  entropy("1024 x 1000", 1000, std::vector<int64_t>(1024, 7), plain)});
  auto mse = [](const Variables& v) { return mse_loss(v[0], v[1]); };
  rows.push_back({"mse_loss",
                  {{"plain", {{{3, 4}}, {{3, 4}}}, mse, elements({12})}},
                  {{[] {
                      mse_loss(leaf({2, 3}), leaf({3, 2}));
                    },
                    "expected"}},
                  {"4 Mi elements", {{{1 << 22}}, {{1 << 22}}}, mse, elements({1 << 22})},
                  true});
}

}  // namespace frugal::op_table
