#include "autograd/detection_functions.h"
#include "autograd/functions.h"
#include "bench/op_table/op_table.h"
#include "ops/dense/copy.h"

namespace frugal::op_table {
namespace {

// 0, 0.5, 1, ... of the dtype of parameters beside x: the first row does not count.
Tensor weights_beside(int64_t rows, const Variable& x) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows; ++i) values.push_back(static_cast<double>(i) * 0.5);
  return beside(x, ops::cast(Tensor::from(values, {rows}), parameter_dtype(x)));
}

Case focal(const std::string& name, int64_t rows, int64_t columns, bool weighted,
           const SigmoidFocalOptions& options = {}) {
  return {.name = name,
          .inputs = {{{rows, columns}, false, -3, 3}},
          .run =
              [=](const Variables& v) {
                std::vector<int64_t> classes;  // -1, 0, 1, ...
                for (int64_t i = 0; i < rows; ++i) classes.push_back(i % (columns + 1) - 1);
                return sigmoid_focal_loss(
                    v[0], to_device(Tensor::from(classes, {rows}), v[0].device()),
                    weighted ? weights_beside(rows, v[0]) : Tensor(), options);
              },
          .saved = elements({rows * columns})};
}

Case smooth_l1(const std::string& name, int64_t rows, int64_t columns, bool weighted, double beta) {
  return {.name = name,
          .inputs = {{{rows, columns}, false, -3, 3}},
          .run =
              [=](const Variables& v) {
                return smooth_l1_loss(v[0],
                                      Tensor::full(v[0].shape(), 0.25, v[0].dtype(), v[0].device()),
                                      weighted ? weights_beside(rows, v[0]) : Tensor(), beta);
              },
          .saved = elements({rows * columns})};
}

// Boxes from their first corners and their sizes, beside a box of [0, 1] x [0, 1.5].
Case giou(const std::string& name, int64_t rows, bool weighted, double lo, double hi) {
  return {.name = name,
          .inputs = {{{rows, 2}, false, lo, hi}, {{rows, 2}, false, 0.3, 1.2}},
          .run =
              [=](const Variables& v) {
                std::vector<double> target;
                for (int64_t i = 0; i < rows; ++i)
                  for (const double edge : {0.0, 0.0, 1.0, 1.5}) target.push_back(edge);
                return giou_loss(
                    concat({v[0], add(v[0], v[1])}, 1),
                    beside(v[0], ops::cast(Tensor::from(target, {rows, 4}), v[0].dtype())),
                    weighted ? weights_beside(rows, v[0]) : Tensor());
              },
          .saved = elements({rows * 4})};
}

// Codes as seen from three references; every third row has no box.
Case coded_giou(const std::string& name, int64_t rows, bool weighted, const BoxCoding& coding,
                double lo = -0.4) {
  return {.name = name,
          .inputs = {{{rows, 4}, false, lo, 0.4}},
          .run =
              [=](const Variables& v) {
                const auto tensor = [&](const Tensor& values) {
                  return beside(v[0], ops::cast(values, parameter_dtype(v[0])));
                };
                std::vector<int64_t> matches;
                for (int64_t i = 0; i < rows; ++i) matches.push_back(i % 3 - 1);
                return coded_giou_loss(
                    v[0], tensor(Tensor::of({{0, 0, 3, 4}, {1, 1, 3, 2}, {-1, 0, 2, 5}})),
                    tensor(Tensor::of({{0.5, 0.2, 3.1, 2.7}, {1.3, -0.4, 4.2, 3.3}})),
                    beside(v[0], Tensor::from(matches, {rows})),
                    weighted ? weights_beside(rows, v[0]) : Tensor(), coding);
              },
          .saved = elements({rows * 4})};
}

// So many boxes of different sizes, some of them partly or wholly outside the map.
Case regions(const std::string& name, const Shape& shape, int64_t boxes, std::array<int64_t, 2> out,
             double scale, const RoiAlignOptions& options) {
  return {.name = name,
          .inputs = {{shape}},
          .run =
              [=](const Variables& v) {
                std::vector<double> values;
                for (int64_t i = 0; i < boxes; ++i) {
                  const double at = static_cast<double>(i % 7) / scale;
                  for (const double value : {static_cast<double>(i % shape[0]), at - 1.3 / scale,
                                             0.4 * at, at + 2.2 / scale, at + 1.7 / scale})
                    values.push_back(value);
                }
                const Tensor all = Tensor::from(values, {boxes, 5});
                return roi_align(v[0], beside(v[0], ops::cast(all, parameter_dtype(v[0]))), out,
                                 scale, options);
              },
          .saved =
              [=](int64_t e) { return std::vector<int64_t>{boxes * 5 * std::max<int64_t>(e, 4)}; }};
}

Tensor index(const Shape& shape, int64_t value = 0) {
  return Tensor::full(shape, static_cast<double>(value), DType::i64);
}

}  // namespace

void add_detection(std::vector<Op>& rows) {
  rows.push_back(
      {.name = "sigmoid_focal_loss",
       .cases = {focal("plain", 4, 3, false), focal("weighted", 5, 2, true),
                 focal("other exponents", 3, 2, true, {-1, 1.5}), focal("no rows", 0, 3, true)},
       .failures = {{[] {
                       sigmoid_focal_loss(leaf({2, 3}), index({3}));
                     },
                     "[sigmoid_focal_loss] expected classes of shape [2]"},
                    {[] {
                       sigmoid_focal_loss(leaf({2, 3}), index({2}, 3));
                     },
                     "[sigmoid_focal_loss] expected classes below 3, got 3 in row 0"},
                    {[] {
                       sigmoid_focal_loss(leaf({2, 3}), index({2}), f32({3}));
                     },
                     "[sigmoid_focal_loss] expected weights of shape [2]"}},
       .bench = focal("100000 x 91", 100000, 91, true)});
  rows.push_back(
      {.name = "smooth_l1_loss",
       .cases = {smooth_l1("plain", 3, 4, false, 1), smooth_l1("weighted", 4, 4, true, 2),
                 smooth_l1("absolute", 3, 2, true, 0), smooth_l1("no rows", 0, 4, false, 1)},
       .failures = {{[] {
                       smooth_l1_loss(leaf({2, 3}), f32({3, 2}));
                     },
                     "[smooth_l1_loss] expected target of shape [2, 3]"},
                    {[] {
                       smooth_l1_loss(leaf({2, 3}), f32({2, 3}), {}, -1);
                     },
                     "[smooth_l1_loss] expected a beta of at least 0, got -1"}},
       .bench = smooth_l1("100000 x 4", 100000, 4, true, 1.0 / 9)});
  rows.push_back({.name = "giou_loss",
                  .cases = {giou("near", 4, false, -0.2, 0.6), giou("apart", 3, true, 1.6, 2.5),
                            giou("no boxes", 0, true, 0, 1)},
                  .failures = {{[] {
                                  giou_loss(leaf({2, 3}), f32({2, 3}));
                                },
                                "[giou_loss] expected x [R, 4]"},
                               {[] {
                                  giou_loss(leaf({2, 4}), f32({3, 4}));
                                },
                                "[giou_loss] expected target of shape [2, 4]"}},
                  .bench = giou("100000 boxes", 100000, true, -0.2, 0.6)});
  rows.push_back(
      {.name = "coded_giou_loss",
       .cases = {coded_giou("plain", 6, false, {}), coded_giou("weighted", 9, true, {10, 10, 5, 5}),
                 coded_giou("sizes beyond the limit", 9, false, {1, 1, 2, 0.07}, 0.05),
                 coded_giou("no rows", 0, true, {})},
       .failures = {{[] {
                       coded_giou_loss(leaf({2, 3}), f32({2, 4}), f32({1, 4}), index({2}));
                     },
                     "[coded_giou_loss] expected codes [R, 4]"},
                    {[] {
                       coded_giou_loss(leaf({3, 4}), f32({2, 4}), f32({1, 4}), index({3}));
                     },
                     "[coded_giou_loss] expected a multiple of 2 rows of codes"},
                    {[] {
                       coded_giou_loss(leaf({2, 4}), f32({2, 4}), f32({1, 4}), index({2}, 1));
                     },
                     "[coded_giou_loss] expected matches below 1, got 1 in row 0"},
                    {[] {
                       coded_giou_loss(leaf({2, 4}), f32({2, 4}), f32({1, 4}), index({3}));
                     },
                     "[coded_giou_loss] expected matches of shape [2]"}},
       .bench = coded_giou("99999 codes", 99999, true, {})});
  rows.push_back(
      {.name = "roi_align",
       .cases = {regions("sampling ratio", {2, 5, 6, 3}, 4, {2, 3}, 0.5, {2, false}),
                 regions("adaptive, aligned", {1, 6, 5, 2}, 3, {2, 2}, 0.25, {0, true}),
                 regions("adaptive, large cells", {1, 7, 7, 1}, 5, {1, 1}, 1, {0, false}),
                 regions("no boxes", {2, 3, 3, 2}, 0, {2, 2}, 1, {2, false})},
       .failures = {{[] {
                       roi_align(leaf({1, 4, 4, 2}), f32({3, 4}), {2, 2}, 1);
                     },
                     "[roi_align] expected boxes of shape [3, 5]"},
                    {[] {
                       roi_align(leaf({1, 4, 4, 2}), f32({3, 5}), {0, 2}, 1);
                     },
                     "[roi_align] expected a map and cells of at least 1x1"},
                    {[] {
                       roi_align(leaf({1, 4, 4, 2}), Tensor::full({1, 5}, 1), {2, 2}, 1);
                     },
                     "[roi_align] expected pictures in [0, 1), got 1 of box 0"}},
       .bench =
           regions("512 boxes of 50x50x256", {1, 50, 50, 256}, 512, {7, 7}, 0.25, {2, false})});
}

}  // namespace frugal::op_table
