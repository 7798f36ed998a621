// The entropy stage on CUDA: the CPU's bytes, and nothing of them on the host.
#include "compress/entropy/entropy.h"

#include <cmath>
#include <limits>

#include "compress/entropy/entropy_kernels.h"
#include "compress/offload/offload.h"
#include "compress/quantize/mixed.h"
#include "core/cuda/cuda_graph.h"
#include "tests/compress/offload/offload_samples.h"
#include "tests/compress/quantize/samples.h"
#include "tests/cuda/packing.h"

namespace frugal::compress {
namespace {

using gpu::live, gpu::mask_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr EntropyOptions kAlways{-kInfinity, 0};

enum class Values : uint8_t { constant, two, uniform, normal, rare };

Tensor draw(Values values, const Shape& shape, DType dtype = DType::f32) {
  const Tensor x = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const float u = uniform({3, 0}, at), g = normal({4, 0}, at);
    switch (values) {
      case Values::constant:
        gpu::put(x, i, 2.5f);
        break;
      case Values::two:
        gpu::put(x, i, u < 0.1f ? 1.0f : 0.0f);
        break;
      case Values::uniform:
        gpu::put(x, i, u);
        break;
      case Values::normal:
        gpu::put(x, i, g);
        break;
      case Values::rare:
        gpu::put(x, i, u < 0.001f ? 100 * g : 0.01f * g);
        break;
    }
  }
  return x;
}

std::shared_ptr<Quantizer> quantizer(int bits, GroupAxis axis = GroupAxis::column,
                                     int64_t group = 256) {
  return std::make_shared<Quantizer>(QuantizeOptions{bits, group, axis, Rounding::stochastic, 5});
}

// A mixed quantizer of given widths.
class MixedCodec final : public Codec {
 public:
  explicit MixedCodec(std::vector<int> cycle) : cycle_(std::move(cycle)) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    const Samples samples = samples_of(tensor.shape(), info.sign != nullptr);
    std::vector<int> widths(static_cast<size_t>(samples.count));
    for (size_t i = 0; i < widths.size(); ++i)
      widths[i] = cycle_[(7 * i + i / cycle_.size()) % cycle_.size()];
    return quantizer_.pack(tensor, info, widths);
  }

 private:
  std::vector<int> cycle_;
  MixedQuantizer quantizer_;
};

const Tensor& coded_payload(const Packed& packed) {
  const auto* coded = dynamic_cast<const EntropyCoded*>(&packed);
  return coded != nullptr ? coded->payload() : gpu::payload(packed);
}
bool is_coded(const Packed& packed) {
  return dynamic_cast<const EntropyCoded*>(&packed) != nullptr;
}

// Checks that both devices make equal bytes, and that these unpack to what the inner codec alone
// gives. Returns whether they are coded.
bool check_coded(const std::shared_ptr<const Codec>& inner, const EntropyOptions& options,
                 const Tensor& x, const Tensor& mask = {}) {
  const Entropy codec(inner, options);
  SaveInfo info = entry(1), info_there = info;
  const Sign sign{mask, 0}, sign_there{mask.defined() ? to_device(mask, gpu::kCuda) : mask, 0};
  if (mask.defined()) info.sign = &sign, info_there.sign = &sign_there;
  const Tensor x_there = to_device(x, gpu::kCuda);
  const int64_t packed_before = live(Category::packed), work_before = live(Category::workspace);
  const auto here = codec.pack(x, info), there = codec.pack(x_there, info_there);
  CHECK(is_coded(*here) == is_coded(*there));
  CHECK(coded_payload(*there).device() == gpu::kCuda);
  CHECK(gpu::same_bits(coded_payload(*here), coded_payload(*there)));
  CHECK(live(Category::packed) - packed_before < coded_payload(*here).nbytes() + 64);
  CHECK(live(Category::workspace) == work_before);
  CHECK(there->knows_variance() == here->knows_variance());
  if (here->knows_variance()) CHECK(gpu::same_bits(variance_of(*here), variance_of(*there)));
  const auto plain = inner->pack(x_there, info_there);
  CHECK(gpu::same_bits(to_device(plain->unpack(), kCpu), there->unpack()));
  const int64_t n = x.shape()[0];
  const std::pair<int64_t, int64_t> ranges[] = {{0, 1}, {n / 3, n / 2}, {n - 1, n}, {n, n}};
  for (const auto& range : ranges)
    CHECK(gpu::same_bits(to_device(plain->unpack_rows(range.first, range.second), kCpu),
                         there->unpack_rows(range.first, range.second)));
  CHECK(there->carries_sign() == here->carries_sign());
  if (here->carries_sign()) CHECK(gpu::same_bits(here->unpack_sign(), there->unpack_sign()));
  return is_coded(*there);
}

}  // namespace

TEST_CASE("coded payloads on CUDA have the CPU's bytes, at any width") {
  if (!gpu::available()) return;
  for (int bits = 1; bits <= 16; ++bits) {
    CAPTURE(bits);
    for (const GroupAxis axis : {GroupAxis::column, GroupAxis::row})
      CHECK(check_coded(quantizer(bits, axis), kAlways, draw(Values::rare, {530, 24})));
    CHECK(check_coded(quantizer(bits), kAlways, draw(Values::normal, {700, 5}, DType::bf16)));
  }
}

TEST_CASE("planes that are coded, constant and kept as they are, in blocks of all sorts") {
  if (!gpu::available()) return;
  for (const Values values :
       {Values::constant, Values::two, Values::uniform, Values::normal, Values::rare})
    for (const int bits : {2, 7, 16}) {
      CAPTURE(static_cast<int>(values));
      CAPTURE(bits);
      for (const Shape& shape : {Shape{1, 1}, Shape{12, 10, 9, 7}, Shape{6000, 9}})
        CHECK(check_coded(quantizer(bits), kAlways, draw(values, shape)));
    }
  for (const int64_t group : {64, 1000})
    CHECK(check_coded(quantizer(3, GroupAxis::column, group), kAlways,
                      draw(Values::two, {8000, 13})));
}

TEST_CASE("a block that does not fit its table is kept as it is on CUDA too") {
  if (!gpu::available()) return;
  const Tensor x = draw(Values::two, {1 << 14, 16});
  for (int64_t i = 1 << 16; i < (1 << 16) + (1 << 15); ++i)
    gpu::put(x, i, uniform({7, 0}, static_cast<uint64_t>(i)));
  CHECK(check_coded(quantizer(4), {}, x));
}

TEST_CASE("whether coding pays is decided on CUDA as on the CPU") {
  if (!gpu::available()) return;
  for (const int bits : {1, 4, 5}) {
    CAPTURE(bits);
    const Tensor two = draw(Values::two, {4096, 16}), even = draw(Values::uniform, {4096, 16});
    CHECK(check_coded(quantizer(bits), {0.05, 1000}, two));
    CHECK(!check_coded(quantizer(bits), {0.05, 1000}, even));
    CHECK(!check_coded(quantizer(bits), {0.99, 1000}, two));
    // About as much as there is to save: the bytes must be alike, whatever is decided.
    for (const double saving : {0.3, 0.4, 0.5}) check_coded(quantizer(bits), {saving, 0}, two);
  }
  CHECK(!check_coded(quantizer(4), {}, draw(Values::two, {1024, 16})));  // 8 KiB
  const auto none =
      Entropy(quantizer(4), kAlways).pack(to_device(Tensor::zeros({0, 16}), gpu::kCuda), entry(1));
  CHECK(none->unpack().shape() == Shape{0, 16});
}

TEST_CASE("coded samples of several widths, and codes that carry signs, on CUDA") {
  if (!gpu::available()) return;
  std::vector<int> all;
  for (int bits = 1; bits <= 16; ++bits) all.push_back(bits);
  for (const Shape& shape : {Shape{40, 16, 16, 6}, Shape{70, 8, 8, 16}, Shape{1500, 12}})
    for (const auto& cycle : {std::vector<int>{2, 1, 3, 8, 2}, all})
      for (const bool with_sign : {false, true}) {
        CAPTURE(shape);
        CAPTURE(with_sign);
        CHECK(check_coded(std::make_shared<MixedCodec>(cycle), kAlways, draw(Values::two, shape),
                          with_sign ? mask_of(shape) : Tensor()));
      }
  const auto mixed = std::make_shared<MixedCodec>(std::vector<int>{1, 2, 4, 2, 3});
  CHECK(check_coded(mixed, {}, draw(Values::two, {100, 8, 8, 16})));
  CHECK(!check_coded(mixed, {}, draw(Values::uniform, {100, 8, 8, 16})));
  const Shape shape{64, 4, 4, 24};
  CHECK(check_coded(quantizer(4), kAlways, draw(Values::normal, shape), mask_of(shape)));
}

TEST_CASE("groups with NaN, coded on CUDA") {
  if (!gpu::available()) return;
  const Tensor x = draw(Values::normal, {300, 8});
  gpu::put(x, 77, std::nanf(""));
  CHECK(check_coded(quantizer(4), kAlways, x));
}

TEST_CASE("packing waits once, and as long as the device plans as the host does") {
  if (!gpu::available()) return;
  bool coded = false, kept = false;
  for (const Values values :
       {Values::constant, Values::two, Values::uniform, Values::normal, Values::rare})
    for (const int bits : {2, 4, 7, 8, 16})
      for (const double saving : {-kInfinity, 0.05, 0.3}) {
        CAPTURE(static_cast<int>(values));
        CAPTURE(bits);
        CAPTURE(saving);
        const Tensor x = to_device(draw(values, {6000, 9}), gpu::kCuda);
        auto packed = quantizer(bits)->pack(x, entry(1));
        const int64_t before = gpu::waits();
        packed = entropy_code(std::move(packed), {saving, 0});
        if (gpu::emulated()) CHECK(gpu::waits() - before == 1);
        (is_coded(*packed) ? coded : kept) = true;
      }
  CHECK(coded);
  CHECK(kept);
}

TEST_CASE("where the device does not foresee the plan, bytes are the same") {
  if (!gpu::available()) return;
  for (const Values values : {Values::two, Values::normal, Values::rare}) {
    const auto codec = std::make_shared<MixedCodec>(std::vector<int>{2, 1, 3, 8, 2});
    const auto packed = codec->pack(to_device(draw(values, {70, 8, 8, 16}), gpu::kCuda), entry(1));
    const auto& plain = dynamic_cast<const Grouped&>(*packed);
    const entropy::CodeMap map(plain.parts());
    const Tensor one = entropy::encode_kernel(Cuda{}, plain.payload(), map, -kInfinity);
    const int64_t before = gpu::waits();
    const Tensor other = entropy::encode_kernel(Cuda{}, plain.payload(), map, -kInfinity, false);
    if (gpu::emulated()) CHECK(gpu::waits() - before == 2);
    REQUIRE(one.defined());
    CHECK(gpu::same_bits(to_device(one, kCpu), other));
  }
}

TEST_CASE("nothing of a payload goes through the host") {
  if (!gpu::available()) return;
  const Tensor x = to_device(draw(Values::two, {1 << 15, 16}), gpu::kCuda);
  const Entropy codec(quantizer(8));
  const int64_t plain = quantizer(8)->packed_bytes(x.shape());
  allocator(kCpu).reset_peak();
  const int64_t before = allocator(kCpu).report().peak_total;
  const auto packed = codec.pack(x, entry(1));
  REQUIRE(is_coded(*packed));
  packed->unpack_rows(5, 300);
  CHECK(allocator(kCpu).report().peak_total - before < plain / 16);
}

TEST_CASE("memory of coding on CUDA: what fails leaves nothing, and no second copy of the codes") {
  if (!gpu::available()) return;
  const Tensor small = to_device(draw(Values::two, {1 << 11, 16}), gpu::kCuda),
               x = to_device(draw(Values::two, {1 << 14, 16}), gpu::kCuda);
  const Entropy codec(quantizer(8));
  Allocator& there = allocator(gpu::kCuda);
  const int64_t before = there.report().live_total;
  int failures = 0;
  for (int64_t n = 0; n >= 0; ++n) {
    there.fail_after(n);
    try {
      codec.pack(small, entry(1))->unpack_rows(3, 100);
      n = -2;
    } catch (const OutOfMemory&) {
      ++failures;
    }
    there.fail_after(-1);
    CHECK(there.report().live_total == before);
  }
  CHECK(failures > 8);
  there.reset_peak();
  const auto packed = codec.pack(x, entry(1));
  const int64_t peak = there.report().peak_total - before;
  const int64_t both = quantizer(8)->packed_bytes(x.shape()) + coded_bytes(*packed);
  CHECK(peak < both + both / 16);
}

TEST_CASE("a coded payload on CUDA can lie in pinned memory for a while") {
  if (!gpu::available()) return;
  const TempFolder folder;
  OffloadOptions options;
  options.directory = folder.path();
  options.window = 6000;
  const auto codec = std::make_shared<Entropy>(quantizer(4), kAlways);
  const Offload offload(*codec, std::make_shared<PayloadStore>(options));
  std::vector<std::unique_ptr<Packed>> plain, moved;
  for (uint64_t i = 0; i < 6; ++i) {
    const Tensor x = to_device(draw(Values::rare, {300 + static_cast<int64_t>(i), 24}), gpu::kCuda);
    plain.push_back(quantizer(4)->pack(x, entry(i)));
    moved.push_back(offload.pack(x, entry(i)));
  }
  for (size_t i = 6; i-- > 0;) {
    if (i > 0) moved[i - 1]->prefetch();
    CHECK(gpu::same_bits(to_device(plain[i]->unpack_rows(7, 200), kCpu),
                         moved[i]->unpack_rows(7, 200)));
    CHECK(gpu::same_bits(to_device(plain[i]->unpack(), kCpu), moved[i]->unpack()));
    moved.pop_back();
  }
}

TEST_CASE("coding cannot be captured, and says why") {
  if (!gpu::available()) return;
  const Tensor x = to_device(draw(Values::two, {4096, 16}), gpu::kCuda);
  const Entropy codec(quantizer(8), kAlways);
  codec.pack(x, entry(1));  // what is made once is made before
  cuda::Graph graph;
  std::string message;
  try {
    graph.capture([&] { codec.pack(x, entry(1)); });
  } catch (const Error& e) {
    message = e.what();
  }
  CHECK(message.find("[entropy] expected work that is run, got work that is being captured") == 0);
}

}  // namespace frugal::compress
