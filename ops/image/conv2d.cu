#include "ops/image/conv2d.h"

#include "core/cuda/cuda_kernel.h"
#include "ops/cuda/cuda_cast.h"
#include "ops/cuda/cudnn.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"

namespace frugal::ops {
namespace {

using namespace frugal::cuda;

// Plain loops for convolutions that cuDNN has no engine for. Sums are f32, in a fixed order.
struct Extents {
  int64_t n, h, w, c, k, r, s, oh, ow, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int64_t in, out;  // channels of one group

  Extents(const Shape& x, const Shape& weight, const Shape& y, const Conv2dOptions& o)
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
struct Forward {  // f(i) for each element of y
  Extents e;
  const T *x, *weight;
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
        const T* by = weight + ((k * e.r + r) * e.s + s) * e.in;
        for (int64_t c = 0; c < e.in; ++c) sum += load(from[c]) * load(by[c]);
      }
    }
    y[i] = store<T>(sum);
  }
};

template <class T>
struct BackwardInput {  // f(i) for each element of dx
  Extents e;
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

// One block for each element of dweight; its threads share the pixels of the images.
template <class T>
__global__ void backward_weight_kernel(Extents e, const T* dy, const T* x, float* dweight) {
  for (int64_t i = blockIdx.x; i < e.k * e.r * e.s * e.in; i += gridDim.x) {
    const int64_t c = i % e.in, s = i / e.in % e.s, r = i / e.in / e.s % e.r,
                  k = i / e.in / e.s / e.r, channel = k / e.out * e.in + c;
    float sum = 0;
    for (int64_t p = threadIdx.x; p < e.n * e.oh * e.ow; p += blockDim.x) {
      const int64_t column = p % e.ow, row = p / e.ow % e.oh, n = p / e.ow / e.oh;
      const int64_t h = row * e.stride_h - e.pad_h + r * e.dilation_h,
                    w = column * e.stride_w - e.pad_w + s * e.dilation_w;
      if (h < 0 || h >= e.h || w < 0 || w >= e.w) continue;
      sum += load(dy[p * e.k + k]) * load(x[((n * e.h + h) * e.w + w) * e.c + channel]);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) dweight[i] = sum;
  }
}

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
      if (cudnn::convolve(p, {x.raw(), w.raw(), y.raw()})) return add_bias(y, bias);
    }
  }
  with_activation(x.dtype(), [&]<class T>(T) {
    for_each(
        y.numel(),
        Forward<T>{{x.shape(), w.shape(), y.shape(), o}, x.data<T>(), w.data<T>(), y.mut<T>()});
  });
  add_bias(y, bias);
}

void conv2d_backward_input_kernel(Cuda, const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                  const Conv2dOptions& o) {
  if (dx.numel() == 0) return;
  if (dy.numel() == 0) return fill_kernel(Cuda{}, dx, 0);
  const Tensor w = cuda::in_dtype(weight, dy.dtype());
  if (fits(dx.shape(), w.shape(), dy.shape(), o) &&
      cudnn::convolve(problem(cudnn::Pass::backward_input, dx, w.shape(), dy, o),
                      {dx.raw(), w.raw(), dy.raw()}))
    return;
  with_activation(dy.dtype(), [&]<class T>(T) {
    for_each(dx.numel(),
             BackwardInput<T>{
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
  }
  with_activation(x.dtype(), [&]<class T>(T) {
    launch(backward_weight_kernel<T>, {blocks_for(dweight.numel(), 1)},
           Extents(x.shape(), dweight.shape(), dy.shape(), o), dy.data<T>(), x.data<T>(),
           dweight.mut<float>());
  });
}

}  // namespace frugal::ops
