// What benchmarks of kernels share: where they run, on what, how often, and their clock.
#pragma once
#include <chrono>
#include <string>

#include "core/dtype.h"
#include "core/memory/synchronize.h"

namespace frugal::apps {

// What a user says of the place.
struct PlaceArguments {
  int64_t repeats = 0;  // 0: what suits
  std::string device = "cpu", dtype = "f32";
};

struct BenchPlace {
  Device device;
  DType dtype;
  int64_t repeats;
};
// Sets the device up. `repeats`: the number of repeats if the arguments give none. `computes`
// false: values are packed and copied only, which every processor does in bf16, too.
// Errors: those of set_up_device().
BenchPlace bench_place(const PlaceArguments& arguments, int64_t repeats, bool computes = true);

// Seconds that f() takes, until the device has done it; on average over `times` in a row, so that
// queueing does not count on CUDA.
template <class F>
double seconds_of(Device device, F&& f, int times = 1) {
  synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) f();
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
}

}  // namespace frugal::apps
