// Updates of parameters whose optimizer keeps one moment, in 8 bits. For .cu files.
#pragma once
#include <vector>

#include "ops/cuda/cuda_tensors.h"
#include "ops/optimizer/blockwise_cuda.h"

namespace frugal::ops::cuda {

// Each tensor's update is a row, as in cuda_tensors.h. A chunk is a block of the state.
template <class Factors>
struct MomentTable {
  struct Row {
    float* p;
    const float* g;
    uint8_t* codes;
    float* scales;
    int64_t n, first_chunk;
    Factors factors;
    RngKey key;
    bool wide;  // p and g at multiples of 16 bytes
  };
  static constexpr int kRows =
      (32000 - static_cast<int>(sizeof(DeviceMap))) / static_cast<int>(sizeof(Row));
  DeviceMap map;
  int64_t chunks = 0;
  int rows = 0;
  Row row[kRows];
};

template <class Element, class Argument>
__global__ void update_one_moment_kernel(const Argument argument) {
  const auto* given = value_of(argument);
  if (given == nullptr) return;
  const auto& table = *given;
  __shared__ float numbers[256];
  numbers[threadIdx.x] = table.map.values[threadIdx.x];
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t chunk = first_index() / kWarp; chunk < table.chunks;
       chunk += index_stride() / kWarp) {
    const auto& row = table.row[row_at(table, chunk)];
    const int64_t block = chunk - row.first_chunk;
    const int64_t at = block * kStateBlock + lane * kStateRun, count = row.n - at;
    float values[kStateRun], gradients[kStateRun], moment[kStateRun];
    uint8_t codes[kStateRun];
    load_some(row.p + at, count, row.wide, values);
    load_some(row.g + at, count, row.wide, gradients);
    load_some(row.codes + at, count, true, codes);
    const float scale = row.scales[block];
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) {
      moment[k] = state_value(numbers[codes[k]], scale);
      Element::apply(row.factors, values[k], gradients[k], moment[k]);
      // Elements after the last one must not change the scale of the block.
      if (k >= count) moment[k] = 0;
    }
    const float new_scale = encode_run(moment, table.map, &row.key, at, codes);
    store_some(row.p + at, count, row.wide, values);
    store_some(row.codes + at, count, true, codes);
    if (lane == 0) row.scales[block] = new_scale;
  }
}

// Element::apply(factors, p, g, moment) updates an element of the parameter and of its moment,
// which state_of(update) gives, in the map with signs.
template <class Element, class Update, class StateOf>
void update_one_moment(const std::vector<Update>& updates, const StateOf& state_of) {
  using Factors = typename Element::Factors;
  using Table = MomentTable<Factors>;
  static_assert(sizeof(Table) <= 32764);
  Table table;
  table.map = device_map(StateMap::with_sign);
  const auto row = [&](const Update& u) {
    const BlockwiseState& state = *state_of(u);
    return typename Table::Row{u.parameter.template mut<float>(),
                               u.gradient.template data<float>(),
                               state.codes.template mut<uint8_t>(),
                               state.scales.template mut<float>(),
                               u.parameter.numel(),
                               table.chunks,
                               Factors::of(u.step),
                               u.key,
                               loads_packs(u)};
  };
  with_state_tables(table, updates, row, [&] {
    with_late(table, [&]<class Argument>(const Argument& argument) {
      launch(update_one_moment_kernel<Element, Argument>, state_grid(table.chunks * kStateBlock),
             argument);
    });
  });
}

}  // namespace frugal::ops::cuda
