#include "ops/image/conv2d.h"

#include <algorithm>

#include "core/cuda/cuda_kernel.h"
#include "ops/cuda/cuda_cast.h"
#include "ops/cuda/cuda_columns.h"
#include "ops/cuda/cudnn.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/library_fallbacks.h"

namespace frugal::ops {
namespace {

using namespace frugal::cuda;

// Plain loops for convolutions that cuDNN has no engine for. Sums are f32, in a fixed order.
// Neighbouring threads work on neighbouring channels, so that what they read and write lies
// together.
struct ConvExtents {
  int64_t n, h, w, c, k, r, s, oh, ow, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int64_t in, out;  // channels of one group

  ConvExtents(const Shape& x, const Shape& weight, const Shape& y, const Conv2dOptions& o)
      : n(x[0]),
        h(x[1]),
        w(x[2]),
        c(x[3]),
        k(weight[0]),
        r(weight[1]),
        s(weight[2]),
        oh(y[1]),
        ow(y[2]),
        stride_h(o.stride[0]),
        stride_w(o.stride[1]),
        pad_h(o.padding[0]),
        pad_w(o.padding[1]),
        dilation_h(o.dilation[0]),
        dilation_w(o.dilation[1]),
        in(weight[3]),
        out(weight[0] / o.groups) {}
};

// The output row or column whose window has `at` at position `tap`; -1 if there is none.
__device__ __forceinline__ int64_t window_of(int64_t at, int64_t tap, int64_t pad, int64_t dilation,
                                             int64_t stride, int64_t end) {
  const int64_t reach = at + pad - tap * dilation;
  if (reach < 0 || reach % stride != 0 || reach / stride >= end) return -1;
  return reach / stride;
}

template <class T>
struct Turn {  // f(i) for each element of a weight [K, rest]; `to` is [rest, K]
  int64_t k, rest;
  const T* from;
  T* to;
  __device__ void operator()(int64_t i) const { to[i] = from[i % k * rest + i / k]; }
};

template <class T>
struct ConvForward {  // f(i) for each element of y
  ConvExtents e;
  const T *x, *weight;  // weight [R, S, C/groups, K]
  T* y;
  __device__ void operator()(int64_t i) const {
    const int64_t k = i % e.k, column = i / e.k % e.ow, row = i / e.k / e.ow % e.oh,
                  n = i / e.k / e.ow / e.oh, first = k / e.out * e.in;
    float sum = 0;
    for (int64_t r = 0; r < e.r; ++r) {
      const int64_t h = row * e.stride_h - e.pad_h + r * e.dilation_h;
      if (h < 0 || h >= e.h) continue;
      for (int64_t s = 0; s < e.s; ++s) {
        const int64_t w = column * e.stride_w - e.pad_w + s * e.dilation_w;
        if (w < 0 || w >= e.w) continue;
        const T* from = x + ((n * e.h + h) * e.w + w) * e.c + first;
        const T* by = weight + (r * e.s + s) * e.in * e.k + k;
        for (int64_t c = 0; c < e.in; ++c) sum += load(from[c]) * load(by[c * e.k]);
      }
    }
    y[i] = store<T>(sum);
  }
};

template <class T>
struct ConvInputGradient {  // f(i) for each element of dx
  ConvExtents e;
  const T *dy, *weight;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const int64_t c = i % e.c, w = i / e.c % e.w, h = i / e.c / e.w % e.h, n = i / e.c / e.w / e.h,
                  first = c / e.in * e.out;
    float sum = 0;
    for (int64_t r = 0; r < e.r; ++r) {
      const int64_t row = window_of(h, r, e.pad_h, e.dilation_h, e.stride_h, e.oh);
      if (row < 0) continue;
      for (int64_t s = 0; s < e.s; ++s) {
        const int64_t column = window_of(w, s, e.pad_w, e.dilation_w, e.stride_w, e.ow);
        if (column < 0) continue;
        const T* from = dy + ((n * e.oh + row) * e.ow + column) * e.k + first;
        for (int64_t k = 0; k < e.out; ++k)
          sum +=
              load(from[k]) * load(weight[(((first + k) * e.r + r) * e.s + s) * e.in + c % e.in]);
      }
    }
    dx[i] = store<T>(sum);
  }
};

// The gradient of the weight: a block takes 32 elements of one position (r, s) of the window, which
// lie beside one another as [K, C/groups], and a share of the pixels. Then neighbouring threads
// read neighbouring channels of x, or of dy where a group has one channel.
constexpr int kPixelLanes = 8;    // warps of a block; each takes every eighth pixel
constexpr int64_t kPixels = 512;  // a share has at least about so many pixels

struct WeightShares {
  int64_t tiles, step;  // tiles of 32 elements at a position; pixels of a share
};

// partial [shares, K, R, S, C/groups]
template <class T>
__global__ void __launch_bounds__(kWarp* kPixelLanes)
    backward_weight_kernel(ConvExtents e, WeightShares shares, const T* dy, const T* x,
                           float* partial) {
  __shared__ float sums[kPixelLanes][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t tile = blockIdx.x % shares.tiles, position = blockIdx.x / shares.tiles;
  const int64_t s = position % e.s, r = position / e.s;
  const int64_t element = tile * kWarp + lane;
  const bool inside = element < e.k * e.in;
  const int64_t c = element % e.in, k = element / e.in, channel = k / e.out * e.in + c;
  const int64_t begin = blockIdx.y * shares.step, all = e.n * e.oh * e.ow;
  const int64_t end = begin + shares.step < all ? begin + shares.step : all;
  float sum = 0;
  if (inside)
    for (int64_t p = begin + warp; p < end; p += kPixelLanes) {
      const int64_t column = p % e.ow, row = p / e.ow % e.oh, n = p / e.ow / e.oh;
      const int64_t h = row * e.stride_h - e.pad_h + r * e.dilation_h,
                    w = column * e.stride_w - e.pad_w + s * e.dilation_w;
      if (h < 0 || h >= e.h || w < 0 || w >= e.w) continue;
      sum += load(dy[p * e.k + k]) * load(x[((n * e.h + h) * e.w + w) * e.c + channel]);
    }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || !inside) return;
  for (int other = 1; other < kPixelLanes; ++other) sum += sums[other][lane];
  const int64_t at = ((k * e.r + r) * e.s + s) * e.in + c;
  partial[blockIdx.y * (e.k * e.r * e.s * e.in) + at] = sum;
}

template <class T>
void backward_weight(const ConvExtents& e, const Tensor& dy, const Tensor& x,
                     const Tensor& dweight) {
  constexpr int64_t kBlocks = 2048;  // enough blocks for any device
  const int64_t tiles = ceil_div(e.k * e.in, kWarp), blocks = tiles * e.r * e.s;
  const int64_t pixels = e.n * e.oh * e.ow;
  const int64_t wanted =
      std::min(ceil_div(pixels, kPixels), std::max<int64_t>(kBlocks / blocks, 1));
  const int64_t step = ceil_div(pixels, wanted), shares = ceil_div(pixels, step);
  CategoryScope scope(Category::workspace);
  const Tensor partial =
      shares == 1 ? dweight : Tensor::empty({shares, dweight.numel()}, DType::f32, x.device());
  launch(backward_weight_kernel<T>, {as_blocks(blocks, shares), kWarp * kPixelLanes}, e,
         WeightShares{tiles, step}, dy.data<T>(), x.data<T>(), partial.mut<float>());
  if (shares == 1) return;
  const Tensor sums = Tensor::empty({dweight.numel()}, DType::f64, x.device());
  cuda::sum_rows(x.device(), partial.data<float>(), shares, dweight.numel(), false,
                 sums.mut<double>());
  for_each(dweight.numel(), cuda::Narrow{sums.data<double>(), dweight.mut<float>()});
}

void note(const char* pass, const char* instead, const Tensor& x, const Shape& weight,
          const Conv2dOptions& o) {
  note_fallback(
      fmt::format("cuDNN has no plan for conv2d {} {} x {} weight {} stride {}x{} padding "
                  "{}x{} dilation {}x{} groups {}",
                  pass, name_of(x.dtype()), x.shape(), weight, o.stride[0], o.stride[1],
                  o.padding[0], o.padding[1], o.dilation[0], o.dilation[1], o.groups),
      instead);
}
constexpr const char* kLoops = "plain loops";

cudnn::Convolution problem(cudnn::Pass pass, const Tensor& x, const Shape& weight, const Tensor& y,
                           const Conv2dOptions& o) {
  cudnn::Convolution p;
  p.pass = pass;
  p.x = x.shape(), p.w = weight, p.y = y.shape();
  p.options = o;
  p.dtype = x.dtype();
  return p;
}

// Whether y has the extents that cuDNN computes. With output padding, a transposed convolution may
// have an image whose last rows or columns no window reaches.
bool fits(const Shape& x, const Shape& weight, const Shape& y, const Conv2dOptions& o) {
  return conv2d_shape("conv2d", x, weight, o) == y;
}

void add_bias(const Tensor& y, const Tensor& bias) {
  if (bias.defined()) accumulate_row_kernel(Cuda{}, y, bias);
}

}  // namespace

void conv2d_kernel(Cuda, const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const Conv2dOptions& o) {
  if (y.numel() == 0) return;
  if (x.numel() == 0) {
    fill_kernel(Cuda{}, y, 0);
    return add_bias(y, bias);
  }
  const Tensor w = cuda::in_dtype(weight, x.dtype());
  if (fits(x.shape(), w.shape(), y.shape(), o)) {
    cudnn::Convolution p = problem(cudnn::Pass::forward, x, w.shape(), y, o);
    p.bias = bias.defined();
    const Tensor row = cuda::in_dtype(bias, y.dtype());  // fused engines want the bias as a row in
                                                         // the dtype of y
    if (cudnn::convolve(p, {x.raw(), w.raw(), y.raw(), p.bias ? row.raw() : nullptr})) return;
    if (p.bias) {
      p.bias = false;
      if (cudnn::convolve(p, {x.raw(), w.raw(), y.raw()})) {
        note("with a bias", "the bias is added by another kernel", x, w.shape(), o);
        return add_bias(y, bias);
      }
    }
    note("forward", kLoops, x, w.shape(), o);
  }
  CategoryScope scope(Category::workspace);
  const Tensor turned = Tensor::empty(w.shape(), w.dtype(), w.device());  // [R, S, C/groups, K]
  with_activation(x.dtype(), [&]<class T>(T) {
    const int64_t k = w.size(0);
    for_each(w.numel(), Turn<T>{k, w.numel() / k, w.data<T>(), turned.mut<T>()});
    for_each(y.numel(),
             ConvForward<T>{
                 {x.shape(), w.shape(), y.shape(), o}, x.data<T>(), turned.data<T>(), y.mut<T>()});
  });
  add_bias(y, bias);
}

void conv2d_backward_input_kernel(Cuda, const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                  const Conv2dOptions& o) {
  if (dx.numel() == 0) return;
  if (dy.numel() == 0) return fill_kernel(Cuda{}, dx, 0);
  const Tensor w = cuda::in_dtype(weight, dy.dtype());
  if (fits(dx.shape(), w.shape(), dy.shape(), o)) {
    if (cudnn::convolve(problem(cudnn::Pass::backward_input, dx, w.shape(), dy, o),
                        {dx.raw(), w.raw(), dy.raw()}))
      return;
    note("backward to the input", kLoops, dx, w.shape(), o);
  }
  with_activation(dy.dtype(), [&]<class T>(T) {
    for_each(dx.numel(),
             ConvInputGradient<T>{
                 {dx.shape(), w.shape(), dy.shape(), o}, dy.data<T>(), w.data<T>(), dx.mut<T>()});
  });
}

void conv2d_backward_weight_kernel(Cuda, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                   const Conv2dOptions& o) {
  if (dweight.numel() == 0) return;
  if (dy.numel() == 0) return fill_kernel(Cuda{}, dweight, 0);
  if (fits(x.shape(), dweight.shape(), dy.shape(), o)) {
    // cuDNN's weight gradient of bf16 is bf16 (sums are f32).
    CategoryScope scope(Category::workspace);
    const Tensor out =
        x.dtype() == DType::f32 ? dweight : Tensor::empty(dweight.shape(), x.dtype(), x.device());
    if (cudnn::convolve(problem(cudnn::Pass::backward_weight, x, dweight.shape(), dy, o),
                        {x.raw(), out.raw(), dy.raw()})) {
      if (out.dtype() != dweight.dtype()) cuda::convert_into(dweight, out);
      return;
    }
    note("backward to the weight", kLoops, x, dweight.shape(), o);
  }
  with_activation(x.dtype(), [&]<class T>(T) {
    backward_weight<T>(ConvExtents(x.shape(), dweight.shape(), dy.shape(), o), dy, x, dweight);
  });
}

}  // namespace frugal::ops
