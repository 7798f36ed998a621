// How a kernel takes an argument that may be late (core/cuda/cuda_late.h). For .cu files.
//
//   template <class Argument>
//   __global__ void update_kernel(const Argument argument) {
//     const Table* table = cuda::value_of(argument);
//     if (table == nullptr) return;  // the guard is 0
//     ...
//   cuda::with_late(table, [&]<class Argument>(const Argument& argument) {
//     cuda::launch(update_kernel<Argument>, grid, argument);
//   });
#pragma once
#include "core/cuda/cuda.h"
#include "core/cuda/cuda_late.h"

namespace frugal::cuda {

// Whether this thread is in LateArguments::renew(). If so, queueing work is an error.
bool renewing();

template <class T>
struct Late {
  const T* value;
  const uint8_t* guard;
};

// The value of an argument, which is a T itself or a Late<T>. Null if the guard says that the work
// must not run.
template <class T>
__device__ __forceinline__ const T* value_of(const T& argument) {
  return &argument;
}
template <class T>
__device__ __forceinline__ const T* value_of(const Late<T>& argument) {
  return *argument.guard != 0 ? argument.value : nullptr;
}

// Calls f(argument), which launches kernels. `argument` is `table`; while work is captured it is a
// Late<Table>, which points to the table's place on the device. While late arguments are renewed, f
// is not called.  Table: its last member is the array `row`, of which `rows` elements are used.
template <class Table, class F>
void with_late(const Table& table, const F& f) {
  LateArguments* late = LateArguments::current();
  if (late == nullptr) return f(table);
  const auto bytes =
      reinterpret_cast<const char*>(table.row + table.rows) - reinterpret_cast<const char*>(&table);
  if (const void* at = late->place(&table, bytes))
    f(Late<Table>{static_cast<const Table*>(at), late->guard()});
}

}  // namespace frugal::cuda
