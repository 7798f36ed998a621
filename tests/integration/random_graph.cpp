#include "tests/integration/random_graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/checkpoint.h"
#include "autograd/contrastive_functions.h"
#include "autograd/detection_functions.h"
#include "autograd/segmentation_functions.h"
#include "autograd/volume_functions.h"
#include "ops/dense/copy.h"
#include "ops/dense/shape.h"
#include "tests/integration/random_builder.h"

namespace frugal {

namespace {

using Builder = GraphBuilder;

BatchNormOptions norm_options(Builder& b) {
  BatchNormOptions options;
  options.training = b.chance(80);
  return options;
}
BatchNormStats norm_stats(Builder& b, int64_t c, const BatchNormOptions& options) {
  if (options.training) return {};
  return {b.constant({c}), Tensor::full({c}, 0.75, b.dtype(), b.device())};
}
bool has_rows(const Variable& x) { return x.value().numel() / x.size(-1) >= 2; }
bool is_image(const Variable& x, int64_t side = 1) {
  return x.value().dim() == 4 && x.size(1) >= side && x.size(2) >= side;
}
Variable one_plus_square(const Variable& x) { return add_scalar(mul(x, x), 1); }

// [2, 5]: in the first picture alone.
Tensor two_boxes(const Variable& x) {
  const Tensor boxes = Tensor::from<double>({0, 0.25, 0.5, 1.5, 1.75, 0, 0, 0, 2, 1.25}, {2, 5});
  const bool exact = x.value().dtype() == DType::f64;
  return to_device(ops::cast(boxes, exact ? DType::f64 : DType::f32), x.device());
}

const Choice kUnary[] = {
    {[](Builder&, const Variable& x) { return scale(x, 0.75); }, 0},
    {[](Builder&, const Variable& x) { return add_scalar(x, -0.5); }, 1},
    {[](Builder&, const Variable& x) { return neg(x); }, 0},
    {[](Builder&, const Variable& x) { return exp(tanh(x)); }, -3},
    {[](Builder&, const Variable& x) { return log(one_plus_square(x)); }, 1},
    {[](Builder&, const Variable& x) { return sqrt(one_plus_square(x)); }, 1},
    {[](Builder&, const Variable& x) { return sigmoid(x); }, -1},
    {[](Builder&, const Variable& x) { return tanh(x); }, -1},
    {[](Builder&, const Variable& x) { return relu(x); }, 0},
    {[](Builder&, const Variable& x) { return leaky_relu(x, 0.125); }, 0},
    {[](Builder&, const Variable& x) { return gelu(x, Gelu::exact); }, 0},
    {[](Builder&, const Variable& x) { return gelu(x, Gelu::tanh); }, 0},
    {[](Builder&, const Variable& x) { return silu(x); }, 0},
    {[](Builder&, const Variable& x) { return clamp(x, -0.5, 1.5); }, -2},
    {[](Builder& b, const Variable& x) {
       const bool whole = is_image(x) && x.size(3) % 2 == 0;
       return whole ? dropout2d(x, 0.25, b.dropout_key()) : dropout(x, 0.25, b.dropout_key());
     },
     1},
    {[](Builder& b, const Variable& x) { return softmax(x, b.axis(x)); }, -1},
    {[](Builder& b, const Variable& x) { return log_softmax(x, b.axis(x)); }, 2},
    {[](Builder& b, const Variable& x) {
       const int a = b.axis(x);
       return sub(x, mean(x, {a}, true));
     },
     1},
    {[](Builder& b, const Variable& x) {
       const int a = b.axis(x);
       return mul(tanh(x), max(x, a, true));
     },
     0},
    {[](Builder& b, const Variable& x) {
       const int a = b.axis(x);
       return add(x, scale(sum(x, {a}, true), 0.125));
     },
     1},
    {[](Builder& b, const Variable& x) { return mul(x, b.parameter({x.size(-1)})); }, 0},
    {[](Builder& b, const Variable& x) { return add(x, b.parameter({x.size(-1)})); }, 1},
    {[](Builder&, const Variable& x) { return mul(x, sigmoid(x)); }, 0},
    {[](Builder& b, const Variable& x) {
       // f64 is there to be compared with differences: it takes no detour through f32.
       return cast(cast(x, DType::f64), b.dtype());
     },
     0},
    {[](Builder& b, const Variable& x) {
       const BatchNormOptions options = norm_options(b);
       if (options.training && !has_rows(x)) return Variable();
       const int64_t c = x.size(-1);
       const Variable weight = b.maybe_parameter({c}), bias = b.maybe_parameter({c});
       return batch_norm(x, weight, bias, norm_stats(b, c, options), options);
     },
     -4},
    {[](Builder& b, const Variable& x) {
       const BatchNormOptions options = norm_options(b);
       if (options.training && !has_rows(x)) return Variable();
       const int64_t c = x.size(-1);
       const Variable weight = b.maybe_parameter({c}), bias = b.maybe_parameter({c});
       return batch_norm_relu(x, weight, bias, norm_stats(b, c, options), options);
     },
     -4},
};

// Half of the residuals are moved in, so that y may take their bytes.
Variable residual_norm(Builder& b, const Variable& x) {
  if (!has_rows(x)) return {};
  const int64_t c = x.size(-1);
  const Variable weight = b.maybe_parameter({c}), bias = b.maybe_parameter({c});
  Builder::Item residual = b.partner(x, b.chance(60));
  return batch_norm_add_relu(x, std::move(residual.variable), weight, bias, {});
}

const Choice kBinary[] = {
    {[](Builder& b, const Variable& x) { return add(x, b.partner(x, false).variable); }, 1},
    {[](Builder& b, const Variable& x) { return sub(x, b.partner(x, false).variable); }, 1},
    {[](Builder& b, const Variable& x) { return mul(x, tanh(b.partner(x, false).variable)); }, 0},
    {[](Builder& b, const Variable& x) { return mul(tanh(x), b.partner(x, false).variable); }, 0},
    {[](Builder& b, const Variable& x) {
       return div(x, one_plus_square(b.partner(x, false).variable));
     },
     0},
    {[](Builder& b, const Variable& x) {
       const int a = b.axis(x);
       if (2 * x.value().numel() > b.max_elements()) return Variable();
       return concat({x, b.partner(x, false).variable}, a);
     },
     0},
    {residual_norm, 1},
    {residual_norm, 1},
    {residual_norm, 1},
};

const Choice kImageChoices[] = {
    // One gradient goes to a norm and to somebody else.
    {[](Builder& b, const Variable& x) {
       if (!is_image(x) || !has_rows(x)) return Variable();
       const Variable weight = b.maybe_parameter({x.size(3)});
       const Variable other = b.partner(x, false).variable;
       return add(b.chance(50) ? batch_norm(x, weight, {}, {}) : batch_norm_relu(x, weight, {}, {}),
                  other);
     },
     2},
    // Gradients of both branches meet in x.
    {[](Builder& b, const Variable& x) {
       if (!is_image(x, 2)) return Variable();
       const int64_t c = x.size(3);
       const Variable weight = b.parameter({c, 1, 1, c}, 0.5);
       const Variable other = b.partner(x, false).variable, y = conv2d(x, weight, {});
       return b.chance(50) ? add(y, x) : add(add(x, other), y);
     },
     2},
    {[](Builder& b, const Variable& x) {
       if (!is_image(x, 3)) return Variable();
       Conv2dOptions options;
       const int64_t kernel = 1 + 2 * b.pick(0, 1), c = x.size(3);
       options.padding = {kernel / 2, kernel / 2};
       options.stride = {b.pick(1, 2), b.pick(1, 2)};
       options.groups = c % 2 == 0 && b.chance(30) ? 2 : 1;
       const int64_t k = b.chance(50) ? c : options.groups * b.pick(1, 6);
       const bool even = x.size(1) % 2 == 0;
       if (even || x.size(0) % 2 == 0) {  // two layers of a volume
         const Variable weight = b.parameter({k, 2, kernel, kernel, c / options.groups}, 0.5);
         const Variable volume = even ? reshape(x, {-1, 2, x.size(1) / 2, x.size(2), c})
                                      : reshape(x, {-1, 2, x.size(1), x.size(2), c});
         const Conv3dOptions deep{{1, options.stride[0], options.stride[1]},
                                  {1, options.padding[0], options.padding[1]},
                                  {1, 1, 1},
                                  options.groups};
         const Variable y = conv3d(volume, weight, b.maybe_parameter({k}), deep);
         return reshape(y, {y.size(0), 3 * y.size(2), y.size(3), k});
       }
       const Variable weight = b.parameter({k, kernel, kernel, c / options.groups}, 0.5);
       return conv2d(x, weight, b.maybe_parameter({k}), options);
     },
     2},
    {[](Builder& b, const Variable& x) {
       if (!is_image(x) || 8 * x.value().numel() > b.max_elements()) return Variable();
       ConvTranspose2dOptions options;
       options.stride = {2, 2};
       const int64_t c = x.size(3), k = b.pick(1, 4);
       if (x.size(1) % 2 == 0) {  // two layers of a volume
         const Variable weight = b.parameter({c, 1, 2, 2, k}, 0.5);
         const Variable volume = reshape(x, {x.size(0), 2, x.size(1) / 2, x.size(2), c});
         const Variable y =
             conv_transpose3d(volume, weight, b.maybe_parameter({k}), {.stride = {1, 2, 2}});
         return reshape(y, {y.size(0), 2 * y.size(2), y.size(3), k});
       }
       const Variable weight = b.parameter({c, 2, 2, k}, 0.5);
       return conv_transpose2d(x, weight, b.maybe_parameter({k}), options);
     },
     1},
    {[](Builder& b, const Variable& x) {
       if (!is_image(x, 3)) return Variable();
       const int64_t stride = b.pick(1, 2);
       return max_pool2d(x, {{3, 3}, {stride, stride}, {1, 1}, true});
     },
     0},
    {[](Builder& b, const Variable& x) {
       return is_image(x, 2) ? avg_pool2d(x, {{2, 2}, {2, 2}, {0, 0}, b.chance(50)}) : Variable();
     },
     0},
    {[](Builder&, const Variable& x) {
       if (!is_image(x, 2)) return Variable();
       if (x.size(3) % 2 == 0) return adaptive_avg_pool2d(x, 2, 2);
       if (x.size(0) % 2 == 0) return adaptive_max_pool2d(x, 2, 2);
       // Two boxes in the first picture, so that other pictures get no gradient.
       return roi_align(x, two_boxes(x), {2, 2}, 1);
     },
     0},
    {[](Builder&, const Variable& x) { return is_image(x) ? global_avg_pool2d(x) : Variable(); },
     0},
    {[](Builder& b, const Variable& x) {
       if (!is_image(x) || 4 * x.value().numel() > b.max_elements()) return Variable();
       const auto mode = b.chance(50) ? Interpolation::bilinear : Interpolation::nearest;
       return interpolate(x, x.size(1) + b.pick(0, 2), 2 * x.size(2), {mode, b.chance(50)});
     },
     0},
    {[](Builder& b, const Variable& x) {
       const int64_t before = b.pick(0, 2), after = b.pick(0, 2);
       return is_image(x, 2) ? subsample_pad(x, 2, before, after) : Variable();
     },
     0},
};

const Choice kShape[] = {
    // Two views of one storage, both saved.
    {[](Builder& b, const Variable& x) {
       const int a = b.axis(x);
       const int64_t half = x.size(a) / 2;
       if (half == 0) return Variable();
       return mul(slice(x, a, 0, half), tanh(slice(x, a, x.size(a) - half, x.size(a))));
     },
     0},
    {[](Builder&, const Variable& x) {
       const int64_t half = x.size(0) / 2;
       return half == 0 ? Variable() : mul(slice(x, 0, 0, half), slice(x, 0, half, 2 * half));
     },
     3},
    {[](Builder&, const Variable& x) {
       return reshape(x, {-1, x.size(-1)});
     },
     0},
    {[](Builder&, const Variable& x) {
       return reshape(x, {x.size(0), -1});
     },
     0},
    {[](Builder& b, const Variable& x) {
       const int64_t n = x.value().numel() / x.size(-1);
       if (x.value().dim() != 2 || n % 4 != 0) return Variable();
       return b.chance(50) ? reshape(x, {n / 4, 2, 2, x.size(1)}) : reshape(x, {4, -1, x.size(1)});
     },
     0},
    {[](Builder& b, const Variable& x) {
       const int a = b.axis(x), other = b.axis(x);
       return transpose(x, a, other);
     },
     0},
    {[](Builder& b, const Variable& x) {
       const int a = b.axis(x);
       if (x.size(a) < 3) return Variable();
       const int64_t begin = b.pick(0, 1);
       return slice(x, a, begin, x.size(a) - b.pick(0, 1));
     },
     0},
    {[](Builder& b, const Variable& x) {
       if (2 * x.value().numel() > b.max_elements()) return Variable();
       std::vector<std::pair<int64_t, int64_t>> padding(static_cast<size_t>(x.value().dim()));
       padding[static_cast<size_t>(b.axis(x))] = {b.pick(0, 1), 1};
       return pad(x, padding, 0.25);
     },
     0},
    {[](Builder& b, const Variable& x) {
       const int64_t in = x.size(-1), out = b.chance(50) ? in : b.pick(2, 8);
       if (in > 64) return Variable();
       const Variable weight = b.parameter({out, in}, 1 / std::sqrt(static_cast<double>(in)));
       return linear(x, weight, b.maybe_parameter({out}));
     },
     1},
    {[](Builder&, const Variable& x) {
       const int d = x.value().dim();
       if (d < 2 || x.size(d - 1) > 32 || x.value().numel() / x.size(d - 1) * x.size(d - 2) > 1500)
         return Variable();
       return matmul(tanh(x), transpose(sigmoid(x), d - 2, d - 1));
     },
     -5},
};

const Choice& one_of(Builder& b, std::span<const Choice> choices) {
  return choices[static_cast<size_t>(b.pick(0, static_cast<int64_t>(choices.size()) - 1))];
}

}  // namespace

GraphBuilder::Item GraphBuilder::draw() {
  // Mostly the newest, so that graphs grow deep.
  const auto size = static_cast<int64_t>(pool_.size());
  const int64_t back = chance(60) ? 1 : pick(1, size);
  return pool_[static_cast<size_t>(size - back)];
}

GraphBuilder::Item GraphBuilder::partner(const Variable& x, bool moved) {
  std::vector<size_t> same;
  for (size_t i = 0; i < pool_.size(); ++i)
    if (pool_[i].variable.shape() == x.shape()) same.push_back(i);
  if (same.empty()) return {x, 0};
  const size_t chosen = same[static_cast<size_t>(pick(0, static_cast<int64_t>(same.size()) - 1))];
  // x's own place is the caller's; an input of the graph stays, so that the pool is never empty.
  if (!moved || pool_[chosen].variable.identity() == x.identity() || chosen == 0)
    return pool_[chosen];
  Item item = std::move(pool_[chosen]);
  pool_.erase(pool_.begin() + static_cast<std::ptrdiff_t>(chosen));
  return item;
}

void GraphBuilder::step() {
  if (depth_ < 2 && chance(8)) return segment();
  const Item from = draw();
  for (int attempt = 0; attempt < 20; ++attempt) {
    const int64_t family = pick(0, 12);
    const Choice& choice = from.magnitude > 5 ? kUnary[7]  // tanh
                           : family < 3       ? one_of(*this, kUnary)
                           : family < 6       ? one_of(*this, kBinary)
                           : family < 8       ? one_of(*this, kImageChoices)
                           : family < 10      ? one_of(*this, kShape)
                                              : one_of(*this, sequence_choices());
    const Variable y = choice.run(*this, from.variable);
    if (!y.defined()) continue;
    put(y, choice.adds < 0 ? -choice.adds - 1 : from.magnitude + choice.adds);
    return;
  }
}

void GraphBuilder::segment() {
  Variables inputs{draw().variable};
  if (chance(40)) inputs.push_back(draw().variable);
  const auto stream = static_cast<uint64_t>(pick(1, int64_t{1} << 40));
  const int64_t steps = pick(1, 5);
  auto end = std::make_shared<size_t>(next_leaf_);
  const auto f = [graph = &graph_, stream, steps, first = next_leaf_, depth = depth_,
                  end](const Variables& xs) {
    GraphBuilder inner(*graph, stream, first, depth + 1);
    for (const Variable& x : xs) inner.put(x, 5);
    for (int64_t i = 0; i < steps; ++i) inner.step();
    *end = inner.next_leaf();
    return tanh(inner.last().variable);
  };
  const Variable y = graph_.options_.checkpoints ? checkpoint(f, inputs, &graph_.rng_) : f(inputs);
  next_leaf_ = *end;
  put(y, 0);
}

namespace {

// Classes 0, 1, ... again and again, one for each row of x.
Tensor classes_like(const Variable& x) {
  Shape shape;
  for (int axis = 0; axis + 1 < x.shape().dim(); ++axis) shape.push_back(x.size(axis));
  const Tensor classes = Tensor::empty(shape, DType::i64, x.device());
  if (classes.device().type != DeviceType::meta)
    for (int64_t i = 0; i < classes.numel(); ++i) classes.mut<int64_t>()[i] = i % x.size(-1);
  return classes;
}

// One of the losses of detection and of self-supervision, or the mean square, by the sizes alone:
// no draw, so that the graphs of all seeds stay the same.
Variable judged(const Variable& rows) {
  const Shape shape = rows.shape();
  const int64_t width = shape[1];
  const Tensor half = Tensor::full(shape, 0.5, rows.value().dtype(), rows.device());
  switch ((shape[0] + width) % 6) {
    case 0:
      return scale(sigmoid_focal_loss(rows, classes_like(rows)), 0.01);
    case 1:
      return scale(smooth_l1_loss(rows, half), 0.01);
    case 2:
      return negative_cosine(rows, half);
    case 3: {
      const Tensor queue = Tensor::full({3, width}, 0.25, rows.value().dtype(), rows.device());
      return info_nce(rows, half, queue, 0.5).loss;
    }
    case 4: {
      if (width < 4) break;
      const Variable from = slice(rows, 1, 0, 2);
      const Variable to = add(from, exp(tanh(slice(rows, 1, 2, 4))));
      const Variable boxes = concat({from, to}, 1);
      const Tensor wanted =
          ops::concat({Tensor::full({shape[0], 2}, 0.25, half.dtype(), half.device()),
                       Tensor::full({shape[0], 2}, 1.5, half.dtype(), half.device())},
                      1);
      // coded_giou_loss() compares codes, each seen from the first box, with that box.
      const Tensor first = wanted.slice(0, 0, 1);
      const Tensor matches = Tensor::zeros({shape[0]}, DType::i64, rows.device());
      return scale(add(giou_loss(boxes, wanted), coded_giou_loss(boxes, first, first, matches)),
                   0.1);
    }
    default:
      break;
  }
  return mean(mul(rows, rows));
}

}  // namespace

Variable GraphBuilder::loss() {
  Variable total;
  for (int64_t terms = pick(1, 4); terms > 0; --terms) {
    const Variable x = draw().variable;
    Variable term;
    switch (pick(0, 5)) {
      case 0:
        term = x.shape().dim() > 0 && x.size(-1) > 1 ? judged(reshape(x, {-1, x.size(-1)}))
                                                     : mean(mul(x, x));
        break;
      case 1:
        if (x.shape().dim() >= 2 && x.size(-1) > 1)
          term = is_image(x) && x.size(1) % 2 == 0
                     ? resized_cross_entropy(x, classes_like(x), {}, 2).loss
                     : dice_loss(x, classes_like(x));
        else
          term = mean(x);
        break;
      case 2:
        term = mse_loss(x, Variable(constant(x.shape())));
        break;
      case 3:
        term = mse_loss(tanh(x), partner(x, false).variable);
        break;
      case 4:
        // Both losses without another draw, so that the graphs of all seeds stay the same.
        if (x.shape().dim() > 0 && x.size(-1) % 2 == 0) {
          const double share = 1.0 / static_cast<double>(x.size(-1));
          term = soft_cross_entropy(x, Tensor::full(x.shape(), share, dtype(), device()));
        } else {
          term = binary_cross_entropy(x, Tensor::full(x.shape(), 0.25, dtype(), device()));
        }
        break;
      default: {
        const Variable rows = reshape(x, {-1, x.size(-1)});
        CrossEntropyOptions options;
        options.label_smoothing = chance(50) ? 0.1 : 0;
        options.ignore_index = rows.size(0) > 1 && rows.size(1) > 1 ? rows.size(1) - 1 : -100;
        const Tensor classes = classes_like(rows);
        if (rows.size(0) % 2 == 0) {
          const Tensor weights = Tensor::full({rows.size(1)}, 0.75, dtype(), device());
          if (options.label_smoothing > 0)
            term = cross_entropy(rows, classes, options);
          else if (rows.size(0) % 4 == 0)
            term = weighted_cross_entropy(rows, classes, weights, options);
          else
            term =
                focal_cross_entropy(rows, classes, {.ignore_index = options.ignore_index}, weights);
          break;
        }
        const Variable weight = parameter({rows.size(1) + 1, rows.size(1)});
        const Variable bias = rows.size(1) % 2 == 0 ? parameter({weight.size(0)}) : Variable();
        term =
            linear_cross_entropy(rows, weight, bias, classes, options, 1 + rows.size(0) / 3).loss;
      }
    }
    total = total.defined() ? add(scale(total, 0.5), term) : term;
  }
  return total;
}

RandomGraph::RandomGraph(uint64_t seed, const RandomGraphOptions& options)
    : seed_(seed), options_(options) {
  forward();
}

Variable RandomGraph::leaf(size_t index, const Shape& shape, bool parameter, double limit) {
  if (index == leaves_.size()) {
    CategoryScope scope(parameter ? Category::parameter : Category::input);
    const Tensor value =
        random_values({seed_ + 2, index}, shape, options_.dtype, options_.device, limit);
    leaves_.push_back(parameter ? Variable::parameter(value) : Variable(value, true));
  }
  FRUGAL_CHECK(leaves_.at(index).shape() == shape, "[random_graph] leaf {} is {}, not {}", index,
               leaves_[index].shape(), shape);
  return leaves_[index];
}

Variables RandomGraph::forward(uint64_t batch) {
  rng_.restore({seed_, batch << 32});
  GraphBuilder frame(*this, 0, 0, 0);
  const int64_t graphs = frame.chance(25) ? 2 : 1;
  const Shape image = options_.large ? Shape{frame.pick(5, 9), 16, 16, frame.pick(1, 8)}
                                     : Shape{frame.pick(1, 4), frame.pick(1, 9), frame.pick(1, 9),
                                             frame.pick(1, 9)};
  const Shape rows{frame.pick(2, 17), frame.pick(1, 20)};
  const Variable x = leaf(0, options_.large || frame.chance(75) ? image : rows, false, 1);
  // Saved by an op, the leaf itself is the batch, whose bytes are alive anyway.
  const bool direct = frame.chance(20) && batch == 0;
  Variables roots;
  size_t next = 1;
  for (int64_t i = 0; i < graphs; ++i) {
    GraphBuilder builder(*this, static_cast<uint64_t>(i) + 1, next, 0);
    builder.put(direct ? x : scale(x, 1 + 0.25 * static_cast<double>(batch)), 0);
    for (int64_t steps = builder.pick(5, 30); steps > 0; --steps) builder.step();
    const bool is_loss = builder.chance(75);
    roots.push_back(is_loss ? builder.loss() : builder.last().variable);
    next = builder.next_leaf();
  }
  return roots;
}

namespace {
Tensor projection(const Variable& root) {
  return random_values({4711, 0}, root.shape(), root.dtype(), root.device());
}
}  // namespace

void RandomGraph::backward(Variables roots, BackwardObserver* observer) const {
  // The second first, where the seed is odd.
  if (seed_ % 2 == 1) std::reverse(roots.begin(), roots.end());
  for (Variable& root : roots) {
    const Variable walked = std::exchange(root, {});
    if (walked.producer() != nullptr) frugal::backward(walked, projection(walked), {}, observer);
  }
}

double RandomGraph::value(const Variables& roots) const {
  double total = 0;
  for (const Variable& root : roots) {
    const std::vector<double> y = root.value().to_vector(), dy = projection(root).to_vector();
    for (size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
  }
  return total;
}

Numbers RandomGraph::gradients() const {
  Numbers all;
  for (const Variable& x : leaves_)
    all.push_back(x.grad().defined() ? x.grad().to_vector() : std::vector<double>{});
  return all;
}

void RandomGraph::zero_grad() {
  for (Variable& x : leaves_) x.zero_grad();
}

Tensor random_values(RngKey key, const Shape& shape, DType dtype, Device device, double limit) {
  const Tensor x = Tensor::empty(shape, dtype, device);
  if (device.type == DeviceType::meta) return x;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto value = static_cast<float>(
        limit * (2 * static_cast<double>(uniform(key, static_cast<uint64_t>(i))) - 1));
    if (dtype == DType::f64)
      x.mut<double>()[i] = static_cast<double>(value);
    else
      x.mut<float>()[i] = value;
  }
  return x;
}

}  // namespace frugal
