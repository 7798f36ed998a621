#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/commands.h"
#include "apps/progress.h"
#include "apps/report.h"
#include "autograd/engine.h"
#include "core/parallel.h"
#include "tests/op_table/op_table.h"

namespace frugal::apps {
namespace {

template <class F>
double milliseconds(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace

void bench_ops(const BenchArguments& arguments) {
  const int64_t repeats = arguments.repeats > 0 ? arguments.repeats : 5;
  Json list = Json::array();
  std::vector<std::vector<std::string>> lines = {
      {"op", "shape", "forward", "backward", "kept for backward"}};
  for (const op_table::Op& op : op_table::rows()) {
    if (op.bench.name.empty()) continue;
    const Variables inputs = op_table::make_inputs(op.bench, DType::f32);
    std::vector<double> forward, back;
    int64_t kept = 0;
    if (op.bench.saved)
      for (int64_t bytes : op.bench.saved(size_of(DType::f32))) kept += bytes;
    for (int64_t round = -1; round < repeats; ++round) {
      Variable y;
      const double f = milliseconds([&] { y = op.bench.run(inputs); });
      Tensor dy;
      {
        CategoryScope scope(Category::gradient);
        dy = Tensor::full(y.shape(), 1, y.dtype());
      }
      const double b =
          y.producer() == nullptr ? 0 : milliseconds([&] { backward(y, std::move(dy)); });
      for (Variable input : inputs) input.zero_grad();
      if (round < 0) continue;  // the first prepares kernels and memory
      forward.push_back(f);
      back.push_back(b);
    }
    const double f = median(forward), b = median(back);
    list.push_back({{"op", op.name},
                    {"case", op.bench.name},
                    {"forward_ms", f},
                    {"backward_ms", b},
                    {"saved_bytes", kept}});
    lines.push_back({op.name, op.bench.name, fmt::format("{:.3f} ms", f),
                     fmt::format("{:.3f} ms", b), readable_bytes(kept)});
  }
  if (arguments.json) {
    const Json document = {{"threads", num_threads()}, {"repeats", repeats}, {"results", list}};
    std::printf("%s\n", document.dump(2).c_str());
    return;
  }
  std::printf("%d threads, f32, medians of %lld\n%s", num_threads(),
              static_cast<long long>(repeats), table(lines).c_str());
}

}  // namespace frugal::apps
