#include <algorithm>
#include <cstdio>
#include <cstring>

#include "apps/bench/bench_place.h"
#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "compress/entropy/entropy.h"
#include "compress/quantize/quantize.h"
#include "core/parallel.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "train/statistics.h"

namespace frugal::apps {
namespace {

// The setting of a row: the width; whether codes carry a sign (half of the signs are set, the slope
// is 0); whether rounding is dithered; whether codes are entropy coded. Rows with entropy coding
// take values whose distribution has a peak and tails, because codes of uniform values would not
// shrink.
struct Format {
  int bits;
  bool sign = false, dithered = false, coded = false;
};
constexpr Format kFormats[] = {{1},
                               {2},
                               {3},
                               {4},
                               {5},
                               {6},
                               {7},
                               {8},
                               {.bits = 2, .sign = true},
                               {.bits = 4, .sign = true},
                               {.bits = 5, .sign = true},
                               {.bits = 2, .dithered = true},
                               {.bits = 4, .dithered = true},
                               {.bits = 2, .sign = true, .dithered = true},
                               {.bits = 4, .sign = true, .dithered = true},
                               {.bits = 2, .coded = true},
                               {.bits = 4, .coded = true},
                               {.bits = 8, .coded = true}};

void copy(const Tensor& from, const Tensor& to) {
  const auto* source = static_cast<const char*>(from.raw());
  auto* target = static_cast<char*>(to.raw());
  if (from.device() != kCpu)
    return copy_bytes(target, to.device(), source, from.device(), from.nbytes());
  parallel_for(0, from.nbytes(), 1 << 20, [&](int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

struct Row {
  Format format;
  int threads;
  int64_t payload = 0;                           // bytes
  std::vector<double> copy, pack, unpack, sign;  // seconds; `sign` empty without one
};

Tensor random_values(int64_t rows, int64_t channels, Device device) {
  const Tensor values = Tensor::empty({rows, channels});
  float* x = values.mut<float>();
  parallel_for(0, values.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = uniform({1, 0}, static_cast<uint64_t>(i)) - 0.5f;
  });
  return to_device(values, device);
}

// A rate as text, and its ratio to the rate of copying.
struct Rate {
  double gb_per_s, over_copy;
  std::string rate() const { return fmt::format("{:.2f} GB/s", gb_per_s); }
  std::string part() const { return fmt::format("{:.2f}", over_copy); }
};

}  // namespace

void bench_quantizer(const BenchArguments& arguments) {
  const bool on_cuda = arguments.device != "cpu";
  const auto [device, dtype, repeats] = bench_place(arguments, on_cuda ? 11 : 5, false);
  const int64_t bytes = arguments.mebibytes << 20;
  const int64_t rows = std::max<int64_t>(bytes / size_of(dtype) / arguments.channels, 1);
  Tensor values = random_values(rows, arguments.channels, device);
  const Sign sign{ops::rectify(values, 0, true).mask, 0};
  const Tensor peaked = ops::cast(ops::mul(values, ops::mul(values, values)), dtype);
  values = ops::cast(values, dtype);
  const Tensor out = Tensor::empty(values.shape(), dtype, device);
  copy(values, out);  // touches every page of both
  const int all = num_threads(), times = on_cuda ? 10 : 1;
  std::vector<Row> results;
  std::vector<int> counts{1};
  if (on_cuda) counts = {all};
  if (!on_cuda && all > 1) counts.push_back(all);
  for (int threads : counts)
    for (const Format& format : kFormats) results.push_back({format, threads, 0, {}, {}, {}, {}});
  uint64_t step = 0;
  for (int64_t round = -1; round < repeats; ++round) {
    for (Row& row : results) {
      set_num_threads(row.threads);
      compress::QuantizeOptions options;
      options.bits = row.format.bits;
      if (row.format.dithered) options.rounding = compress::Rounding::dithered;
      std::shared_ptr<const Codec> codec = std::make_shared<compress::Quantizer>(options);
      const Tensor& x = row.format.coded ? peaked : values;
      if (row.format.coded) codec = std::make_shared<compress::Entropy>(codec);
      std::unique_ptr<Packed> packed;
      SaveInfo info;
      info.step = step++;
      if (row.format.sign) info.sign = &sign;
      const double copied = seconds_of(
          device, [&] { copy(values, out); }, times);
      const auto pack_anew = [&] {
        packed.reset();  // the next one takes its bytes
        packed = codec->pack(x, info);
      };
      const double pack = seconds_of(device, pack_anew, times);
      row.payload = compress::coded_bytes(*packed);
      double unpack = 0, unpack_sign = 0;
      if (const auto* quantized = dynamic_cast<const compress::Quantized*>(packed.get())) {
        unpack = seconds_of(
            device, [&] { quantized->unpack_into(out); }, times);
      } else {
        for (int i = 0; i < times; ++i) {  // decodes once
          if (i > 0) pack_anew();
          unpack += seconds_of(device, [&] { packed->unpack(); }) / times;
        }
      }
      if (packed->carries_sign())
        unpack_sign = seconds_of(
            device, [&] { packed->unpack_sign(); }, times);
      if (round < 0) continue;
      row.copy.push_back(copied);
      row.pack.push_back(pack);
      row.unpack.push_back(unpack);
      if (packed->carries_sign()) row.sign.push_back(unpack_sign);
    }
  }
  set_num_threads(all);
  const char* base = on_cuda ? "copy" : "memcpy";
  const std::string over = fmt::format("over {}", base);
  Json list = Json::array();
  std::vector<std::vector<std::string>> lines = {{"bits", "sign", "rounding", "coded", "packed",
                                                  "threads", base, "pack", over, "unpack", over,
                                                  "sign alone", over}};
  for (const Row& row : results) {
    const int64_t size = values.nbytes(), mask = row.format.sign ? sign.mask.nbytes() : 0;
    // On the CPU the bytes of the tensor, on CUDA the bytes that are read and written.
    const auto rate_of = [&](int64_t moved, const std::vector<double>& taken) {
      return static_cast<double>(on_cuda ? moved : size) / median(taken) / 1e9;
    };
    const double copied = rate_of(2 * size, row.copy);
    const auto rate = [&](int64_t moved, const std::vector<double>& taken) {
      const double r = rate_of(moved, taken);
      return Rate{r, r / copied};
    };
    const Rate pack = rate(size + mask + row.payload, row.pack);
    const Rate unpack = rate(row.payload + size, row.unpack);
    list.push_back({{"bits", row.format.bits},
                    {"sign", row.format.sign},
                    {"rounding", row.format.dithered ? "dithered" : "stochastic"},
                    {"entropy_coded", row.format.coded},
                    {"threads", row.threads},
                    {"packed_bytes", row.payload},
                    {"memcpy_gb_per_s", copied},
                    {"pack_gb_per_s", pack.gb_per_s},
                    {"pack_over_memcpy", pack.over_copy},
                    {"unpack_gb_per_s", unpack.gb_per_s},
                    {"unpack_over_memcpy", unpack.over_copy}});
    lines.push_back(
        {std::to_string(row.format.bits), row.format.sign ? "yes" : "no",
         row.format.dithered ? "dithered" : "stochastic", row.format.coded ? "yes" : "no",
         fmt::format("{:.3f}", static_cast<double>(row.payload) / static_cast<double>(size)),
         std::to_string(row.threads), fmt::format("{:.2f} GB/s", copied), pack.rate(), pack.part(),
         unpack.rate(), unpack.part(), "-", "-"});
    if (row.sign.empty()) continue;
    const Rate alone = rate(row.payload + mask, row.sign);
    list.back()["unpack_sign_gb_per_s"] = alone.gb_per_s;
    list.back()["unpack_sign_over_memcpy"] = alone.over_copy;
    lines.back()[11] = alone.rate();
    lines.back()[12] = alone.part();
  }
  if (arguments.json) {
    const Json document = {{"device", arguments.device},
                           {"dtype", arguments.dtype},
                           {"shape", {rows, arguments.channels}},
                           {"bytes", values.nbytes()},
                           {"counted", on_cuda ? "read and written" : "of the tensor"},
                           {"repeats", repeats},
                           {"results", list}};
    print_json(document);
    return;
  }
  std::printf("%s [%lld, %lld] on %s, rates in bytes %s, medians of %lld\n%s",
              arguments.dtype.c_str(), static_cast<long long>(rows),
              static_cast<long long>(arguments.channels), arguments.device.c_str(),
              on_cuda ? "read and written" : "of the tensor", static_cast<long long>(repeats),
              table(lines).c_str());
}

}  // namespace frugal::apps
