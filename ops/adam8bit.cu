#include "ops/adam8bit.h"

#include "ops/adam_cuda.h"
#include "ops/blockwise_cuda.h"

namespace frugal::ops {
namespace {

using cuda::kStateRun;

struct Moments {
  uint8_t *m, *v;
  float *m_scales, *v_scales;
};

__global__ void adam8bit_step_kernel(int64_t n, bool wide, const cuda::DeviceMap with_sign,
                                     const cuda::DeviceMap positive, AdamFactors<float> f,
                                     RngKey key, float* p, const float* g, Moments moments) {
  __shared__ float m_values[256], v_values[256];
  m_values[threadIdx.x] = with_sign.values[threadIdx.x];
  v_values[threadIdx.x] = positive.values[threadIdx.x];
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int64_t blocks = (n + kStateBlock - 1) / kStateBlock;
  for (int64_t block = cuda::first_index() / cuda::kWarp; block < blocks;
       block += cuda::index_stride() / cuda::kWarp) {
    const int64_t at = block * kStateBlock + lane * kStateRun, count = n - at;
    float values[kStateRun], gradients[kStateRun], m[kStateRun], v[kStateRun];
    uint8_t m_codes[kStateRun], v_codes[kStateRun];
    cuda::load_some(p + at, count, wide, values);
    cuda::load_some(g + at, count, wide, gradients);
    cuda::load_some(moments.m + at, count, true, m_codes);
    cuda::load_some(moments.v + at, count, true, v_codes);
    const float m_scale = moments.m_scales[block], v_scale = moments.v_scales[block];
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) {
      m[k] = m_values[m_codes[k]] * m_scale;
      v[k] = v_values[v_codes[k]] * v_scale;
      adam_element(f, values[k], gradients[k], m[k], v[k]);
      // What lies behind the end must not count.
      if (k >= count) m[k] = v[k] = 0;
    }
    const float new_m = cuda::encode_run(m, with_sign, nullptr, at, m_codes);
    const float new_v = cuda::encode_run(v, positive, &key, at, v_codes);
    cuda::store_some(p + at, count, wide, values);
    cuda::store_some(moments.m + at, count, true, m_codes);
    cuda::store_some(moments.v + at, count, true, v_codes);
    if (lane == 0) {
      moments.m_scales[block] = new_m;
      moments.v_scales[block] = new_v;
    }
  }
}

}  // namespace

void adam8bit_kernel(Cuda, const Tensor& parameter, const Tensor& gradient, const BlockwiseState& m,
                     const BlockwiseState& v, const AdamStep& step, RngKey key) {
  const int64_t n = parameter.numel();
  cuda::launch(adam8bit_step_kernel, cuda::state_grid(n), n,
               cuda::is_packable(parameter.raw()) && cuda::is_packable(gradient.raw()),
               cuda::device_map(m.map), cuda::device_map(v.map), AdamFactors<float>::of(step), key,
               parameter.mut<float>(), gradient.data<float>(),
               Moments{m.codes.mut<uint8_t>(), v.codes.mut<uint8_t>(), m.scales.mut<float>(),
                       v.scales.mut<float>()});
}

}  // namespace frugal::ops
