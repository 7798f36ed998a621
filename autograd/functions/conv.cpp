#include <algorithm>
#include <numeric>

#include "autograd/functions/conv.h"
#include "autograd/node.h"
#include "autograd/trace.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/dense/matmul.h"
#include "ops/image/conv2d.h"
#include "ops/image/conv_transpose2d.h"

namespace frugal {
namespace {

// The number of elements that a window of the weight [K, R, S, C/groups] reaches, and the number of
// windows that reach one element.
double window(const Shape& weight) { return static_cast<double>(weight[1] * weight[2]); }
double area(const Pair& stride) { return static_cast<double>(stride[0] * stride[1]); }

// Does a 1x1 window leave out so many pixels of x that their gradient of 0 should not be stored?
bool meets_few_pixels(const Shape& weight, const Conv2dOptions& o) {
  return weight[1] == 1 && weight[2] == 1 && o.padding == Pair{0, 0} && area(o.stride) >= 4;
}

// The pixels of x, as [N, OH, OW, C], that such a window meets. y: the shape of its output.
Tensor met_pixels(const Tensor& x, const Shape& y, const Pair& stride) {
  const Shape& s = x.strides();
  return x.as_strided({y[0], y[1], y[2], x.size(3)},
                      {s[0], s[1] * stride[0], s[2] * stride[1], s[3]}, x.offset());
}

// The gradient at these pixels. Windows of stride 1 over them meet all of them.
Tensor gradient_at_met_pixels(const Tensor& dy, const Tensor& weight, Conv2dOptions options) {
  const Shape& y = dy.shape();
  options.stride = {1, 1};
  Tensor met =
      Tensor::empty({y[0], y[1], y[2], weight.size(3) * options.groups}, dy.dtype(), dy.device());
  ops::conv2d_backward_input_into(met, dy, weight, options);
  return met;
}

// The gradient of an input of shape x_shape that is `met` [N, OH, OW, C] at every stride-th pixel
// and 0 elsewhere. `met` comes in parts of `step` items.
Gradient at_met_pixels(std::vector<Tensor> met, const Shape& x_shape, int64_t step,
                       const Pair& stride) {
  return {x_shape, step, std::move(met), [stride](const Tensor& part, const Tensor& out) {
            ops::fill(out, 0);
            ops::copy_into(met_pixels(out, part.shape(), stride), part);
          }};
}

// From so many slices on, an x is large: memory counts more than a second run of the kernel.
constexpr int64_t kManySlices = 32;

// The gradients of the weight and of the bias, which are sums over the batch. They have one order,
// whether x and dy come in slices or are whole.
class ParameterSums {
 public:
  ParameterSums(const Backward& b, const Shape& w_shape, const Conv2dOptions& options)
      : of_weight_(b.needs(1)), of_bias_(b.needs(2)), w_shape_(w_shape), options_(options) {}
  // x_of() gives the items of x that belong to dy.
  template <class F>
  void add(const Tensor& dy, F x_of) {
    if (of_weight_ && weight.defined())
      ops::add_conv2d_backward_weight(weight, dy, x_of(), options_);
    else if (of_weight_)
      weight = ops::conv2d_backward_weight(dy, x_of(), w_shape_, options_);
    if (!of_bias_) return;
    const Tensor sum = ops::linear_backward_bias(dy);
    if (bias.defined())
      ops::accumulate(bias, sum);
    else
      bias = sum;
  }

  Tensor weight, bias;

 private:
  bool of_weight_, of_bias_;
  const Shape& w_shape_;
  const Conv2dOptions& options_;
};

// Computes the gradients slice by slice of the batch, so that x is never whole. dx is added to the
// gradient that x has from other consumers, or is written over dy, or goes to a tensor of its own.
// Two kinds of dx are made when they are asked for: the one that is 0 at most pixels, and a large
// one that is much larger than dy. The norm that takes the latter asks for it twice. A dx of its
// own is made after the gradient of the weight, so that it is not there together with what slices
// of x are rebuilt from.
Grads backward_by_slices(const Backward& b, int64_t step, const Shape& x_shape,
                         const Shape& w_shape, const Conv2dOptions& options) {
  Grads grads(3);
  const int64_t n = x_shape[0];
  Gradient dy = b.take_gradient();
  const Tensor weight = b.saved(1), partial = b.partial(0);
  const bool whole = dy.is_whole();
  const bool own = b.needs(0) && !partial.defined();  // has x no gradient yet?
  const bool over_dy = own && x_shape == dy.shape() && whole && is_sole_owner(dy.whole());
  const bool of_few = own && meets_few_pixels(w_shape, options);
  const bool apart = own && !of_few && !over_dy && whole;
  const bool later = apart && n >= kManySlices * step &&
                     x_shape.numel() >= 2 * dy.shape().numel() && runs_as_cpu(dy.device());
  ParameterSums sums(b, w_shape, options);
  Tensor dx;
  std::vector<Tensor> met;
  const auto make_dx = [&] { dx = Tensor::empty(x_shape, dy.dtype(), dy.device()); };
  if (over_dy)
    dx = dy.whole();
  else if (own && !of_few && !apart)
    make_dx();
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t end = std::min(n, begin + step);
    const Tensor part = dy.rows(begin, end);
    sums.add(part, [&] { return b.saved_rows(0, begin, end, n); });
    if (!b.needs(0) || apart) continue;
    if (of_few) {
      met.push_back(gradient_at_met_pixels(part, weight, options));
      continue;
    }
    if (own && !over_dy) {
      ops::conv2d_backward_input_into(dx.slice(0, begin, end), part, weight, options);
      continue;
    }
    Shape shape = x_shape;
    shape[0] = end - begin;
    CategoryScope scope(Category::workspace);
    if (over_dy)
      ops::copy_into(part, ops::conv2d_backward_input(part, weight, shape, options));
    else
      ops::add_conv2d_backward_input(partial.slice(0, begin, end), part, weight, options);
  }
  if (over_dy) dx.bump_version();
  grads[1] = sums.weight;
  grads[2] = sums.bias;
  if (apart && !later) {
    make_dx();
    for (int64_t begin = 0; begin < n; begin += step) {
      const int64_t end = std::min(n, begin + step);
      ops::conv2d_backward_input_into(dx.slice(0, begin, end), dy.rows(begin, end), weight,
                                      options);
    }
  }
  if (of_few) {
    grads[0] = at_met_pixels(std::move(met), x_shape, step, options.stride);
  } else if (later) {
    // The weight may be updated before the gradient is asked for (optim.in_backward).
    grads[0] =
        Gradient(x_shape, dy.whole(), step,
                 [whole = dy.whole(), w = ops::clone(weight), options](int64_t begin, int64_t end,
                                                                       const Tensor& out) {
                   ops::conv2d_backward_input_into(out, whole.slice(0, begin, end), w, options);
                 });
  } else {
    grads[0] = dx;
  }
  return grads;
}

// The gradient of an x that was kept whole. It is made by the kernels that make it where x comes in
// slices, of as many items at once, so that it has the same bits.
Gradient input_gradient(const Backward& b, int64_t step, const Shape& x_shape,
                        const Conv2dOptions& options) {
  const Tensor dy = b.dy(), weight = b.saved(1), partial = b.partial(0);
  const int64_t n = x_shape[0];
  const bool of_few = n > 0 && !partial.defined() && meets_few_pixels(weight.shape(), options);
  Tensor dx;
  if (!of_few && !partial.defined()) dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  std::vector<Tensor> met;
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t end = std::min(n, begin + step);
    const Tensor part = dy.slice(0, begin, end);
    if (of_few)
      met.push_back(gradient_at_met_pixels(part, weight, options));
    else if (partial.defined())
      ops::add_conv2d_backward_input(partial.slice(0, begin, end), part, weight, options);
    else
      ops::conv2d_backward_input_into(dx.slice(0, begin, end), part, weight, options);
  }
  if (of_few) return at_met_pixels(std::move(met), x_shape, step, options.stride);
  return dx;
}

Grads backward(const Backward& b, const Shape& x_shape, const Shape& w_shape,
               const Conv2dOptions& options) {
  const int64_t n = x_shape[0];
  int64_t step = std::max<int64_t>(n, 1);
  if (b.needs(1) && n > 0) {
    const int64_t larger = std::max(x_shape.numel(), b.dy_shape().numel());
    const int64_t bytes = larger / n * static_cast<int64_t>(size_of(b.dtype()));
    // If x is rebuilt through masks, a slice must hold whole bytes of eight rows.
    const int64_t unit = 8 / std::gcd<int64_t>(8, x_shape[1] * x_shape[2]);
    step = b.sum_items(0, bytes, unit);
    if (b.slice_items(0, bytes, unit) < n)
      return backward_by_slices(b, step, x_shape, w_shape, options);
  }
  Grads grads(3);
  // The sums come first, so that x is released before dx is made.
  {
    ParameterSums sums(b, w_shape, options);
    const Tensor dy = b.dy(), x = b.needs(1) ? b.saved(0) : Tensor();
    int64_t begin = 0;
    do {  // also for a batch of no items
      const int64_t end = std::min(n, begin + step);
      sums.add(dy.slice(0, begin, end), [&] { return x.slice(0, begin, end); });
      begin += step;
    } while (begin < n);
    grads[1] = sums.weight;
    grads[2] = sums.bias;
  }
  if (b.needs(0)) grads[0] = input_gradient(b, step, x_shape, options);
  return grads;
}

Save save_input(const Conv2dCall& call) {
  const Shape& w = call.weight.shape();
  const Use use = Use::product({.input = 1,
                                .gain = window(w) / area(call.options.stride),
                                .fan = window(w) * static_cast<double>(w[3])});
  return save_if(call.weight.requires_grad(), call.x).with_use(use);
}

Variable record_with(const Conv2dCall& call, const Save& input, Tensor y) {
  const auto& [x, weight, bias, options] = call;
  const auto describe = [&options = options](TracedOp& t) {
    t.set("stride", options.stride);
    t.set("padding", options.padding);
    t.set("dilation", options.dilation);
    t.set("groups", options.groups);
  };
  return record({"conv2d", describe}, {x, weight, bias}, std::move(y),
                {input, save_if(x.requires_grad(), weight)},
                [x_shape = x.shape(), w_shape = weight.shape(), options = options](
                    const Backward& b) { return backward(b, x_shape, w_shape, options); });
}

// From so many bytes on, an x is large: memory counts more than a copy of some pixels.
constexpr int64_t kLarge = 2 * SavePolicy::kSliceBytes;

// Is y made of a copy of the pixels that the window meets? Shapes alone decide it, so y has the
// same bits however x is kept. CUDA does not take part: its kernels read x as it is.
bool copies_met_pixels(const Conv2dCall& call) {
  const Variable& x = call.x;
  return x.value().nbytes() >= kLarge && x.value().dim() == 4 && call.weight.value().dim() == 4 &&
         meets_few_pixels(call.weight.shape(), call.options) && runs_as_cpu(x.device());
}

// May x be released before y is made of the copy? The caller has moved it in.
bool may_release(const Variable& x) {
  return x.is_sole_handle() && is_sole_owner(x.value()) && x.accumulator() == nullptr &&
         active_trace() == nullptr;
}

}  // namespace

Tensor without_values(const Shape& shape, DType dtype, Device device) {
  CategoryScope scope(Category::workspace);
  Shape strides = shape;
  for (int axis = 0; axis < strides.dim(); ++axis) strides[axis] = 0;
  return Tensor::empty({1}, dtype, device).as_strided(shape, strides, 0);
}

Variable record_conv2d(const Conv2dCall& call, Tensor y) {
  return record_with(call, save_input(call), std::move(y));
}

Variable conv2d(Variable x, const Variable& weight, const Variable& bias,
                const Conv2dOptions& options) {
  Conv2dCall call{std::move(x), weight, bias, options};
  const Tensor w = weight.value(), b = bias.defined() ? bias.value() : Tensor();
  if (!copies_met_pixels(call))
    return record_conv2d(call, ops::conv2d(call.x.value(), w, b, options));
  const Shape x_shape = call.x.shape(),
              y = ops::conv2d_shape("conv2d", x_shape, w.shape(), options);
  const auto copy_met_pixels = [&] {
    CategoryScope scope(Category::workspace);
    return ops::contiguous(met_pixels(call.x.value(), y, options.stride));
  };
  Conv2dOptions dense = options;
  dense.stride = {1, 1};
  if (!may_release(call.x)) return record_conv2d(call, ops::conv2d(copy_met_pixels(), w, b, dense));
  // What is kept for backward is decided while x is there.
  Save input = save_input(call);
  if (recording({call.x, weight, bias})) input.kept = keep("conv2d", 0, input);
  input.value = {};
  Tensor met = copy_met_pixels();
  if (!input.kept.is_raw())
    call.x = make_output(without_values(x_shape, met.dtype(), met.device()), call.x.producer());
  Tensor out = ops::conv2d(met, w, b, dense);
  met = {};
  return record_with(call, input, std::move(out));
}

Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose2dOptions& options) {
  Tensor y = ops::conv_transpose2d(x.value(), weight.value(),
                                   bias.defined() ? bias.value() : Tensor(), options);
  // x and dy have the roles of each other in a convolution.
  const Shape& w = weight.shape();
  const Use use = Use::product(
      {.input = 1,
       .gain = window(w),
       .fan = window(w) / area(options.stride) * static_cast<double>(w[0] / options.groups)});
  const auto describe = [&](TracedOp& t) {
    t.set("stride", options.stride);
    t.set("padding", options.padding);
    t.set("output_padding", options.output_padding);
    t.set("dilation", options.dilation);
    t.set("groups", options.groups);
  };
  return record(
      {"conv_transpose2d", describe}, {x, weight, bias}, y,
      {save_if(weight.requires_grad(), x).with_use(use), save_if(x.requires_grad(), weight)},
      [x_shape = x.shape(), w_shape = weight.shape(), options](const Backward& b) {
        Grads grads(3);
        if (b.needs(0))
          grads[0] = ops::conv_transpose2d_backward_input(b.dy(), b.saved(1), x_shape, options);
        if (b.needs(1))
          grads[1] = ops::conv_transpose2d_backward_weight(b.dy(), b.saved(0), w_shape, options);
        if (b.needs(2)) grads[2] = ops::linear_backward_bias(b.dy());
        return grads;
      });
}

}  // namespace frugal
