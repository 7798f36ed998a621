#include "ops/image/conv2d.h"

#include <algorithm>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/dense/matmul.h"
#include "ops/f32_blocks.h"
#include "ops/image/conv2d_reference.h"
#include "ops/kernel_memory.h"
#include "ops/onednn.h"

namespace frugal::ops {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;
using onednn::Desc;
using onednn::Direction;
using onednn::Tag;

constexpr const char* kConv2dBackward = "conv2d backward";

// Whether the name of an implementation is one of oneDNN's batch-reduced matrix kernels.
bool is_matrix_kernel(const std::string& name) { return name.starts_with("brg"); }

// A convolution in oneDNN's terms: extents as NCHW and [G,] K, C, R, S, with our layouts.
struct Problem {
  std::vector<int64_t> x, w, y, strides, dilates, padding, padding_after;
  bool grouped = false;
  DType dtype;  // x and y have it; weight, bias and gradients of the weight are f32

  Problem(const Shape& xs, const Shape& ws, const Shape& ys, const Conv2dOptions& o, DType type)
      : x{xs[0], xs[3], xs[1], xs[2]},
        w{ws[0], ws[3], ws[1], ws[2]},
        y{ys[0], ys[3], ys[1], ys[2]},
        strides{o.stride[0], o.stride[1]},
        dilates{o.dilation[0] - 1, o.dilation[1] - 1},
        padding{o.padding[0], o.padding[1]},
        grouped(o.groups > 1),
        dtype(type) {
    if (grouped) {
      w[0] /= o.groups;
      w.insert(w.begin(), o.groups);
    }
    // Rows and columns that no whole window covers are cut off: the padding after the image gets
    // smaller.
    for (size_t i = 0; i < 2; ++i) {
      const int64_t window = o.dilation[i] * (ws[static_cast<int>(i) + 1] - 1) + 1;
      padding_after.push_back((ys[static_cast<int>(i) + 1] - 1) * o.stride[i] + window -
                              xs[static_cast<int>(i) + 1] - o.padding[i]);
    }
  }

  // oneDNN cuts off less than a stride. A dilated transposed convolution with output padding may
  // need more; then plain loops run.
  bool takes_loops() const {
    return padding_after[0] <= -strides[0] || padding_after[1] <= -strides[1];
  }

  Desc x_desc() const { return onednn::desc(x, Tag::nhwc, dtype); }
  Desc y_desc() const { return onednn::desc(y, Tag::nhwc, dtype); }
  Desc w_desc() const { return onednn::desc(w, grouped ? Tag::gohwi : Tag::ohwi); }
  Desc w_any(DType type) const { return onednn::desc(w, Tag::any, type); }
  Desc bias_desc() const { return onednn::desc({y[1]}, Tag::a); }

  std::string key(const char* pass, bool bias) const {
    return fmt::format("{}{} {} {} {} {} {} {} {} {}", pass, bias ? "+bias" : "", name_of(dtype),
                       fmt::join(x, ","), fmt::join(w, ","), fmt::join(y, ","),
                       fmt::join(strides, ","), fmt::join(dilates, ","), fmt::join(padding, ","),
                       fmt::join(padding_after, ","));
  }

  dnnl::convolution_forward::primitive_desc forward(
      bool bias, const dnnl::primitive_attr& attr = onednn::user_scratchpad()) const {
    using P = dnnl::convolution_forward;
    // Measured: a matrix kernel that is one register wide is up to 2.5 times slower than the direct
    // kernel.
    onednn::Wanted wanted;
    if (!grouped && y[1] <= 16 && dtype == DType::f32)
      wanted = [](const std::string& name) { return name.starts_with("jit"); };
    // With a stride, oneDNN 2.6's matrix kernel for AMX gives wrong numbers where several threads
    // share an image (findings/onednn_amx_stride.sh). Its direct kernel for AMX is as fast.
    if (dtype == DType::bf16 && (strides[0] > 1 || strides[1] > 1))
      wanted = [](const std::string& name) {
        return !name.starts_with("brgconv:") || name.find("amx") == std::string::npos;
      };
    // For convolutions, training and inference propagation are the same.
    if (bias)
      return onednn::describe_with<P>(
          attr, wanted, prop_kind::forward_training, algorithm::convolution_direct, x_desc(),
          w_any(dtype), bias_desc(), y_desc(), strides, dilates, padding, padding_after);
    return onednn::describe_with<P>(attr, wanted, prop_kind::forward_training,
                                    algorithm::convolution_direct, x_desc(), w_any(dtype), y_desc(),
                                    strides, dilates, padding, padding_after);
  }

  template <class P>
  typename P::primitive_desc backward() const {
    const bool of_weight = std::is_same_v<P, dnnl::convolution_backward_weights>;
    return onednn::describe_backward<P>(forward(false), algorithm::convolution_direct, x_desc(),
                                        w_any(of_weight ? DType::f32 : dtype), y_desc(), strides,
                                        dilates, padding, padding_after);
  }
};

// The convolution from dy to dx. Without strides and groups, the gradient of the input is a forward
// convolution with channels swapped and the window rotated by 180 degrees.
std::optional<Problem> adjoint_of(const Problem& p) {
  if (p.grouped || p.strides[0] != 1 || p.strides[1] != 1) return std::nullopt;
  Problem a = p;
  std::swap(a.x, a.y);
  std::swap(a.w[0], a.w[1]);
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = (p.dilates[i] + 1) * (p.w[2 + i] - 1);
    a.padding[i] = reach - p.padding[i];
    a.padding_after[i] = reach - p.padding_after[i];
    if (a.padding[i] < 0 || a.padding_after[i] < 0) return std::nullopt;
  }
  return a;
}

// A plan that reads dy as DNNL_ARG_SRC and writes dx as DNNL_ARG_DST, if that is faster. oneDNN 2
// has matrix kernels only for forward convolutions; from 32 channels on they are almost twice as
// fast.
std::optional<onednn::Plan> adjoint_plan(
    const Problem& p, const std::string& backward_name,
    const dnnl::primitive_attr& attr = onednn::user_scratchpad()) {
  if (p.dtype != DType::f32) return std::nullopt;  // bf16 has fast kernels for both
  const std::optional<Problem> a = adjoint_of(p);
  if (!a || a->y[1] < 32 || is_matrix_kernel(backward_name)) return std::nullopt;
  const auto pd = a->forward(false, attr);
  const auto tiles = onednn::tiles_of(pd.weights_desc());
  if (!is_matrix_kernel(pd.impl_info_str()) || !tiles) return std::nullopt;
  onednn::Plan plan = onednn::Plan::of<dnnl::convolution_forward>(pd);
  plan.repacks.push_back({DNNL_ARG_WEIGHTS, p.w_desc(), pd.weights_desc(), {}, {}, tiles});
  return plan;
}

// For a 1x1 window with a stride, oneDNN gathers the pixels that are used. With a number of
// channels that is not a multiple of 16 it writes beyond its scratchpad (2.6, gradient of the
// weight). So these pixels are gathered here.
bool skips_pixels(const Shape& weight, const Conv2dOptions& o) {
  return weight[1] == 1 && weight[2] == 1 && weight[3] % 16 != 0 && o.padding == Pair{0, 0} &&
         o.stride != Pair{1, 1};
}
Tensor pixels_met(const Tensor& x, const Shape& y, const Conv2dOptions& o) {
  const Shape& from = x.strides();
  return x.as_strided({y[0], y[1], y[2], x.size(3)},
                      {from[0], from[1] * o.stride[0], from[2] * o.stride[1], from[3]}, x.offset());
}

// The plan that make() gives. A problem that oneDNN refuses in bf16 gets one without a primitive.
template <class Make>
onednn::Plan plan_for(const Problem& p, const Make& make) {
  if (p.dtype == DType::f32) return make();
  try {
    return make();
  } catch (const dnnl::error&) {
    onednn::Plan none;
    none.reference = true;
    return none;
  }
}

// Is the problem one of bf16 that is better computed in f32?
bool wants_f32(const Problem& p, const onednn::Plan& plan) {
  return p.dtype == DType::bf16 && plan.reference;
}

const onednn::Plan& forward_plan(const Problem& p, bool with_bias) {
  return onednn::cached_plan(onednn::Work::convolution, p.key("conv", with_bias), [&] {
    return plan_for(p, [&] {
      const auto pd = p.forward(with_bias);
      onednn::Plan made = onednn::Plan::of<dnnl::convolution_forward>(pd);
      made.repack(DNNL_ARG_WEIGHTS, p.w_desc(), pd.weights_desc(), Direction::input);
      return made;
    });
  });
}

const onednn::Plan& input_plan(const Problem& p) {
  return onednn::cached_plan(onednn::Work::convolution, p.key("conv dx", false), [&] {
    return plan_for(p, [&] {
      const auto pd = p.backward<dnnl::convolution_backward_data>();
      if (auto faster = adjoint_plan(p, pd.impl_info_str())) return *faster;
      onednn::Plan made = onednn::Plan::of<dnnl::convolution_backward_data>(pd);
      made.repack(DNNL_ARG_WEIGHTS, p.w_desc(), pd.weights_desc(), Direction::input);
      return made;
    });
  });
}

// As input_plan(), but adds to what is there. An empty plan where oneDNN cannot add.
const onednn::Plan& input_sum_plan(const Problem& p) {
  return onednn::cached_plan(onednn::Work::convolution, p.key("conv dx+", false), [&] {
    if (p.dtype == DType::bf16) return onednn::Plan{};
    const auto pd = p.backward<dnnl::convolution_backward_data>();
    return adjoint_plan(p, pd.impl_info_str(), onednn::adding()).value_or(onednn::Plan{});
  });
}

const onednn::Plan& weight_plan(const Problem& p) {
  return onednn::cached_plan(onednn::Work::convolution, p.key("conv dw", false), [&] {
    return plan_for(p, [&] {
      const auto pd = p.backward<dnnl::convolution_backward_weights>();
      onednn::Plan made = onednn::Plan::of<dnnl::convolution_backward_weights>(pd);
      made.repack(DNNL_ARG_DIFF_WEIGHTS, p.w_desc(), pd.diff_weights_desc(), Direction::output);
      return made;
    });
  });
}

// As weight_plan(), but adds to what is there. The repack adds, so a plan without one cannot.
const onednn::Plan& weight_sum_plan(const Problem& p) {
  return onednn::cached_plan(onednn::Work::convolution, p.key("conv dw+", false), [&] {
    return plan_for(p, [&] {
      const auto pd = p.backward<dnnl::convolution_backward_weights>();
      onednn::Plan made = onednn::Plan::of<dnnl::convolution_backward_weights>(pd);
      made.repack(DNNL_ARG_DIFF_WEIGHTS, p.w_desc(), pd.diff_weights_desc(), Direction::sum);
      return made;
    });
  });
}

// Does oneDNN compute with x, or does `meta` count what it would take?
bool runs_onednn(const Tensor& x) {
  return (x.device() == kCpu || counts_kernel_memory(x.device())) && onednn::takes(x.dtype());
}

// Kernels that have a layout of their own for the weight make a copy of it. The copy of a large
// weight would be as large as the largest tensors of a step. So a large weight is taken in parts:
// each has some of its output channels.
constexpr int64_t kWeightPart = 10 << 20;  // bytes of a part, at most about

struct WeightPart {
  int64_t begin, end;  // output channels
};
// One part where kernels take the whole weight. x: an operand of the convolution.
std::vector<WeightPart> weight_parts(const Tensor& x, const Shape& weight, const Conv2dOptions& o) {
  const int64_t channels = weight[0];
  const bool takes_parts = runs_onednn(x) && o.groups == 1;
  const int64_t bytes = weight.numel() * static_cast<int64_t>(sizeof(float));
  const int64_t count = takes_parts ? (bytes + kWeightPart - 1) / kWeightPart : 1;
  if (count <= 1) return {{0, channels}};
  constexpr int64_t kWidth = 64;  // a multiple of what kernels of every processor take at a time
  const int64_t width = ((channels + count - 1) / count + kWidth - 1) / kWidth * kWidth;
  std::vector<WeightPart> parts;
  for (int64_t begin = 0; begin < channels; begin += width)
    parts.push_back({begin, std::min(channels, begin + width)});
  return parts;
}

// The channels of one part of an output or its gradient [N, OH, OW, K].
Tensor channels_of(const Tensor& y, const WeightPart& part) {
  return contiguous(y.slice(3, part.begin, part.end));
}

// In bf16 the gradient of the weight of a 1x1 window is a matrix product over pixels, whose kernels
// are faster, and do not wait for each other at a barrier.
bool is_product(const Tensor& dy, const Shape& weight, const Conv2dOptions& o) {
  return dy.dtype() == DType::bf16 && runs_onednn(dy) && weight[1] == 1 && weight[2] == 1 &&
         o.groups == 1 && o.padding == Pair{0, 0};
}
// The pixels [N, OH, OW, C] of that product.
Tensor factor_of_product(const Tensor& x, const Shape& y, const Conv2dOptions& o) {
  const CategoryScope scope(Category::workspace);
  return contiguous(o.stride == Pair{1, 1} ? x : pixels_met(x, y, o));
}

// Where a stride leaves one column of output, oneDNN's bf16 kernels of the gradient of the weight
// take what their scratchpad held before as the gradient of taps that meet padding only
// (findings/onednn_bf16_padding.sh).
bool leaves_taps(const Tensor& dy, const Conv2dOptions& o) {
  return dy.size(2) == 1 && o.stride[1] > 1;
}

// While one lives, oneDNN makes plans for one thread.
class OneThread {
 public:
  OneThread() : before_(num_threads()) { set_num_threads(1); }
  ~OneThread() { set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// In bf16, threads wait for each other within oneDNN's kernels of the gradient of the weight, in
// loops that keep a core busy. Where other processes use the cores, most of a step was such
// waiting. So each thread computes the gradient of some of the images, with a kernel for one
// thread. Empty: `whole`, the plan of all images, is taken, because there are no images to share,
// or because kernels for one thread take more memory.
std::vector<onednn::Share> weight_shares(const onednn::Plan& whole, const Tensor& dy,
                                         const Tensor& x, const Shape& weight,
                                         const Conv2dOptions& o) {
  const int64_t images = x.size(0), count = parallel_ranges(images, 1);
  if (dy.dtype() != DType::bf16 || count < 2) return {};
  const OneThread one;
  const auto differs = [&](const onednn::Plan& plan) {
    return plan.reference || plan.repacks.size() != whole.repacks.size() ||
           (!whole.repacks.empty() && plan.repacks.front().wanted != whole.repacks.front().wanted);
  };
  std::vector<onednn::Share> shares;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = images * i / count, end = images * (i + 1) / count;
    const Tensor from = x.slice(0, begin, end), gradient = dy.slice(0, begin, end);
    const Problem p(from.shape(), weight, gradient.shape(), o, dy.dtype());
    const onednn::Plan& plan = weight_plan(p);
    if (differs(plan)) return {};
    shares.push_back({&plan,
                      {{DNNL_ARG_SRC, from.raw(), p.x_desc()},
                       {DNNL_ARG_DIFF_DST, gradient.raw(), p.y_desc()}}});
  }
  constexpr int64_t kLittle = 1 << 20;
  if (onednn::bytes_of(shares) > std::max(onednn::bytes_of(whole), kLittle)) return {};
  return shares;
}

// Does a kernel of this problem compute with copies in f32?
template <class FindPlan>
bool computes_in_f32(const Problem& p, FindPlan plan) {
  return p.dtype == DType::bf16 &&
         (p.takes_loops() || !onednn::takes(DType::bf16) || wants_f32(p, plan(p)));
}

// Counts on `meta` what a kernel of this problem takes on the CPU. `y`: the output, or its
// gradient. in_f32: the kernel takes no bf16.
template <class FindPlan>
void count_convolution(const char* op, const Tensor& y, const Shape& x, const Shape& weight,
                       const Conv2dOptions& o, FindPlan plan, bool in_f32 = false) {
  if (!counts_kernel_memory(y.device()) || y.dtype() == DType::f64 || y.numel() == 0 ||
      x.numel() == 0 || weight.numel() == 0)
    return;
  const Problem p(x, weight, y.shape(), o, y.dtype());
  const bool copies = onednn::guarded(op, [&] {
    if ((in_f32 && p.dtype == DType::bf16) || computes_in_f32(p, plan)) return true;
    if (!p.takes_loops()) onednn::account(plan(p));
    return false;
  });
  if (!copies) return;
  const CategoryScope scope(Category::workspace);
  const Tensor wide_x = Tensor::empty(x, DType::f32, y.device());
  count_convolution(op, Tensor::empty(y.shape(), DType::f32, y.device()), x, weight, o, plan);
}

}  // namespace

void conv2d_kernel(Cpu, const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const Conv2dOptions& o) {
  if (y.numel() == 0) return;
  if (x.dtype() == DType::f64) return reference::conv2d<double>(y, x, weight, bias, o);
  const Problem p(x.shape(), weight.shape(), y.shape(), o, x.dtype());
  const bool loops = x.numel() == 0 || p.takes_loops();  // without elements: only the bias
  const auto plan_of = [&](const Problem& of) { return forward_plan(of, bias.defined()); };
  if (x.dtype() == DType::bf16 && (loops || computes_in_f32(p, plan_of))) {
    InF32 wide;
    conv2d_kernel(Cpu{}, wide.write(y), wide.read(x), weight, bias, o);
    return wide.finish();
  }
  if (loops) return reference::conv2d<float>(y, x, weight, bias, o);
  onednn::guarded("conv2d", [&] {
    const bool with_bias = bias.defined();
    const onednn::Plan& plan = forward_plan(p, with_bias);
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
  if (dy.numel() == 0) return fill_kernel(Cpu{}, dx, 0);
  if (dy.dtype() == DType::f64) return reference::conv2d_backward_input<double>(dx, dy, weight, o);
  const Problem p(dx.shape(), weight.shape(), dy.shape(), o, dy.dtype());
  if (computes_in_f32(p, input_plan)) {
    InF32 wide;
    conv2d_backward_input_kernel(Cpu{}, wide.write(dx), wide.read(dy), weight, o);
    return wide.finish();
  }
  if (p.takes_loops()) return reference::conv2d_backward_input<float>(dx, dy, weight, o);
  onednn::guarded(kConv2dBackward, [&] {
    const onednn::Plan& plan = input_plan(p);
    const bool adjoint = plan.adjoint();
    onednn::execute(plan,
                    {{adjoint ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, dy.raw(), p.y_desc()},
                     {DNNL_ARG_WEIGHTS, weight.raw(), p.w_desc()}},
                    {{adjoint ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, dx.raw(), p.x_desc()}});
  });
}

void conv2d_backward_weight_kernel(Cpu, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                   const Conv2dOptions& o) {
  if (dweight.numel() == 0) return;
  if (dy.numel() == 0) return fill_kernel(Cpu{}, dweight, 0);
  if (dy.dtype() == DType::f64) return reference::conv2d_backward_weight<double>(dweight, dy, x, o);
  if (skips_pixels(dweight.shape(), o)) {
    Conv2dOptions dense = o;
    dense.stride = {1, 1};
    CategoryScope scope(Category::workspace);
    return conv2d_backward_weight_kernel(Cpu{}, dweight, dy,
                                         contiguous(pixels_met(x, dy.shape(), o)), dense);
  }
  const Problem p(x.shape(), dweight.shape(), dy.shape(), o, dy.dtype());
  if ((leaves_taps(dy, o) && p.dtype == DType::bf16) || computes_in_f32(p, weight_plan)) {
    const InF32 wide;
    return conv2d_backward_weight_kernel(Cpu{}, dweight, wide.read(dy), wide.read(x), o);
  }
  if (p.takes_loops()) return reference::conv2d_backward_weight<float>(dweight, dy, x, o);
  onednn::guarded(kConv2dBackward, [&] {
    const onednn::Plan& plan = weight_plan(p);
    const auto shares = weight_shares(plan, dy, x, dweight.shape(), o);
    if (!shares.empty())
      return onednn::execute_shares(plan, shares,
                                    {DNNL_ARG_DIFF_WEIGHTS, dweight.raw(), p.w_desc()});
    onednn::execute(
        plan, {{DNNL_ARG_SRC, x.raw(), p.x_desc()}, {DNNL_ARG_DIFF_DST, dy.raw(), p.y_desc()}},
        {{DNNL_ARG_DIFF_WEIGHTS, dweight.raw(), p.w_desc()}});
  });
}

namespace {

void count_weight_kernel(const Tensor& dy, const Tensor& x, const Shape& weight,
                         const Conv2dOptions& o) {
  if (!counts_kernel_memory(dy.device()) || dy.dtype() == DType::f64) return;
  if (skips_pixels(weight, o)) {
    Conv2dOptions dense = o;
    dense.stride = {1, 1};
    CategoryScope scope(Category::workspace);
    return count_weight_kernel(dy, contiguous(pixels_met(x, dy.shape(), o)), weight, dense);
  }
  const bool in_f32 = leaves_taps(dy, o);
  if (dy.dtype() == DType::bf16 && !in_f32 && dy.numel() != 0 && x.numel() != 0) {
    const Problem p(x.shape(), weight, dy.shape(), o, dy.dtype());
    const bool counted = onednn::guarded(kConv2dBackward, [&] {
      if (computes_in_f32(p, weight_plan)) return false;
      const auto shares = weight_shares(weight_plan(p), dy, x, weight, o);
      if (!shares.empty()) onednn::account_shares(weight_plan(p), shares, p.w_desc());
      return !shares.empty();
    });
    if (counted) return;
  }
  count_convolution(kConv2dBackward, dy, x.shape(), weight, o, weight_plan, in_f32);
}

}  // namespace

Shape conv2d_shape(const char* op, const Shape& x, const Shape& weight, const Conv2dOptions& o) {
  bool valid = o.groups >= 1;
  for (size_t i = 0; i < 2; ++i)
    valid = valid && in_range(o.stride[i], 1) && in_range(o.dilation[i], 1) &&
            in_range(o.padding[i], 0);
  FRUGAL_CHECK(valid,
               "[{}] expected groups, strides and dilations of at least 1 and padding of at least "
               "0, all below 2^31, got groups {}, stride {}x{}, dilation {}x{}, padding {}x{}",
               op, o.groups, o.stride[0], o.stride[1], o.dilation[0], o.dilation[1], o.padding[0],
               o.padding[1]);
  FRUGAL_CHECK(x[3] % o.groups == 0 && weight[3] == x[3] / o.groups && weight[0] % o.groups == 0,
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
  double elements = 1;
  for (int64_t extent : y) elements *= static_cast<double>(extent);
  FRUGAL_CHECK(elements < 1e18, "[{}] expected an output that fits in memory, got {}", op, y);
  return y;
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  check_dim("conv2d", "x", x, 4);
  check_dim("conv2d", "weight", weight, 4);
  check_real("conv2d", "x", x);
  check_beside("conv2d", x, {&weight, &bias});
  const Shape shape = conv2d_shape("conv2d", x.shape(), weight.shape(), options);
  if (bias.defined()) check_shape("conv2d", "bias", bias, {weight.shape()[0]});
  const Tensor in = contiguous(x), w = contiguous(weight);
  const Tensor b = bias.defined() ? contiguous(bias) : bias;
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const auto run = [&](const Tensor& to, const Tensor& from, const Tensor& with) {
    dispatch(x.device(),
             [&](auto backend) { conv2d_kernel(backend, to, in, from, with, options); });
    count_convolution(
        "conv2d", to, x.shape(), from.shape(),
        options, [&](const Problem& p) -> auto& { return forward_plan(p, bias.defined()); });
  };
  const auto parts = weight_parts(x, weight.shape(), options);
  if (parts.size() == 1) {
    run(y, w, b);
    return y;
  }
  for (const WeightPart& part : parts) {
    CategoryScope scope(Category::workspace);
    const Tensor to =
        Tensor::empty({shape[0], shape[1], shape[2], part.end - part.begin}, y.dtype(), y.device());
    run(to, w.slice(0, part.begin, part.end), b.defined() ? b.slice(0, part.begin, part.end) : b);
    copy_into(y.slice(3, part.begin, part.end), to);
  }
  return y;
}

namespace {

void check_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                          const Conv2dOptions& options) {
  check_real(kConv2dBackward, "dy", dy);
  check_dim(kConv2dBackward, "weight", weight, 4);
  check_beside(kConv2dBackward, dy, {&weight});
  check_shape(kConv2dBackward, "dy", dy,
              conv2d_shape(kConv2dBackward, x_shape, weight.shape(), options));
}

// Adds dx where a kernel can do that, or counts what the kernel takes. A large weight is taken in
// parts.
bool adds_input(const Tensor& sum, const Tensor& dy, const Tensor& weight, const Conv2dOptions& o) {
  const bool counts = counts_kernel_memory(dy.device());
  if (!runs_onednn(dy) || dy.numel() == 0 || sum.numel() == 0) return false;
  const auto parts = weight_parts(dy, weight.shape(), o);
  CategoryScope scope(Category::workspace);
  for (const WeightPart& part : parts) {
    const Tensor some = parts.size() == 1 ? dy : channels_of(dy, part);
    const Tensor w = weight.slice(0, part.begin, part.end);
    const Problem p(sum.shape(), w.shape(), some.shape(), o, dy.dtype());
    if (p.takes_loops()) return false;
    const bool added = onednn::guarded(kConv2dBackward, [&] {
      const onednn::Plan& plan = input_sum_plan(p);
      if (!plan.adjoint()) return false;
      if (counts)
        onednn::account(plan);
      else
        onednn::execute(
            plan, {{DNNL_ARG_SRC, some.raw(), p.y_desc()}, {DNNL_ARG_WEIGHTS, w.raw(), p.w_desc()}},
            {{DNNL_ARG_DST, sum.raw(), p.x_desc()}});
      return true;
    });
    if (!added) return false;  // at the first part: the kernels of all parts are alike
  }
  return true;
}

// Makes dx as the sum over the parts of a large weight, where kernels can add.
bool sums_input(const Tensor& dx, const Tensor& dy, const Tensor& weight, const Conv2dOptions& o) {
  if (weight_parts(dy, weight.shape(), o).size() == 1) return false;
  if (dx.device() == kCpu) fill_kernel(Cpu{}, dx, 0);
  return adds_input(dx, dy, weight, o);
}

}  // namespace

void conv2d_backward_input_into(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Conv2dOptions& options) {
  check_dim(kConv2dBackward, "dx", dx, 4);
  check_backward_input(dy, weight, dx.shape(), options);
  check_same(kConv2dBackward, dy, {&dx});
  FRUGAL_CHECK(dx.is_contiguous(), "[conv2d backward] expected a contiguous dx, got strides {}",
               dx.strides());
  const Tensor gradient = contiguous(dy), w = contiguous(weight);
  if (sums_input(dx, gradient, w, options)) return;
  dispatch(dy.device(),
           [&](auto backend) { conv2d_backward_input_kernel(backend, dx, gradient, w, options); });
  count_convolution(kConv2dBackward, dy, dx.shape(), weight.shape(), options, input_plan);
}

void add_conv2d_backward_input(const Tensor& sum, const Tensor& dy, const Tensor& weight,
                               const Conv2dOptions& options) {
  check_dim(kConv2dBackward, "sum", sum, 4);
  check_backward_input(dy, weight, sum.shape(), options);
  check_same(kConv2dBackward, dy, {&sum});
  FRUGAL_CHECK(sum.is_contiguous(), "[conv2d backward] expected a contiguous sum, got strides {}",
               sum.strides());
  const Tensor gradient = contiguous(dy), w = contiguous(weight);
  if (adds_input(sum, gradient, w, options))
    sum.bump_version();
  else
    accumulate(sum, conv2d_backward_input(gradient, w, sum.shape(), options));
}

Tensor conv2d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                             const Conv2dOptions& options) {
  check_backward_input(dy, weight, x_shape, options);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  conv2d_backward_input_into(dx, dy, weight, options);
  return dx;
}

namespace {

void check_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                           const Conv2dOptions& options) {
  check_real(kConv2dBackward, "dy", dy);
  check_dim(kConv2dBackward, "x", x, 4);
  check_same(kConv2dBackward, dy, {&x});
  check_shape(kConv2dBackward, "dy", dy,
              conv2d_shape(kConv2dBackward, x.shape(), weight_shape, options));
}

// The pixels of one axis that one row or column of the window, a tap, meets with stride 1: output
// pixels [begin, end), and the input pixel that the first one meets.
struct Met {
  int64_t begin, end, from;
  int64_t size() const { return end - begin; }
};
Met met_by(int64_t tap, int64_t x, int64_t y, int64_t dilation, int64_t padding) {
  const int64_t offset = tap * dilation - padding;
  const int64_t begin = std::max<int64_t>(0, -offset), end = std::min(y, x - offset);
  return {begin, std::max(begin, end), begin + offset};
}
Met met_rows(int64_t tap, const Shape& x, const Shape& y, const Conv2dOptions& o) {
  return met_by(tap, x[1], y[1], o.dilation[0], o.padding[0]);
}
Met met_columns(int64_t tap, const Shape& x, const Shape& y, const Conv2dOptions& o) {
  return met_by(tap, x[2], y[2], o.dilation[1], o.padding[1]);
}

// Is more than half of what the taps of the window meet padding? With so large a dilation, oneDNN
// would write the window of every pixel to memory, padding included.
bool lies_in_padding(const Tensor& dy, const Shape& x, const Shape& weight,
                     const Conv2dOptions& o) {
  if (!runs_onednn(dy) || o.groups != 1 || o.stride != Pair{1, 1} || o.dilation == Pair{1, 1})
    return false;
  const Shape& y = dy.shape();
  int64_t rows = 0, columns = 0;
  for (int64_t r = 0; r < weight[1]; ++r) rows += met_rows(r, x, y, o).size();
  for (int64_t s = 0; s < weight[2]; ++s) columns += met_columns(s, x, y, o).size();
  return 2 * rows * columns < weight[1] * y[1] * weight[2] * y[2];
}

// The gradient for each tap is a matrix product over the pixels that the tap meets.
void make_weight_gradient_by_taps(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                  const Conv2dOptions& o) {
  CategoryScope scope(Category::workspace);
  const auto matrix = [](const Tensor& image, const Met& rows, int64_t row, const Met& columns,
                         int64_t column) {
    const Tensor part =
        image.slice(1, row, row + rows.size()).slice(2, column, column + columns.size());
    return contiguous(part).view({part.numel() / part.size(3), part.size(3)});
  };
  for (int64_t r = 0; r < dweight.size(1); ++r)
    for (int64_t s = 0; s < dweight.size(2); ++s) {
      const Met rows = met_rows(r, x.shape(), dy.shape(), o);
      const Met columns = met_columns(s, x.shape(), dy.shape(), o);
      const Tensor tap = dweight.slice(1, r, r + 1).slice(2, s, s + 1);  // [K, 1, 1, C]
      if (rows.size() == 0 || columns.size() == 0) {
        fill(tap, 0);
        continue;
      }
      const Tensor product =
          linear_backward_weight(matrix(dy, rows, rows.begin, columns, columns.begin),
                                 matrix(x, rows, rows.from, columns, columns.from));
      copy_into(tap, product.view(tap.shape()));
    }
}

// Adds the gradient of the weight where a kernel can do that, or counts what the kernel takes.
bool adds_weight(const Tensor& sum, const Tensor& dy, const Tensor& x, const Conv2dOptions& o) {
  const bool counts = counts_kernel_memory(dy.device());
  if (!runs_onednn(dy) || dy.numel() == 0 || x.numel() == 0 || sum.numel() == 0 ||
      skips_pixels(sum.shape(), o) || lies_in_padding(dy, x.shape(), sum.shape(), o) ||
      (dy.dtype() == DType::bf16 && leaves_taps(dy, o)))
    return false;
  const Problem p(x.shape(), sum.shape(), dy.shape(), o, dy.dtype());
  if (p.takes_loops()) return false;
  return onednn::guarded(kConv2dBackward, [&] {
    const onednn::Plan& plan = weight_sum_plan(p);
    if (plan.repacks.empty() || wants_f32(p, plan)) return false;
    const auto shares = weight_shares(plan, dy, x, sum.shape(), o);
    if (!shares.empty() && counts)
      onednn::account_shares(plan, shares, p.w_desc());
    else if (!shares.empty())
      onednn::execute_shares(plan, shares, {DNNL_ARG_DIFF_WEIGHTS, sum.raw(), p.w_desc()});
    else if (counts)
      onednn::account(plan);
    else
      onednn::execute(
          plan, {{DNNL_ARG_SRC, x.raw(), p.x_desc()}, {DNNL_ARG_DIFF_DST, dy.raw(), p.y_desc()}},
          {{DNNL_ARG_DIFF_WEIGHTS, sum.raw(), p.w_desc()}});
    return true;
  });
}

void make_weight_gradient(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                          const Conv2dOptions& options) {
  if (lies_in_padding(dy, x.shape(), dweight.shape(), options))
    return make_weight_gradient_by_taps(dweight, dy, x, options);
  dispatch(dy.device(),
           [&](auto backend) { conv2d_backward_weight_kernel(backend, dweight, dy, x, options); });
  count_weight_kernel(dy, x, dweight.shape(), options);
}

// Calls f(gradient of the weight, dy, x) for each part of a large weight, with operands that are
// contiguous.
template <class F>
void for_weight_gradients(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                          const Conv2dOptions& options, F f) {
  const Tensor in = contiguous(x);
  const auto parts = weight_parts(x, dweight.shape(), options);
  if (parts.size() == 1) return f(dweight, contiguous(dy), in);
  CategoryScope scope(Category::workspace);
  for (const WeightPart& part : parts)
    f(dweight.slice(0, part.begin, part.end), channels_of(dy, part), in);
}

}  // namespace

void add_conv2d_backward_weight(const Tensor& sum, const Tensor& dy, const Tensor& x,
                                const Conv2dOptions& options) {
  check_dim(kConv2dBackward, "sum", sum, 4);
  check_backward_weight(dy, x, sum.shape(), options);
  const DType dtype = dtype_beside(dy);
  FRUGAL_CHECK(sum.is_contiguous() && sum.dtype() == dtype && sum.device() == dy.device(),
               "[conv2d backward] expected a contiguous sum of dtype {} on {}, got {} with strides "
               "{}",
               name_of(dtype), dy.device().str(), describe(sum), sum.strides());
  if (is_product(dy, sum.shape(), options))
    return add_linear_backward_weight(sum.view({sum.size(0), sum.size(3)}), dy,
                                      factor_of_product(x, dy.shape(), options));
  for_weight_gradients(sum, dy, x, options,
                       [&](const Tensor& to, const Tensor& gradient, const Tensor& in) {
                         if (adds_weight(to, gradient, in, options)) return to.bump_version();
                         const Tensor own = Tensor::empty(to.shape(), dtype, dy.device());
                         make_weight_gradient(own, gradient, in, options);
                         accumulate(to, own);
                       });
}

Tensor conv2d_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                              const Conv2dOptions& options) {
  check_backward_weight(dy, x, weight_shape, options);
  if (is_product(dy, weight_shape, options))
    return linear_backward_weight(dy, factor_of_product(x, dy.shape(), options)).view(weight_shape);
  Tensor dweight = Tensor::empty(weight_shape, dtype_beside(dy), dy.device());
  for_weight_gradients(dweight, dy, x, options,
                       [&](const Tensor& to, const Tensor& gradient, const Tensor& in) {
                         make_weight_gradient(to, gradient, in, options);
                       });
  return dweight;
}

}  // namespace frugal::ops
