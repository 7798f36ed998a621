#include "apps/bench/bench_place.h"

#include "apps/config/set_up_device.h"

namespace frugal::apps {

BenchPlace bench_place(const PlaceArguments& arguments, int64_t repeats, bool computes) {
  RunConfig run;
  run.device = arguments.device;
  if (computes && arguments.device == "cpu") run.precision = arguments.dtype;
  const Device device = set_up_device(run);
  const DType dtype = arguments.dtype == "bf16" ? DType::bf16 : DType::f32;
  return {device, dtype, arguments.repeats > 0 ? arguments.repeats : repeats};
}

}  // namespace frugal::apps
