// Convolutions, pooling and norms over channels. Nodes of ONNX take the channels as axis 1.
#include <algorithm>

#include "export/lowering.h"

namespace frugal::exports {
namespace {

using Op = Lowering::Op;

// [before, before, after, after]
std::vector<int64_t> pads_of(const std::vector<int64_t>& padding) {
  std::vector<int64_t> pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return pads;
}

// x [N, ..., C], weight [K, ..., C / groups]: both get their last axis behind the first.
void convolve(Lowering& l, const Op& op, const char* node, Lowering::Attributes attributes) {
  const int dim = l.dim(op.input(0)), weight = op.input(1);
  std::vector<int64_t> kernel;
  for (int axis = 1; axis < dim - 1; ++axis) kernel.push_back(l.fixed(weight, axis));
  attributes.emplace_back("kernel_shape", kernel);
  std::vector<std::string> inputs{l.in_order(op.input(0), channels_first(dim)),
                                  l.in_order(weight, channels_first(dim))};
  if (op.has(2)) inputs.push_back(l.plain(op.input(2)));
  l.set(op.output(), l.emit(node, std::move(inputs), std::move(attributes)), channels_first(dim));
}

void conv2d(Lowering& l, const Op& op) {
  convolve(l, op, "Conv",
           {{"strides", op.integers("stride")},
            {"pads", pads_of(op.integers("padding"))},
            {"dilations", op.integers("dilation")},
            {"group", op.integer("groups")}});
}

void conv_transpose2d(Lowering& l, const Op& op) {
  convolve(l, op, "ConvTranspose",
           {{"strides", op.integers("stride")},
            {"pads", pads_of(op.integers("padding"))},
            {"output_padding", op.integers("output_padding")},
            {"dilations", op.integers("dilation")},
            {"group", op.integer("groups")}});
}

void conv1d(Lowering& l, const Op& op) {
  convolve(l, op, "Conv",
           {{"strides", std::vector<int64_t>{op.integer("stride")}},
            {"pads", pads_of({op.integer("padding")})},
            {"dilations", std::vector<int64_t>{op.integer("dilation")}},
            {"group", op.integer("groups")}});
}

// Windows of any number of axes.
void conv3d(Lowering& l, const Op& op) { conv2d(l, op); }
void conv_transpose3d(Lowering& l, const Op& op) { conv_transpose2d(l, op); }

// ---- norms

enum NormInput { kX, kWeight, kBias, kResidual, kMean, kVariance };

std::string norm_of(Lowering& l, const Op& op, const Order& order) {
  if (op.integer("training") != 0)
    l.fail("expected evaluation, got a norm by the batch's statistics");
  const int64_t channels = l.fixed(op.input(kX), l.dim(op.input(kX)) - 1);
  const auto or_else = [&](int i, double value) {
    return op.has(i) ? l.plain(op.input(i))
                     : l.initializer("constant", Tensor::full({channels}, value));
  };
  return l.emit("BatchNormalization",
                {l.in_order(op.input(kX), order), or_else(kWeight, 1), or_else(kBias, 0),
                 l.plain(op.input(kMean)), l.plain(op.input(kVariance))},
                // In evaluation no momentum counts. But onnx's ReferenceEvaluator moves the
                // statistics by 1 - momentum before it takes them.
                {{"epsilon", op.number("eps")}, {"momentum", 1.0}});
}

void batch_norm(Lowering& l, const Op& op) {
  const Order order = channels_first(l.dim(op.input(kX)));
  l.set(op.output(), norm_of(l, op, order), order);
}
void batch_norm_relu(Lowering& l, const Op& op) {
  const Order order = channels_first(l.dim(op.input(kX)));
  l.set(op.output(), lower_relu(l, norm_of(l, op, order)), order);
}
void batch_norm_add_relu(Lowering& l, const Op& op) {
  const Order order = channels_first(l.dim(op.input(kX)));
  const std::string y = norm_of(l, op, order);
  l.set(op.output(), lower_relu(l, l.emit("Add", {y, l.in_order(op.input(kResidual), order)})),
        order);
}

void group_norm(Lowering& l, const Op& op) {
  const int x = op.input(0), dim = l.dim(x);
  const Order order = channels_first(dim);
  const int64_t groups = op.integer("groups"), channels = l.fixed(x, dim - 1);
  const std::string in = l.in_order(x, order);
  const std::string rows = l.emit("Reshape", {in, l.ints({0, groups, -1})});
  std::string y = l.emit("InstanceNormalization",
                         {rows, l.initializer("constant", Tensor::ones({groups})),
                          l.initializer("constant", Tensor::zeros({groups}))},
                         {{"epsilon", op.number("eps")}});
  y = l.emit("Reshape", {y, l.emit("Shape", {in})});
  std::vector<int64_t> wide(static_cast<size_t>(dim - 1), 1);
  wide[0] = channels;
  if (op.has(1)) y = l.emit("Mul", {y, l.emit("Reshape", {l.plain(op.input(1)), l.ints(wide)})});
  if (op.has(2)) y = l.emit("Add", {y, l.emit("Reshape", {l.plain(op.input(2)), l.ints(wide)})});
  l.set(op.output(), y, order);
}

// ---- pooling

// A pool over `x` [N, C, H, W] whose padding does not count.
void pool(Lowering& l, const Op& op, const char* node, const std::string& x,
          const std::vector<int64_t>& padding) {
  l.set(op.output(),
        l.emit(node, {x},
               {{"kernel_shape", op.integers("kernel")},
                {"strides", op.integers("stride")},
                {"pads", pads_of(padding)}}),
        channels_first(4));
}
void max_pool2d(Lowering& l, const Op& op) {
  pool(l, op, "MaxPool", l.in_order(op.input(0), channels_first(4)), op.integers("padding"));
}
void avg_pool2d(Lowering& l, const Op& op) {
  std::string x = l.in_order(op.input(0), channels_first(4));
  std::vector<int64_t> padding = op.integers("padding");
  if (op.integer("count_include_pad") != 0 && padding != std::vector<int64_t>{0, 0}) {
    // OpenCV passes over count_include_pad, so what counts is in the picture.
    const int64_t h = padding[0], w = padding[1];
    x = l.emit("Pad", {x, l.ints({0, 0, h, w, 0, 0, h, w}), l.scalar(0)},
               {{"mode", std::string("constant")}});
    padding = {0, 0};
  }
  pool(l, op, "AveragePool", x, padding);
}

// [out, in]: what each output takes of each input, along one axis.
Tensor shares(int64_t in, int64_t out) {
  const Tensor all = Tensor::zeros({out, in});
  auto* values = all.mut<float>();
  for (int64_t o = 0; o < out; ++o) {
    const int64_t begin = o * in / out, end = ((o + 1) * in + out - 1) / out;
    for (int64_t i = begin; i < end; ++i) values[o * in + i] = 1 / static_cast<float>(end - begin);
  }
  return all;
}

void adaptive_avg_pool2d(Lowering& l, const Op& op) {
  const int x = op.input(0);
  const Order order = channels_first(4);
  const int64_t h = l.fixed(x, 1), w = l.fixed(x, 2);
  const int64_t out_h = l.fixed(op.output(), 1), out_w = l.fixed(op.output(), 2);
  std::string y = l.in_order(x, order);
  if (h == out_h && w == out_w) {
    // every output is its input
  } else if (h % out_h == 0 && w % out_w == 0) {
    const std::vector<int64_t> kernel{h / out_h, w / out_w};
    y = l.emit("AveragePool", {y}, {{"kernel_shape", kernel}, {"strides", kernel}});
  } else if (out_h % h == 0 && out_w % w == 0) {
    const auto times = [](int64_t out, int64_t in) {
      return static_cast<float>(out) / static_cast<float>(in);
    };
    const Tensor scales =
        Tensor::from(std::vector<float>{1, 1, times(out_h, h), times(out_w, w)}, {4});
    y = l.emit("Resize", {y, "", l.initializer("scales", scales)},
               {{"mode", std::string("nearest")},
                {"coordinate_transformation_mode", std::string("asymmetric")},
                {"nearest_mode", std::string("floor")}});
  } else {
    // A matrix for each axis, from the right: OpenCV reads no constant on the left.
    const auto averaged = [&](int64_t in, int64_t out) {
      y = l.emit("MatMul", {y, l.initializer("shares", shares(in, out).transpose(0, 1))});
    };
    const auto turn = [&] {
      y = l.emit("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    };
    averaged(w, out_w);
    turn();
    averaged(h, out_h);
    turn();
  }
  l.set(op.output(), y, order);
}

// The maxima over the parts of one axis.
std::string largest_parts(Lowering& l, const std::string& x, int64_t axis, int64_t in,
                          int64_t out) {
  if (in == out) return x;
  std::vector<std::string> parts;
  for (int64_t o = 0; o < out; ++o) {
    const int64_t begin = o * in / out, end = ((o + 1) * in + out - 1) / out;
    parts.push_back(l.emit("ReduceMax", {l.slice(x, {begin}, {end}, {axis}, {})},
                           {{"axes", std::vector<int64_t>{axis}}, {"keepdims", int64_t{1}}}));
  }
  return parts.size() == 1 ? parts[0] : l.emit("Concat", parts, {{"axis", axis}});
}

void adaptive_max_pool2d(Lowering& l, const Op& op) {
  const int x = op.input(0);
  std::string y = l.in_order(x, channels_first(4));
  y = largest_parts(l, y, 2, l.fixed(x, 1), l.fixed(op.output(), 1));
  y = largest_parts(l, y, 3, l.fixed(x, 2), l.fixed(op.output(), 2));
  l.set(op.output(), y, channels_first(4));
}

void global_avg_pool2d(Lowering& l, const Op& op) {
  const int x = op.input(0);
  if (l.order_of(x) == natural(4)) {
    l.set(op.output(), l.emit("ReduceMean", {l.plain(x)},
                              {{"axes", std::vector<int64_t>{1, 2}}, {"keepdims", int64_t{0}}}));
    return;
  }
  const std::string y = l.emit("GlobalAveragePool", {l.in_order(x, channels_first(4))});
  l.set(op.output(), l.emit("Flatten", {y}, {{"axis", int64_t{1}}}));
}

// Pixels by their indices, where no scale says exactly which pixel is the nearest.
std::string nearest_pixels(Lowering& l, std::string x, int axis, int64_t in, int64_t out) {
  std::vector<int64_t> from;
  for (int64_t i = 0; i < out; ++i) from.push_back(i * in / out);
  return l.emit("Gather", {std::move(x), l.ints(from)}, {{"axis", static_cast<int64_t>(axis)}});
}

void interpolate(Lowering& l, const Op& op) {
  const int x = op.input(0);
  const int64_t h = l.fixed(x, 1), w = l.fixed(x, 2);
  const int64_t out_h = l.fixed(op.output(), 1), out_w = l.fixed(op.output(), 2);
  std::string y = l.in_order(x, channels_first(4));
  const bool bilinear = op.integer("bilinear") != 0;
  if (!bilinear && (out_h % h != 0 || out_w % w != 0)) {
    y = nearest_pixels(l, nearest_pixels(l, y, 2, h, out_h), 3, w, out_w);
    l.set(op.output(), y, channels_first(4));
    return;
  }
  // Readers round in * scale down, so a scale is not below the quotient.
  const auto times = [](int64_t out, int64_t in) {
    const auto scale = static_cast<float>(static_cast<double>(out) / static_cast<double>(in));
    const double product = static_cast<double>(scale) * static_cast<double>(in);
    return product < static_cast<double>(out) ? std::nextafter(scale, 2 * scale) : scale;
  };
  const Tensor scales =
      Tensor::from(std::vector<float>{1, 1, times(out_h, h), times(out_w, w)}, {4});
  Lowering::Attributes attributes = {
      {"mode", std::string(bilinear ? "linear" : "nearest")},
      {"coordinate_transformation_mode",
       std::string(!bilinear                          ? "asymmetric"
                   : op.integer("align_corners") != 0 ? "align_corners"
                                                      : "half_pixel")}};
  if (!bilinear) attributes.emplace_back("nearest_mode", std::string("floor"));
  y = l.emit("Resize", {y, "", l.initializer("scales", scales)}, std::move(attributes));
  l.set(op.output(), y, channels_first(4));
}

void subsample_pad(Lowering& l, const Op& op) {
  constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();
  const int64_t stride = op.integer("stride"), before = op.integer("before"),
                after = op.integer("after");
  std::string y = l.in_order(op.input(0), channels_first(4));
  if (stride > 1) y = l.slice(y, {0, 0}, {kToTheEnd, kToTheEnd}, {2, 3}, {stride, stride});
  if (before + after > 0)
    y = l.emit("Pad", {y, l.ints({0, before, 0, 0, 0, after, 0, 0}), l.scalar(0)},
               {{"mode", std::string("constant")}});
  l.set(op.output(), y, channels_first(4));
}

}  // namespace

const LowerTable& image_lowerings() {
  static const LowerTable table = {
      {"conv2d", conv2d},
      {"conv_transpose2d", conv_transpose2d},
      {"conv1d", conv1d},
      {"conv3d", conv3d},
      {"conv_transpose3d", conv_transpose3d},
      {"batch_norm", batch_norm},
      {"batch_norm_relu", batch_norm_relu},
      {"batch_norm_add_relu", batch_norm_add_relu},
      {"group_norm", group_norm},
      {"max_pool2d", max_pool2d},
      {"avg_pool2d", avg_pool2d},
      {"adaptive_avg_pool2d", adaptive_avg_pool2d},
      {"adaptive_max_pool2d", adaptive_max_pool2d},
      {"global_avg_pool2d", global_avg_pool2d},
      {"interpolate", interpolate},
      {"subsample_pad", subsample_pad},
  };
  return table;
}

}  // namespace frugal::exports
