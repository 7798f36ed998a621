#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "apps/commands.h"
#include "apps/report.h"
#include "compress/quantize.h"
#include "core/parallel.h"
#include "ops/bitmask.h"

namespace frugal::apps {
namespace {

constexpr int64_t kChannels = 64;

// What a row measures: a width, without or with a bit in the codes (half of them set, slope 0), and
// whether rounding is dithered.
struct Format {
  int bits;
  bool sign, dithered;
};
constexpr Format kFormats[] = {
    {1, false, false}, {2, false, false}, {3, false, false}, {4, false, false}, {5, false, false},
    {6, false, false}, {7, false, false}, {8, false, false}, {2, true, false},  {4, true, false},
    {5, true, false},  {2, false, true},  {4, false, true},  {2, true, true},   {4, true, true}};

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
  Format format;
  int threads;
  std::vector<double> copy, pack, unpack, sign;  // seconds; `sign` empty without one
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
  const Sign sign{ops::rectify(values, 0, true).mask, 0};
  const int all = num_threads();
  std::vector<Row> results;
  std::vector<int> counts{1};
  if (all > 1) counts.push_back(all);
  for (int threads : counts)
    for (const Format& format : kFormats) results.push_back({format, threads, {}, {}, {}, {}});
  uint64_t step = 0;
  for (int64_t round = -1; round < repeats; ++round) {
    for (Row& row : results) {
      set_num_threads(row.threads);
      compress::QuantizeOptions options;
      options.bits = row.format.bits;
      if (row.format.dithered) options.rounding = compress::Rounding::dithered;
      const compress::Quantizer quantizer(options);
      std::unique_ptr<Packed> packed;
      SaveInfo info;
      info.step = step++;
      if (row.format.sign) info.sign = &sign;
      const double copied = seconds([&] { copy(values, out); });
      const double pack = seconds([&] { packed = quantizer.pack(values, info); });
      const auto& quantized = dynamic_cast<const compress::Quantized&>(*packed);
      const double unpack = seconds([&] { quantized.unpack_into(out); });
      double unpack_sign = 0;
      if (quantized.carries_sign()) unpack_sign = seconds([&] { quantized.unpack_sign(); });
      if (round < 0) continue;
      row.copy.push_back(copied);
      row.pack.push_back(pack);
      row.unpack.push_back(unpack);
      if (quantized.carries_sign()) row.sign.push_back(unpack_sign);
    }
  }
  set_num_threads(all);
  Json list = Json::array();
  std::vector<std::vector<std::string>> lines = {{"bits", "sign", "rounding", "threads", "memcpy",
                                                  "pack", "over memcpy", "unpack", "over memcpy",
                                                  "sign alone", "over memcpy"}};
  for (const Row& row : results) {
    const auto size = static_cast<double>(values.nbytes());
    const double c = size / median(row.copy) / 1e9, p = size / median(row.pack) / 1e9,
                 u = size / median(row.unpack) / 1e9;
    list.push_back({{"bits", row.format.bits},
                    {"sign", row.format.sign},
                    {"rounding", row.format.dithered ? "dithered" : "stochastic"},
                    {"threads", row.threads},
                    {"memcpy_gb_per_s", c},
                    {"pack_gb_per_s", p},
                    {"unpack_gb_per_s", u},
                    {"pack_over_memcpy", p / c},
                    {"unpack_over_memcpy", u / c}});
    const double g = row.sign.empty() ? 0 : size / median(row.sign) / 1e9;
    if (!row.sign.empty()) {
      list.back()["unpack_sign_gb_per_s"] = g;
      list.back()["unpack_sign_over_memcpy"] = g / c;
    }
    auto rate = [](double gb) { return fmt::format("{:.2f} GB/s", gb); };
    auto part = [](double ratio) { return fmt::format("{:.2f}", ratio); };
    lines.push_back({std::to_string(row.format.bits), row.format.sign ? "yes" : "no",
                     row.format.dithered ? "dithered" : "stochastic", std::to_string(row.threads),
                     rate(c), rate(p), part(p / c), rate(u), part(u / c),
                     row.sign.empty() ? "-" : rate(g), row.sign.empty() ? "-" : part(g / c)});
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
