#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "apps/commands.h"
#include "apps/report.h"
#include "compress/quantize.h"
#include "core/parallel.h"

namespace frugal::apps {
namespace {

constexpr int64_t kChannels = 64;
constexpr int kBits[] = {1, 2, 3, 4, 8};

template <class F>
double seconds(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void copy(const Tensor& from, const Tensor& to) {
  const auto* source = static_cast<const char*>(from.raw());
  auto* target = static_cast<char*>(to.raw());
  parallel_for(0, from.nbytes(), 1 << 20, [&](int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

struct Row {
  int bits, threads;
  std::vector<double> copy, pack, unpack;  // seconds
};

}  // namespace

void bench_quantizer(const BenchArguments& arguments) {
  const int64_t repeats = arguments.repeats > 0 ? arguments.repeats : 5;
  const int64_t bytes = arguments.mebibytes << 20;
  const int64_t rows = std::max<int64_t>(bytes / 4 / kChannels, 1);
  const Tensor values = Tensor::empty({rows, kChannels}), out = Tensor::empty({rows, kChannels});
  float* x = values.mut<float>();
  parallel_for(0, values.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = uniform({1, 0}, static_cast<uint64_t>(i)) - 0.5f;
  });
  copy(values, out);  // touches every page of both
  const int all = num_threads();
  std::vector<Row> results;
  std::vector<int> counts{1};
  if (all > 1) counts.push_back(all);
  for (int threads : counts)
    for (int bits : kBits) results.push_back({bits, threads, {}, {}, {}});
  uint64_t step = 0;
  for (int64_t round = -1; round < repeats; ++round) {
    for (Row& row : results) {
      set_num_threads(row.threads);
      compress::QuantizeOptions options;
      options.bits = row.bits;
      const compress::Quantizer quantizer(options);
      std::unique_ptr<Packed> packed;
      SaveInfo info;
      info.step = step++;
      const double copied = seconds([&] { copy(values, out); });
      const double pack = seconds([&] { packed = quantizer.pack(values, info); });
      const auto& quantized = dynamic_cast<const compress::Quantized&>(*packed);
      const double unpack = seconds([&] { quantized.unpack_into(out); });
      if (round < 0) continue;
      row.copy.push_back(copied);
      row.pack.push_back(pack);
      row.unpack.push_back(unpack);
    }
  }
  set_num_threads(all);
  Json list = Json::array();
  std::vector<std::vector<std::string>> lines = {
      {"bits", "threads", "memcpy", "pack", "over memcpy", "unpack", "over memcpy"}};
  for (const Row& row : results) {
    const auto size = static_cast<double>(values.nbytes());
    const double c = size / median(row.copy) / 1e9, p = size / median(row.pack) / 1e9,
                 u = size / median(row.unpack) / 1e9;
    list.push_back({{"bits", row.bits},
                    {"threads", row.threads},
                    {"memcpy_gb_per_s", c},
                    {"pack_gb_per_s", p},
                    {"unpack_gb_per_s", u},
                    {"pack_over_memcpy", p / c},
                    {"unpack_over_memcpy", u / c}});
    auto rate = [](double gb) { return fmt::format("{:.2f} GB/s", gb); };
    auto part = [](double ratio) { return fmt::format("{:.2f}", ratio); };
    lines.push_back({std::to_string(row.bits), std::to_string(row.threads), rate(c), rate(p),
                     part(p / c), rate(u), part(u / c)});
  }
  if (arguments.json) {
    const Json document = {{"bytes", values.nbytes()}, {"repeats", repeats}, {"results", list}};
    std::printf("%s\n", document.dump(2).c_str());
    return;
  }
  std::printf("f32 [%lld, %lld], rates in bytes of f32, medians of %lld\n%s",
              static_cast<long long>(rows), static_cast<long long>(kChannels),
              static_cast<long long>(repeats), table(lines).c_str());
}

}  // namespace frugal::apps
