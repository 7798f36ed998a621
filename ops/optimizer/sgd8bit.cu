#include "ops/optimizer/sgd8bit.h"

#include "ops/cuda/cuda_tensors.h"
#include "ops/optimizer/blockwise_cuda.h"
#include "ops/optimizer/sgd_loops.h"

namespace frugal::ops {
namespace {

using cuda::kStateRun;

// One tensor's update, as in cuda_tensors.h. A chunk is a block of the state.
struct Row {
  float* p;
  const float* g;
  uint8_t* codes;
  float* scales;
  int64_t n, first_chunk;
  SgdFactors<float> factors;
  RngKey key;
  bool wide;  // p and g at multiples of 16 bytes
};
struct Table {
  static constexpr int kRows =
      (32000 - static_cast<int>(sizeof(cuda::DeviceMap))) / static_cast<int>(sizeof(Row));
  cuda::DeviceMap map;
  int64_t chunks = 0;
  int rows = 0;
  Row row[kRows];
};
static_assert(sizeof(Table) <= 32764);

// The element of sgd_loop(). Each product is rounded on its own, so that the codes are those of the
// CPU.
__device__ __forceinline__ void sgd_element(const SgdFactors<float>& f, float& p, float g,
                                            float& v) {
  const float total = __fadd_rn(g, __fmul_rn(f.decay, p));
  v = __fadd_rn(__fmul_rn(f.momentum, v), total);
  const float both = __fadd_rn(__fmul_rn(f.of_total, total), __fmul_rn(f.of_velocity, v));
  p = __fadd_rn(p, -__fmul_rn(f.lr, both));
}

template <class Argument>
__global__ void update_packed_momentum_kernel(const Argument argument) {
  const Table* given = cuda::value_of(argument);
  if (given == nullptr) return;
  const Table& table = *given;
  __shared__ float numbers[256];
  numbers[threadIdx.x] = table.map.values[threadIdx.x];
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  for (int64_t chunk = cuda::first_index() / cuda::kWarp; chunk < table.chunks;
       chunk += cuda::index_stride() / cuda::kWarp) {
    const Row& row = table.row[cuda::row_at(table, chunk)];
    const int64_t block = chunk - row.first_chunk;
    const int64_t at = block * kStateBlock + lane * kStateRun, count = row.n - at;
    float values[kStateRun], gradients[kStateRun], v[kStateRun];
    uint8_t codes[kStateRun];
    cuda::load_some(row.p + at, count, row.wide, values);
    cuda::load_some(row.g + at, count, row.wide, gradients);
    cuda::load_some(row.codes + at, count, true, codes);
    const float scale = row.scales[block];
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) {
      v[k] = cuda::state_value(numbers[codes[k]], scale);
      sgd_element(row.factors, values[k], gradients[k], v[k]);
      // Elements after the last one must not change the scale of the block.
      if (k >= count) v[k] = 0;
    }
    const float new_scale = cuda::encode_run(v, table.map, &row.key, at, codes);
    cuda::store_some(row.p + at, count, row.wide, values);
    cuda::store_some(row.codes + at, count, true, codes);
    if (lane == 0) row.scales[block] = new_scale;
  }
}

}  // namespace

void sgd8bit_steps_kernel(Cuda, const std::vector<Sgd8bitUpdate>& updates) {
  Table table;
  table.map = cuda::device_map(StateMap::with_sign);
  const auto row = [&](const Sgd8bitUpdate& u) {
    return Row{u.parameter.mut<float>(),
               u.gradient.data<float>(),
               u.velocity.codes.mut<uint8_t>(),
               u.velocity.scales.mut<float>(),
               u.parameter.numel(),
               table.chunks,
               SgdFactors<float>::of(u.step),
               u.key,
               cuda::loads_packs(u)};
  };
  cuda::with_state_tables(table, updates, row, [&] {
    cuda::with_late(table, [&]<class Argument>(const Argument& argument) {
      cuda::launch(update_packed_momentum_kernel<Argument>,
                   cuda::state_grid(table.chunks * kStateBlock), argument);
    });
  });
}

}  // namespace frugal::ops
