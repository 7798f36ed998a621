#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/commands.h"
#include "apps/makers.h"
#include "apps/progress.h"
#include "apps/report.h"
#include "autograd/engine.h"
#include "core/cuda_memory.h"
#include "core/parallel.h"
#include "tests/op_table/op_table.h"

namespace frugal::apps {
namespace {

// Until the device is done.
template <class F>
double milliseconds(Device device, F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  if constexpr (kHasCuda)
    if (device.type == DeviceType::cuda) cuda::synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

struct Times {
  std::vector<double> forward, backward;  // milliseconds
};

Times measure(const op_table::Case& bench, DType dtype, Device device, int64_t repeats) {
  const Variables inputs = op_table::make_inputs(bench, dtype, device);
  Times times;
  for (int64_t round = -2; round < repeats; ++round) {
    Variable y;
    const double f = milliseconds(device, [&] { y = bench.run(inputs); });
    Tensor dy;
    {
      CategoryScope scope(Category::gradient);
      dy = Tensor::full(y.shape(), 1, y.dtype(), device);
    }
    const double b =
        y.producer() == nullptr ? 0 : milliseconds(device, [&] { backward(y, std::move(dy)); });
    for (Variable input : inputs) input.zero_grad();
    if (round < 0) continue;  // the first prepare kernels and memory
    times.forward.push_back(f);
    times.backward.push_back(b);
  }
  return times;
}

}  // namespace

void bench_ops(const BenchArguments& arguments) {
  RunConfig place;
  place.device = arguments.device;
  const Device device = set_up_device(place);
  const DType dtype = arguments.dtype == "bf16" ? DType::bf16 : DType::f32;
  if (dtype == DType::bf16 && device == kCpu)
    throw ConfigError("", "--dtype: expected f32 on the cpu, got bf16");
  const int64_t repeats = arguments.repeats > 0 ? arguments.repeats : 5;
  Json list = Json::array();
  std::vector<std::vector<std::string>> lines = {
      {"op", "shape", "forward", "backward", "kept for backward"}};
  for (const op_table::Op& op : op_table::rows()) {
    if (op.bench.name.empty()) continue;
    Times times;
    try {
      times = measure(op.bench, dtype, device, repeats);
    } catch (const OutOfMemory&) {
      list.push_back({{"op", op.name}, {"case", op.bench.name}, {"out_of_memory", true}});
      lines.push_back({op.name, op.bench.name, "out of memory", "-", "-"});
      continue;
    }
    int64_t kept = 0;
    if (op.bench.saved)
      for (int64_t bytes : op.bench.saved(size_of(dtype))) kept += bytes;
    const double f = median(times.forward), b = median(times.backward);
    list.push_back({{"op", op.name},
                    {"case", op.bench.name},
                    {"forward_ms", f},
                    {"backward_ms", b},
                    {"saved_bytes", kept}});
    lines.push_back({op.name, op.bench.name, fmt::format("{:.3f} ms", f),
                     fmt::format("{:.3f} ms", b), readable_bytes(kept)});
  }
  if (arguments.json) {
    const Json document = {{"device", arguments.device},
                           {"dtype", arguments.dtype},
                           {"threads", num_threads()},
                           {"repeats", repeats},
                           {"results", list}};
    std::printf("%s\n", document.dump(2).c_str());
    return;
  }
  std::printf("%s, %d threads, %s, medians of %lld\n%s", arguments.device.c_str(), num_threads(),
              arguments.dtype.c_str(), static_cast<long long>(repeats), table(lines).c_str());
}

}  // namespace frugal::apps
