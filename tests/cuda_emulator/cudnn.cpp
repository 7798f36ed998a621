// Stands in for cuDNN: plain loops behind the same interface.
#include "ops/cuda/cudnn.h"

#include "core/cuda/cuda.h"
#include "cuda_runtime.h"

namespace frugal::ops::cudnn {
namespace {

float get(const void* data, int64_t i, DType dtype) {
  return dtype == DType::bf16 ? static_cast<float>(static_cast<const BFloat16*>(data)[i])
                              : static_cast<const float*>(data)[i];
}
void put(void* data, int64_t i, DType dtype, float value) {
  if (dtype == DType::bf16)
    static_cast<BFloat16*>(data)[i] = BFloat16(value);
  else
    static_cast<float*>(data)[i] = value;
}

int64_t place(const Shape& shape, int64_t n, int64_t h, int64_t w, int64_t c) {
  return ((n * shape[1] + h) * shape[2] + w) * shape[3] + c;
}

// f(element of x, of w, of y) for every product.
template <class F>
void each_product(const Convolution& p, F f) {
  const Conv2dOptions& o = p.options;
  const int64_t out = p.w[0] / o.groups;
  for (int64_t n = 0; n < p.y[0]; ++n)
    for (int64_t row = 0; row < p.y[1]; ++row)
      for (int64_t column = 0; column < p.y[2]; ++column)
        for (int64_t k = 0; k < p.w[0]; ++k)
          for (int64_t r = 0; r < p.w[1]; ++r)
            for (int64_t s = 0; s < p.w[2]; ++s) {
              const int64_t h = row * o.stride[0] - o.padding[0] + r * o.dilation[0];
              const int64_t w = column * o.stride[1] - o.padding[1] + s * o.dilation[1];
              if (h < 0 || h >= p.x[1] || w < 0 || w >= p.x[2]) continue;
              for (int64_t c = 0; c < p.w[3]; ++c)
                f(place(p.x, n, h, w, k / out * p.w[3] + c), place(p.w, k, r, s, c),
                  place(p.y, n, row, column, k));
            }
}

void run(const Convolution& p, const ConvolutionData& data) {
  const emulator::DeviceAccess access;
  const auto x = [&](int64_t i) { return get(data.x, i, p.dtype); };
  const auto w = [&](int64_t i) { return get(data.w, i, p.dtype); };
  const auto y = [&](int64_t i) { return get(data.y, i, p.dtype); };
  const bool forward = p.pass == Pass::forward, weight = p.pass == Pass::backward_weight;
  const Shape& made = forward ? p.y : weight ? p.w : p.x;
  std::vector<float> sums(static_cast<size_t>(made.numel()));
  each_product(p, [&](int64_t i, int64_t j, int64_t k) {
    if (forward)
      sums[static_cast<size_t>(k)] += x(i) * w(j);
    else if (weight)
      sums[static_cast<size_t>(j)] += x(i) * y(k);
    else
      sums[static_cast<size_t>(i)] += y(k) * w(j);
  });
  void* out = forward ? data.y : weight ? data.w : data.x;
  for (int64_t i = 0; i < made.numel(); ++i) {
    float value = sums[static_cast<size_t>(i)];
    if (p.bias) value += get(data.bias, i % p.w[0], p.dtype);
    put(out, i, p.dtype, value);
  }
}

}  // namespace

void open_library() {}

// As cuDNN may: no engine for dilated windows, none that adds a bias to an odd number of channels.
bool convolve(const Convolution& p, const ConvolutionData& data) {
  if (p.options.dilation != Pair{1, 1} || (p.bias && p.w[0] % 2 == 1)) return false;
  emulator::submit(cuda::stream(), [p, data] { run(p, data); });
  return true;
}

}  // namespace frugal::ops::cudnn
