#include <algorithm>
#include <cstdio>

#include "apps/bench/bench_place.h"
#include "apps/cli/commands.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "autograd/engine.h"
#include "bench/op_table/op_table.h"
#include "core/parallel.h"
#include "core/words/nouns.h"
#include "train/statistics.h"

namespace frugal::apps {
namespace {

struct Times {
  std::vector<double> forward, backward;  // seconds
};

Times measure(const op_table::Case& bench, DType dtype, Device device, int64_t repeats) {
  const Variables inputs = op_table::make_inputs(bench, dtype, device);
  Times times;
  for (int64_t round = -2; round < repeats; ++round) {
    Variable y;
    const double f = seconds_of(device, [&] { y = bench.run(inputs); });
    Tensor dy;
    {
      CategoryScope scope(Category::gradient);
      dy = Tensor::full(y.shape(), 1, y.dtype(), device);
    }
    const double b =
        y.producer() == nullptr ? 0 : seconds_of(device, [&] { backward(y, std::move(dy)); });
    for (Variable input : inputs) input.zero_grad();
    if (round < 0) continue;  // the first prepare kernels and memory
    times.forward.push_back(f);
    times.backward.push_back(b);
  }
  return times;
}

}  // namespace

void bench_ops(const BenchArguments& arguments) {
  const auto [device, dtype, repeats] = bench_place(arguments, 5);
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
    const double f = 1000 * median(times.forward), b = 1000 * median(times.backward);
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
    print_json(document);
    return;
  }
  std::printf("%s, %s, %s, medians of %lld\n%s", arguments.device.c_str(),
              with_noun(num_threads(), "thread").c_str(), arguments.dtype.c_str(),
              static_cast<long long>(repeats), table(lines).c_str());
}

}  // namespace frugal::apps
