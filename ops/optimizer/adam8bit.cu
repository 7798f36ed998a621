#include "ops/optimizer/adam8bit.h"

#include "ops/cuda/cuda_tensors.h"
#include "ops/optimizer/adam_cuda.h"
#include "ops/optimizer/blockwise_cuda.h"

namespace frugal::ops {
namespace {

using cuda::kStateRun;

// One tensor's update, as in cuda_tensors.h. A chunk is a block of the state.
struct Adam8bitRow {
  float* p;
  const float* g;
  uint8_t *m, *v;
  float *m_scales, *v_scales;
  int64_t n, first_chunk;
  AdamFactors<float> factors;
  RngKey key;
  bool wide;  // p and g at multiples of 16 bytes
};
struct Adam8bitTable {
  static constexpr int kRows = (32000 - 2 * static_cast<int>(sizeof(cuda::DeviceMap))) /
                               static_cast<int>(sizeof(Adam8bitRow));
  cuda::DeviceMap with_sign, positive;
  int64_t chunks = 0;
  int rows = 0;
  Adam8bitRow row[kRows];
};
static_assert(sizeof(Adam8bitTable) <= 32764);

template <class Argument>
__global__ void update_packed_kernel(const Argument argument) {
  const Adam8bitTable* given = cuda::value_of(argument);
  if (given == nullptr) return;
  const Adam8bitTable& table = *given;
  __shared__ float m_values[256], v_values[256];
  m_values[threadIdx.x] = table.with_sign.values[threadIdx.x];
  v_values[threadIdx.x] = table.positive.values[threadIdx.x];
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  for (int64_t chunk = cuda::first_index() / cuda::kWarp; chunk < table.chunks;
       chunk += cuda::index_stride() / cuda::kWarp) {
    const Adam8bitRow& row = table.row[cuda::row_at(table, chunk)];
    const int64_t block = chunk - row.first_chunk;
    const int64_t at = block * kStateBlock + lane * kStateRun, count = row.n - at;
    float values[kStateRun], gradients[kStateRun], m[kStateRun], v[kStateRun];
    uint8_t m_codes[kStateRun], v_codes[kStateRun];
    cuda::load_some(row.p + at, count, row.wide, values);
    cuda::load_some(row.g + at, count, row.wide, gradients);
    cuda::load_some(row.m + at, count, true, m_codes);
    cuda::load_some(row.v + at, count, true, v_codes);
    const float m_scale = row.m_scales[block], v_scale = row.v_scales[block];
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) {
      m[k] = cuda::state_value(m_values[m_codes[k]], m_scale);
      v[k] = cuda::state_value(v_values[v_codes[k]], v_scale);
      adam_element(row.factors, values[k], gradients[k], m[k], v[k]);
      // Elements after the last one must not change the scale of the block.
      if (k >= count) m[k] = v[k] = 0;
    }
    const float new_m = cuda::encode_run(m, table.with_sign, nullptr, at, m_codes);
    const float new_v = cuda::encode_run(v, table.positive, &row.key, at, v_codes);
    cuda::store_some(row.p + at, count, row.wide, values);
    cuda::store_some(row.m + at, count, true, m_codes);
    cuda::store_some(row.v + at, count, true, v_codes);
    if (lane == 0) {
      row.m_scales[block] = new_m;
      row.v_scales[block] = new_v;
    }
  }
}

}  // namespace

void adam8bit_steps_kernel(Cuda, const std::vector<Adam8bitUpdate>& updates) {
  Adam8bitTable table;
  table.with_sign = cuda::device_map(StateMap::with_sign);
  table.positive = cuda::device_map(StateMap::positive);
  const auto row = [&](const Adam8bitUpdate& u) {
    return Adam8bitRow{u.parameter.mut<float>(),
                       u.gradient.data<float>(),
                       u.m.codes.mut<uint8_t>(),
                       u.v.codes.mut<uint8_t>(),
                       u.m.scales.mut<float>(),
                       u.v.scales.mut<float>(),
                       u.parameter.numel(),
                       table.chunks,
                       AdamFactors<float>::of(u.step),
                       u.key,
                       cuda::loads_packs(u)};
  };
  cuda::with_state_tables(table, updates, row, [&] {
    cuda::with_late(table, [&]<class Argument>(const Argument& argument) {
      cuda::launch(update_packed_kernel<Argument>, cuda::state_grid(table.chunks * kStateBlock),
                   argument);
    });
  });
}

}  // namespace frugal::ops
