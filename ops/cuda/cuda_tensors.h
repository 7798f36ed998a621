// One kernel launch over many f32 tensors, for the updates of all parameters. For .cu files.
//
// The argument of the kernel lists the tensors, so nothing is copied to the device before. The
// argument has up to 32,764 bytes, which needs CUDA 12.1. In captured updates, whose factors change
// from step to step, the argument is late (core/cuda/cuda_late_kernel.h). A block takes a chunk of
// kTensorChunk elements.
#pragma once
#include <algorithm>
#include <vector>

#include "core/cuda/cuda_kernel.h"
#include "core/cuda/cuda_late_kernel.h"
#include "core/memory.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

inline constexpr int64_t kTensorChunk = 8192;  // elements

// Factors: the numbers that the update of one tensor uses.
template <int kTensors, class Factors>
struct TensorRow {
  float* at[kTensors];
  int64_t n;
  int64_t first_chunk;
  Factors factors;
};
template <int kTensors, class Factors>
struct TensorTable {
  using Row = TensorRow<kTensors, Factors>;
  static constexpr int kRows = 32000 / static_cast<int>(sizeof(Row));
  int64_t chunks = 0;
  int rows = 0;
  Row row[kRows];
};

// The number of the row whose tensor holds a chunk.
template <class Table>
__device__ __forceinline__ int row_at(const Table& table, int64_t chunk) {
  int low = 0, high = table.rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.row[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}
template <class Table>
__device__ __forceinline__ typename Table::Row row_of(const Table& table, int64_t chunk) {
  return table.row[row_at(table, chunk)];
}

// Calls f(values) for each element of a chunk; values[t] is the element of tensor t. kRead and
// kWritten have a bit for each tensor that is read and for each that is written.
template <int kTensors, unsigned kRead, unsigned kWritten, class Factors, class F>
__device__ __forceinline__ void for_chunk(const TensorRow<kTensors, Factors>& row, int64_t chunk,
                                          const F& f) {
  constexpr int kSize = Pack<float>::kSize;
  const int64_t begin = (chunk - row.first_chunk) * kTensorChunk;
  const int64_t end = std::min(begin + kTensorChunk, row.n);
  bool packs = true;
#pragma unroll
  for (int t = 0; t < kTensors; ++t)
    packs = packs && reinterpret_cast<uintptr_t>(row.at[t]) % 16 == 0;
  const int64_t whole = packs ? begin + (end - begin) / kSize * kSize : begin;
  const int64_t step = blockDim.x;
  for (int64_t i = begin + threadIdx.x * kSize; i < whole; i += step * kSize) {
    Pack<float> pack[kTensors] = {};
#pragma unroll
    for (int t = 0; t < kTensors; ++t)
      if ((kRead >> t & 1) != 0) pack[t] = load_pack(row.at[t] + i);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      float values[kTensors];
#pragma unroll
      for (int t = 0; t < kTensors; ++t) values[t] = pack[t].at[k];
      f(values);
#pragma unroll
      for (int t = 0; t < kTensors; ++t) pack[t].at[k] = values[t];
    }
#pragma unroll
    for (int t = 0; t < kTensors; ++t)
      if ((kWritten >> t & 1) != 0) store_pack(row.at[t] + i, pack[t]);
  }
  for (int64_t i = whole + threadIdx.x; i < end; i += step) {
    float values[kTensors] = {};
#pragma unroll
    for (int t = 0; t < kTensors; ++t)
      if ((kRead >> t & 1) != 0) values[t] = row.at[t][i];
    f(values);
#pragma unroll
    for (int t = 0; t < kTensors; ++t)
      if ((kWritten >> t & 1) != 0) row.at[t][i] = values[t];
  }
}

// F has kTensors, kWritten, Factors, and apply(factors, values).
template <class F, class Argument>
__global__ void update_tensors_kernel(const Argument argument) {
  const TensorTable<F::kTensors, typename F::Factors>* table = value_of(argument);
  if (table == nullptr) return;
  for (int64_t chunk = blockIdx.x; chunk < table->chunks; chunk += gridDim.x) {
    const auto row = row_of(*table, chunk);
    for_chunk<F::kTensors, ~0u, F::kWritten>(
        row, chunk, [&](float(&values)[F::kTensors]) { F::apply(row.factors, values); });
  }
}

// totals[row] becomes the sum of partial[chunk] over the chunks of the row; each has kSums numbers.
// One block for each row.
template <int kSums, class Argument>
__global__ void sum_rows_kernel(const Argument argument, const double* partial, double* totals) {
  const auto* table = value_of(argument);
  if (table == nullptr) return;
  for (int row = static_cast<int>(blockIdx.x); row < table->rows;
       row += static_cast<int>(gridDim.x)) {
    const int64_t end = row + 1 < table->rows ? table->row[row + 1].first_chunk : table->chunks;
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      double sum = 0;
      for (int64_t i = table->row[row].first_chunk + threadIdx.x; i < end; i += blockDim.x)
        sum += partial[i * kSums + k];
      sum = block_sum(sum);
      if (threadIdx.x == 0) totals[row * kSums + k] = sum;
    }
  }
}

// The contents of one row, as the host gives them.
template <int kTensors, class Factors>
struct TensorEntry {
  const Tensor* tensors[kTensors];
  Factors factors;
};

// Calls f(table) for as many entries at a time as a table holds. Nearly always one call takes all.
template <int kTensors, class Factors, class F>
void with_tables(const std::vector<TensorEntry<kTensors, Factors>>& entries, F f) {
  using Table = TensorTable<kTensors, Factors>;
  static_assert(sizeof(Table) <= 32764);
  for (size_t first = 0; first < entries.size(); first += static_cast<size_t>(Table::kRows)) {
    Table table;
    const size_t last = std::min(entries.size(), first + static_cast<size_t>(Table::kRows));
    for (size_t e = first; e < last; ++e) {
      const int64_t n = entries[e].tensors[0]->numel();
      auto& row = table.row[table.rows++];
      for (int t = 0; t < kTensors; ++t) row.at[t] = entries[e].tensors[t]->template mut<float>();
      row.n = n;
      row.first_chunk = table.chunks;
      row.factors = entries[e].factors;
      table.chunks += (n + kTensorChunk - 1) / kTensorChunk;
    }
    if (table.chunks > 0) f(table);
  }
}

// Updates that need kSums sums over each tensor first. sums(argument, grid, partial) launches the
// kernel that adds the numbers of each chunk; update(argument, grid, totals) the one that uses the
// sums of each tensor, [row][kSums].
template <int kSums, int kTensors, class Factors, class Sums, class Update>
void update_by_sums(const std::vector<TensorEntry<kTensors, Factors>>& entries, Sums sums,
                    Update update) {
  if (entries.empty()) return;
  const CategoryScope scope(Category::workspace);
  const Device device = entries[0].tensors[0]->device();
  with_tables(entries, [&](const auto& table) {
    with_late(table, [&]<class Argument>(const Argument& argument) {
      const Tensor room = Tensor::empty({kSums * (table.chunks + table.rows)}, DType::f64, device);
      double* partial = room.mut<double>();
      double* totals = partial + kSums * table.chunks;
      const Grid chunks{blocks_for(table.chunks, 1)};
      sums(argument, chunks, partial);
      launch(sum_rows_kernel<kSums, Argument>, {blocks_for(table.rows, 1)}, argument, partial,
             totals);
      update(argument, chunks, totals);
    });
  });
}

template <class F>
void update_tensors(const std::vector<TensorEntry<F::kTensors, typename F::Factors>>& entries) {
  with_tables(entries, [](const auto& table) {
    with_late(table, [&]<class Argument>(const Argument& argument) {
      launch(update_tensors_kernel<F, Argument>, {blocks_for(table.chunks, 1)}, argument);
    });
  });
}

}  // namespace frugal::ops::cuda
