#include "ops/conv2d.h"

#include "ops/checks.h"
#include "ops/conv2d_reference.h"
#include "ops/copy.h"
#include "ops/onednn.h"

namespace frugal::ops {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;
using onednn::Desc;
using onednn::Tag;

// One convolution in oneDNN's terms: extents as NCHW and [G,] K, C, R, S, layouts as ours.
struct Problem {
  std::vector<int64_t> x, w, y, strides, dilates, padding, padding_after;
  bool grouped = false;

  Problem(const Shape& xs, const Shape& ws, const Shape& ys, const Conv2dOptions& o)
      : x{xs[0], xs[3], xs[1], xs[2]},
        w{ws[0], ws[3], ws[1], ws[2]},
        y{ys[0], ys[3], ys[1], ys[2]},
        strides{o.stride[0], o.stride[1]},
        dilates{o.dilation[0] - 1, o.dilation[1] - 1},
        padding{o.padding[0], o.padding[1]},
        grouped(o.groups > 1) {
    if (grouped) {
      w[0] /= o.groups;
      w.insert(w.begin(), o.groups);
    }
    // What the last window leaves over is cut off: a smaller padding after.
    for (size_t i = 0; i < 2; ++i) {
      const int64_t window = o.dilation[i] * (ws[static_cast<int>(i) + 1] - 1) + 1;
      padding_after.push_back((ys[static_cast<int>(i) + 1] - 1) * o.stride[i] + window -
                              xs[static_cast<int>(i) + 1] - o.padding[i]);
    }
  }

  Desc x_desc() const { return onednn::desc(x, Tag::nhwc); }
  Desc y_desc() const { return onednn::desc(y, Tag::nhwc); }
  Desc w_desc() const { return onednn::desc(w, grouped ? Tag::gohwi : Tag::ohwi); }
  Desc w_any() const { return onednn::desc(w, Tag::any); }
  Desc bias_desc() const { return onednn::desc({y[1]}, Tag::a); }

  std::string key(const char* pass, bool bias) const {
    return fmt::format("{}{} {} {} {} {} {} {} {}", pass, bias ? "+bias" : "", fmt::join(x, ","),
                       fmt::join(w, ","), fmt::join(y, ","), fmt::join(strides, ","),
                       fmt::join(dilates, ","), fmt::join(padding, ","),
                       fmt::join(padding_after, ","));
  }

  dnnl::convolution_forward::primitive_desc forward(bool bias) const {
    using P = dnnl::convolution_forward;
    // Training and inference propagation differ in nothing for convolutions.
    if (bias)
      return onednn::describe_primitive<P>(
          prop_kind::forward_training, algorithm::convolution_direct, x_desc(), w_any(),
          bias_desc(), y_desc(), strides, dilates, padding, padding_after);
    return onednn::describe_primitive<P>(prop_kind::forward_training, algorithm::convolution_direct,
                                         x_desc(), w_any(), y_desc(), strides, dilates, padding,
                                         padding_after);
  }
};

}  // namespace

void conv2d_kernel(Cpu, const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const Conv2dOptions& o) {
  if (y.numel() == 0) return;
  if (x.dtype() == DType::f64) return reference::conv2d<double>(y, x, weight, bias, o);
  onednn::guarded("conv2d", [&] {
    const Problem p(x.shape(), weight.shape(), y.shape(), o);
    const bool with_bias = bias.defined();
    const onednn::Plan& plan = onednn::cached_plan(p.key("conv", with_bias), [&] {
      const auto pd = p.forward(with_bias);
      return onednn::Plan{dnnl::convolution_forward(pd),
                          pd.scratchpad_desc(),
                          {{DNNL_ARG_WEIGHTS, pd.weights_desc()}}};
    });
    const onednn::Argument in{DNNL_ARG_SRC, x.raw(), p.x_desc()};
    const onednn::Argument w{DNNL_ARG_WEIGHTS, weight.raw(), p.w_desc()};
    const onednn::Argument out{DNNL_ARG_DST, y.raw(), p.y_desc()};
    if (with_bias)
      onednn::execute(plan, {in, w, {DNNL_ARG_BIAS, bias.raw(), p.bias_desc()}}, {out});
    else
      onednn::execute(plan, {in, w}, {out});
  });
}

void conv2d_backward_input_kernel(Cpu, const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                  const Conv2dOptions& o) {
  if (dx.numel() == 0) return;
  if (dy.dtype() == DType::f64) return reference::conv2d_backward_input<double>(dx, dy, weight, o);
  onednn::guarded("conv2d backward", [&] {
    const Problem p(dx.shape(), weight.shape(), dy.shape(), o);
    const onednn::Plan& plan = onednn::cached_plan(p.key("conv dx", false), [&] {
      using P = dnnl::convolution_backward_data;
      const auto pd = onednn::describe_backward<P>(p.forward(false), algorithm::convolution_direct,
                                                   p.x_desc(), p.w_any(), p.y_desc(), p.strides,
                                                   p.dilates, p.padding, p.padding_after);
      return onednn::Plan{P(pd), pd.scratchpad_desc(), {{DNNL_ARG_WEIGHTS, pd.weights_desc()}}};
    });
    onednn::execute(
        plan,
        {{DNNL_ARG_DIFF_DST, dy.raw(), p.y_desc()}, {DNNL_ARG_WEIGHTS, weight.raw(), p.w_desc()}},
        {{DNNL_ARG_DIFF_SRC, dx.raw(), p.x_desc()}});
  });
}

void conv2d_backward_weight_kernel(Cpu, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                   const Conv2dOptions& o) {
  if (dweight.numel() == 0) return;
  if (dy.numel() == 0) return fill_kernel(Cpu{}, dweight, 0);
  if (dy.dtype() == DType::f64) return reference::conv2d_backward_weight<double>(dweight, dy, x, o);
  onednn::guarded("conv2d backward", [&] {
    const Problem p(x.shape(), dweight.shape(), dy.shape(), o);
    const onednn::Plan& plan = onednn::cached_plan(p.key("conv dw", false), [&] {
      using P = dnnl::convolution_backward_weights;
      const auto pd = onednn::describe_backward<P>(p.forward(false), algorithm::convolution_direct,
                                                   p.x_desc(), p.w_any(), p.y_desc(), p.strides,
                                                   p.dilates, p.padding, p.padding_after);
      return onednn::Plan{
          P(pd), pd.scratchpad_desc(), {{DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}}};
    });
    onednn::execute(
        plan, {{DNNL_ARG_SRC, x.raw(), p.x_desc()}, {DNNL_ARG_DIFF_DST, dy.raw(), p.y_desc()}},
        {{DNNL_ARG_DIFF_WEIGHTS, dweight.raw(), p.w_desc()}});
  });
}

Shape conv2d_shape(const char* op, const Shape& x, const Shape& weight, const Conv2dOptions& o) {
  FRUGAL_CHECK(o.groups >= 1 && o.stride[0] >= 1 && o.stride[1] >= 1 && o.dilation[0] >= 1 &&
                   o.dilation[1] >= 1 && o.padding[0] >= 0 && o.padding[1] >= 0,
               "[{}] expected groups, strides and dilations of at least 1 and padding of at least "
               "0, got groups {}, stride {}x{}, dilation {}x{}, padding {}x{}",
               op, o.groups, o.stride[0], o.stride[1], o.dilation[0], o.dilation[1], o.padding[0],
               o.padding[1]);
  FRUGAL_CHECK(x[3] == weight[3] * o.groups && weight[0] % o.groups == 0,
               "[{}] expected a weight [K, R, S, C/groups] for {} channels and {} groups, got {}",
               op, x[3], o.groups, weight);
  FRUGAL_CHECK(weight[1] >= 1 && weight[2] >= 1, "[{}] expected a window of at least 1x1, got {}",
               op, weight);
  Shape y{x[0], 0, 0, weight[0]};
  for (int axis = 1; axis <= 2; ++axis) {
    const auto i = static_cast<size_t>(axis - 1);
    const int64_t room = x[axis] + 2 * o.padding[i] - o.dilation[i] * (weight[axis] - 1) - 1;
    FRUGAL_CHECK(room >= 0, "[{}] expected a window within the padded image, got {} over {}", op,
                 weight, x);
    y[axis] = room / o.stride[i] + 1;
  }
  return y;
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  check_dim("conv2d", "x", x, 4);
  check_dim("conv2d", "weight", weight, 4);
  check_real("conv2d", "x", x);
  check_same("conv2d", x, {&weight, &bias});
  const Shape shape = conv2d_shape("conv2d", x.shape(), weight.shape(), options);
  if (bias.defined()) check_shape("conv2d", "bias", bias, {weight.shape()[0]});
  const Tensor in = contiguous(x), w = contiguous(weight);
  const Tensor b = bias.defined() ? contiguous(bias) : bias;
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { conv2d_kernel(backend, y, in, w, b, options); });
  return y;
}

Tensor conv2d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                             const Conv2dOptions& options) {
  check_shape("conv2d backward", "dy", dy,
              conv2d_shape("conv2d backward", x_shape, weight.shape(), options));
  const Tensor gradient = contiguous(dy), w = contiguous(weight);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  dispatch(dy.device(),
           [&](auto backend) { conv2d_backward_input_kernel(backend, dx, gradient, w, options); });
  return dx;
}

Tensor conv2d_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                              const Conv2dOptions& options) {
  check_shape("conv2d backward", "dy", dy,
              conv2d_shape("conv2d backward", x.shape(), weight_shape, options));
  const Tensor gradient = contiguous(dy), in = contiguous(x);
  Tensor dweight = Tensor::empty(weight_shape, dy.dtype(), dy.device());
  dispatch(dy.device(), [&](auto backend) {
    conv2d_backward_weight_kernel(backend, dweight, gradient, in, options);
  });
  return dweight;
}

}  // namespace frugal::ops
