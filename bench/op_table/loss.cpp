#include "autograd/functions.h"
#include "autograd/segmentation_functions.h"
#include "bench/op_table/op_table.h"
#include "ops/dense/copy.h"

namespace frugal::op_table {
namespace {

Case soft(const std::string& name, const Shape& shape, int axis, bool log) {
  return {
      .name = name,
      .inputs = {{shape, false, -3, 3}},
      .run =
          [=](const Variables& v) { return log ? log_softmax(v[0], axis) : softmax(v[0], axis); },
      .saved = elements({shape.numel()})};
}

Tensor targets(const std::vector<int64_t>& values, Device device) {
  return to_device(Tensor::from<int64_t>(values, {static_cast<int64_t>(values.size())}), device);
}

// 0.5, 1.5, ... of the dtype of parameters beside x.
Tensor row_weights(const Shape& shape, const Variable& x) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(i) + 0.5);
  return beside(x, ops::cast(Tensor::from(values, shape), parameter_dtype(x)));
}

// Logits [leading..., classes], a target for each row. Weights of 0.5, 1.5, ... by row.
Case entropy(const std::string& name, const Shape& leading, int64_t classes,
             const std::vector<int64_t>& target, const CrossEntropyOptions& options,
             bool weighted = false) {
  const auto n = static_cast<int64_t>(target.size());
  Shape shape = leading;
  shape.push_back(classes);
  return {.name = name,
          .inputs = {{shape, false, -3, 3}},
          .run =
              [=](const Variables& v) {
                const Tensor weights = weighted ? row_weights(leading, v[0]) : Tensor();
                return cross_entropy(v[0], targets(target, v[0].device()).view(leading), options,
                                     weights);
              },
          .saved =
              [=](int64_t e) {
                std::vector<int64_t> bytes{n * classes * e, 8 * n, n * e};
                if (weighted) bytes.push_back(n * e);
                return bytes;
              }};
}

// x [leading..., width] and a weight for each of the classes; so many rows at once.
Case headed(const std::string& name, const Shape& leading, int64_t width, int64_t classes,
            const std::vector<int64_t>& target, const CrossEntropyOptions& options, bool bias,
            int64_t rows_at_once, double soft_cap = 0) {
  Shape shape = leading;
  shape.push_back(width);
  std::vector<Input> inputs{{shape}, {{classes, width}, true}};
  if (bias) inputs.push_back({{classes}, true});
  return {.name = name,
          .inputs = inputs,
          .run =
              [=](const Variables& v) {
                const Tensor at = targets(target, v[0].device()).view(leading);
                return linear_cross_entropy(v[0], v[1], bias ? v[2] : Variable(), at, options,
                                            rows_at_once, soft_cap)
                    .loss;
              },
          .saved = [=](int64_t e) {  // the parameters' gradients count as such
            std::vector<int64_t> bytes{shape.numel() * e};
            if (!options.sum) bytes.push_back(std::max<int64_t>(e, 4));
            return bytes;
          }};
}

Case binary(const std::string& name, const Shape& shape, bool weighted,
            const BinaryCrossEntropyOptions& options) {
  return {.name = name,
          .inputs = {{shape, false, -3, 3}},
          .run =
              [=](const Variables& v) {
                Tensor target = Tensor::full(shape, 0.25, v[0].dtype(), v[0].device());
                if (target.numel() > 0) ops::fill(target.select(-1, 0), 1);
                return binary_cross_entropy(v[0], target, options,
                                            weighted ? row_weights({shape[0]}, v[0]) : Tensor());
              },
          .saved = elements({shape.numel()})};
}

// Shares 0.25, 0.75, 0, ... of each row; `ignored` is a row that does not count, or -1.
Case shared(const std::string& name, const Shape& shape, double smoothing, int64_t ignored) {
  return {.name = name,
          .inputs = {{shape, false, -3, 3}},
          .run =
              [=](const Variables& v) {
                const int64_t classes = shape[shape.dim() - 1];
                std::vector<double> shares(static_cast<size_t>(shape.numel()));
                for (int64_t row = 0; row < shape.numel() / classes; ++row) {
                  double* at = shares.data() + row * classes;
                  at[row % classes] += 0.25;
                  at[(row + 1) % classes] += 0.75;
                  if (row == ignored) std::fill_n(at, classes, -100.0);
                }
                const Tensor target = Tensor::from(shares, shape);
                return soft_cross_entropy(
                    v[0], beside(v[0], ops::cast(target, parameter_dtype(v[0]))), smoothing);
              },
          .saved = elements({shape.numel()})};
}

// Weights 0.5, 1.5, ... of the classes.
Case weighted(const std::string& name, const Shape& leading, int64_t classes,
              const std::vector<int64_t>& target, const CrossEntropyOptions& options) {
  Case c = entropy(name, leading, classes, target, options);
  c.run = [=](const Variables& v) {
    return weighted_cross_entropy(v[0], targets(target, v[0].device()).view(leading),
                                  row_weights({classes}, v[0]), options);
  };
  const auto n = static_cast<int64_t>(target.size());
  c.saved = [=](int64_t e) {
    return std::vector<int64_t>{n * classes * e, 8 * n, n * e, classes * e};
  };
  return c;
}

// A loss of logits [leading..., classes] that keeps its gradient: loss(logits, target).
Case direct(const std::string& name, const Shape& leading, int64_t classes,
            const std::vector<int64_t>& target,
            const std::function<Variable(const Variable&, const Tensor&)>& loss) {
  Shape shape = leading;
  shape.push_back(classes);
  return {.name = name,
          .inputs = {{shape, false, -3, 3}},
          .run =
              [=](const Variables& v) {
                return loss(v[0], targets(target, v[0].device()).view(leading));
              },
          .saved = elements({shape.numel()})};
}

// x [n, h, w, classes] with targets of [n, out_h, out_w], 0, 1, ... and -100.
Case pixels(const std::string& name, const Shape& x, int64_t out_h, int64_t out_w,
            const CrossEntropyOptions& options, bool with_weights, int64_t images_at_once) {
  return {.name = name,
          .inputs = {{x, false, -3, 3}},
          .run =
              [=](const Variables& v) {
                std::vector<int64_t> target;
                for (int64_t i = 0; i < x[0] * out_h * out_w; ++i)
                  target.push_back(i % 5 == 4 ? -100 : i % x[3]);
                const Tensor at = targets(target, v[0].device()).view({x[0], out_h, out_w});
                return resized_cross_entropy(v[0], at, options, images_at_once,
                                             with_weights ? row_weights({x[3]}, v[0]) : Tensor())
                    .loss;
              },
          .saved =
              [=](int64_t e) {
                std::vector<int64_t> bytes{x.numel() * e};
                if (!options.sum) bytes.push_back(std::max<int64_t>(e, 4));
                return bytes;
              }};
}

}  // namespace

void add_loss(std::vector<Op>& rows) {
  for (bool log : {false, true}) {
    rows.push_back(
        {.name = log ? "log_softmax" : "softmax",
         .cases = {soft("rows", {4, 6}, -1, log), soft("middle axis", {2, 5, 3}, 1, log),
                   soft("empty", {0, 4}, 1, log)},
         .failures = {{[log] { log ? log_softmax(leaf({2}), 1) : softmax(leaf({2}), 1); },
                       "expected an axis in [-1, 1)"}},
         .bench = soft("rows of 1000", {1024, 1000}, -1, log)});
    rows.back().other_form = log;
  }
  CrossEntropyOptions plain, smooth, ignoring, sum;
  smooth.label_smoothing = 0.1;
  ignoring.ignore_index = 1;
  ignoring.label_smoothing = 0.2;
  sum.sum = true;
  rows.push_back(
      {.name = "cross_entropy",
       .cases = {entropy("plain", {3}, 5, {0, 4, 2}, plain),
                 entropy("smoothed", {3}, 5, {0, 4, 2}, smooth),
                 entropy("some ignored", {4}, 4, {1, 3, 1, 0}, ignoring),
                 entropy("sequences", {2, 3}, 4, {1, 3, -100, 0, -100, 2}, plain),
                 entropy("weighted mean", {4}, 3, {1, 2, 1, 0}, ignoring, true),
                 entropy("weighted sum of sequences", {2, 2}, 3, {1, 2, 1, 0}, sum, true)},
       .failures = {{[] {
                       cross_entropy(leaf({2, 3}), Tensor::full({2}, 3, DType::i64));
                     },
                     "[cross_entropy] expected"},
                    {[] {
                       cross_entropy(leaf({2, 3}), Tensor::zeros({3}, DType::i64));
                     },
                     "[cross_entropy] expected"},
                    {[] {
                       cross_entropy(leaf({2, 3}), Tensor::zeros({2}, DType::i64), {}, f32({3}));
                     },
                     "[cross_entropy] expected row_weights of shape [2]"}},
       .bench = entropy("1024 x 1000", {1024}, 1000, std::vector<int64_t>(1024, 7), plain)});
  rows.push_back(
      {.name = "weighted_cross_entropy",
       .cases = {weighted("plain", {3}, 5, {0, 4, 2}, plain),
                 weighted("images with ignored pixels", {1, 2, 3}, 4, {1, 3, -100, 0, -100, 2},
                          plain),
                 weighted("sum", {4}, 3, {1, 2, 1, 0}, sum),
                 weighted("smoothed", {3}, 5, {0, 4, 2}, smooth),
                 weighted("smoothed, some ignored", {4}, 4, {1, 3, 1, 0}, ignoring)},
       .failures =
           {{[] {
               weighted_cross_entropy(leaf({2, 3}), Tensor::zeros({2}, DType::i64), f32({2}));
             },
             "[weighted_cross_entropy] expected a weight for each of 3 classes"},
            {[] {
               weighted_cross_entropy(leaf({2, 3}), Tensor::full({2}, 3, DType::i64), f32({3}));
             },
             "[cross_entropy] expected"}},
       .bench = weighted("1024 x 1000", {1024}, 1000, std::vector<int64_t>(1024, 7), plain)});
  rows.push_back(
      {.name = "linear_cross_entropy",
       .cases = {headed("one part", {3}, 4, 5, {0, 4, 2}, plain, true, 8),
                 headed("parts", {2, 3}, 4, 5, {0, 4, 2, -100, 1, 1}, smooth, true, 4),
                 headed("rows alone, one of them ignored", {4}, 3, 4, {1, 3, 1, 0}, ignoring, false,
                        1),
                 headed("sum", {5}, 3, 4, {1, 3, 1, 0, 2}, sum, false, 2),
                 headed("soft cap", {2, 3}, 4, 5, {0, 4, 2, -100, 1, 1}, plain, true, 4, 0.7)},
       .failures = {{[] {
                       linear_cross_entropy(leaf({2, 3}), leaf({5, 4}), {},
                                            Tensor::zeros({2}, DType::i64), {}, 1);
                     },
                     "[linear_cross_entropy] expected x [..., 4]"},
                    {[] {
                       linear_cross_entropy(leaf({2, 3}), leaf({5, 3}), {},
                                            Tensor::zeros({3}, DType::i64), {}, 1);
                     },
                     "a row for each of 3 targets"},
                    {[] {
                       linear_cross_entropy(leaf({2, 3}), leaf({5, 3}), {},
                                            Tensor::zeros({2}, DType::i64), {}, 0);
                     },
                     "at least one row at once, got [2, 3] and 0"},
                    {[] {
                       linear_cross_entropy(leaf({2, 3}), leaf({5, 3}), {},
                                            Tensor::zeros({2}, DType::i64), {}, 1, -1);
                     },
                     "[linear_cross_entropy] expected a soft cap above 0"},
                    {[] {
                       linear_cross_entropy(leaf({2, 3}), leaf({5, 3}), {},
                                            Tensor::full({2}, 5, DType::i64), {}, 1);
                     },
                     "[cross_entropy] expected"}},
       .bench = headed("1024 x 256, 1000 classes", {1024}, 256, 1000, std::vector<int64_t>(1024, 7),
                       plain, true, 256)});
  rows.push_back(
      {.name = "resized_cross_entropy",
       .cases = {pixels("image by image", {3, 2, 3, 4}, 5, 4, smooth, false, 1),
                 pixels("uneven parts, weighted", {3, 2, 2, 3}, 4, 4, plain, true, 2),
                 pixels("uneven parts, weighted and smoothed", {3, 2, 2, 3}, 4, 4, smooth, true, 2),
                 pixels("sum, the same size", {2, 3, 2, 3}, 3, 2, sum, false, 8)},
       .failures = {{[] {
                       resized_cross_entropy(leaf({2, 2, 2, 3}),
                                             Tensor::zeros({1, 4, 4}, DType::i64), {}, 1);
                     },
                     "[resized_cross_entropy] expected x [N, h, w, C] and target [N, H, W]"},
                    {[] {
                       resized_cross_entropy(leaf({2, 2, 2, 3}),
                                             Tensor::zeros({2, 4, 4}, DType::i64), {}, 0);
                     },
                     "at least one image at once"},
                    {[] {
                       resized_cross_entropy(leaf({2, 2, 2, 3}),
                                             Tensor::zeros({2, 4, 4}, DType::i64), {}, 1, f32({2}));
                     },
                     "[resized_cross_entropy] expected a weight for each of 3 classes"},
                    {[] {
                       resized_cross_entropy(leaf({2, 2, 2, 3}),
                                             Tensor::full({2, 4, 4}, 3, DType::i64), {}, 1);
                     },
                     "[cross_entropy] expected"}},
       .bench = pixels("4 images of 32x32 to 256x256, 21 classes", {4, 32, 32, 21}, 256, 256, plain,
                       false, 1)});
  BinaryCrossEntropyOptions binary_sum;
  binary_sum.sum = true;
  rows.push_back(
      {.name = "binary_cross_entropy",
       .cases = {binary("mean", {3, 4}, false, {}), binary("weighted mean", {3, 2}, true, {}),
                 binary("weighted sum", {2, 2, 3}, true, binary_sum)},
       .failures = {{[] {
                       binary_cross_entropy(leaf({2, 3}), f32({3, 2}));
                     },
                     "[binary_cross_entropy] expected target of shape [2, 3]"},
                    {[] { binary_cross_entropy(leaf({2}), Tensor::full({2}, 1.5)); },
                     "[binary_cross_entropy] expected targets in [0, 1], got 1.5 in element 0"},
                    {[] {
                       binary_cross_entropy(leaf({2, 3}), f32({2, 3}), {}, f32({3}));
                     },
                     "[binary_cross_entropy] expected row_weights of shape [2]"},
                    {[] { binary_cross_entropy(leaf({}), f32({}), {}, f32({1})); },
                     "[binary_cross_entropy] expected logits with at least 1 axis"}},
       .bench = binary("8192 x 121", {8192, 121}, false, {})});
  rows.push_back(
      {.name = "soft_cross_entropy",
       .cases = {shared("plain", {3, 5}, 0, -1), shared("smoothed", {4, 3}, 0.1, -1),
                 shared("one ignored", {2, 3, 4}, 0.2, 1)},
       .failures = {{[] {
                       soft_cross_entropy(leaf({2, 3}), f32({3, 2}));
                     },
                     "[soft_cross_entropy] expected target of shape [2, 3]"},
                    {[] {
                       soft_cross_entropy(leaf({1, 2}), Tensor::from<float>({1, -1}, {1, 2}));
                     },
                     "[soft_cross_entropy] expected shares of at least 0, got -1 of class 1 in row "
                     "0"},
                    {[] {
                       soft_cross_entropy(leaf({2, 3}), f32({2, 3}), 1.5);
                     },
                     "[soft_cross_entropy] expected label_smoothing in [0, 1]"}},
       .bench = shared("1024 x 1000", {1024, 1000}, 0.1, -1)});
  const auto dice = [](double smoothing, int64_t ignored) {
    return [=](const Variable& x, const Tensor& t) {
      return dice_loss(x, t, {smoothing, ignored});
    };
  };
  rows.push_back(
      {.name = "dice_loss",
       .cases = {direct("rows", {4}, 3, {0, 2, 1, 2}, dice(1, -100)),
                 direct("images with ignored pixels and an absent class", {1, 2, 3}, 4,
                        {1, 3, 9, 0, 9, 1}, dice(0.5, 9)),
                 direct("all ignored", {2}, 3, {1, 1}, dice(1, 1))},
       .failures = {{[] {
                       dice_loss(leaf({2, 3}), Tensor::full({2}, 3, DType::i64));
                     },
                     "[dice_loss] expected targets in [0, 3) or the ignored index -100, got 3"},
                    {[] {
                       dice_loss(leaf({2, 3}), Tensor::zeros({3}, DType::i64));
                     },
                     "[dice_loss] expected target of shape [2]"},
                    {[] {
                       dice_loss(leaf({2, 3}), Tensor::zeros({2}, DType::i64), {.smooth = 0});
                     },
                     "[dice_loss] expected a smooth term above 0, got 0"}},
       .bench = direct("65536 x 21", {65536}, 21, std::vector<int64_t>(65536, 7), dice(1, -100))});
  // Weights 0.5, 1.5, ... of the classes, if wanted.
  const auto focal = [](double gamma, bool total, bool with_weights) {
    return [=](const Variable& x, const Tensor& t) {
      return focal_cross_entropy(x, t, {.gamma = gamma, .ignore_index = 9, .sum = total},
                                 with_weights ? row_weights({x.size(-1)}, x) : Tensor());
    };
  };
  rows.push_back(
      {.name = "focal_cross_entropy",
       .cases = {direct("rows", {4}, 3, {0, 2, 1, 2}, focal(2, false, false)),
                 direct("images with ignored pixels, weighted", {1, 2, 3}, 4, {1, 3, 9, 0, 9, 1},
                        focal(0.5, false, true)),
                 direct("sum of cross-entropies", {3}, 5, {0, 4, 2}, focal(0, true, false)),
                 direct("weighted sum", {3}, 5, {0, 4, 2}, focal(3, true, true))},
       .failures =
           {{[] {
               focal_cross_entropy(leaf({2, 3}), Tensor::full({2}, 3, DType::i64));
             },
             "[focal_cross_entropy] expected targets in [0, 3) or the ignored index -100"},
            {[] {
               focal_cross_entropy(leaf({2, 3}), Tensor::zeros({2}, DType::i64), {}, f32({2}));
             },
             "[focal_cross_entropy] expected class_weights of shape [3]"},
            {[] {
               focal_cross_entropy(leaf({2, 3}), Tensor::zeros({2}, DType::i64), {.gamma = -1});
             },
             "[focal_cross_entropy] expected gamma of at least 0, got -1"}},
       .bench = direct("65536 x 21", {65536}, 21, std::vector<int64_t>(65536, 7),
                       focal(2, false, false))});
  auto mse = [](const Variables& v) { return mse_loss(v[0], v[1]); };
  rows.push_back(
      {.name = "mse_loss",
       .cases = {{"plain", {{{3, 4}}, {{3, 4}}}, mse, elements({12})}},
       .failures = {{[] {
                       mse_loss(leaf({2, 3}), leaf({3, 2}));
                     },
                     "expected"}},
       .bench = {"4 Mi elements", {{{1 << 22}}, {{1 << 22}}}, mse, elements({1 << 22})}});
}

}  // namespace frugal::op_table
