// Codecs of codecs on CUDA, and those that work through the host: what the CPU's give.
#include "compress/bounded/error_bounded.h"
#include "compress/quantize/mixed.h"
#include "tests/cuda/packing.h"

namespace frugal::compress {
namespace {

using gpu::live;

void check_unpacked(const Packed& here, const Packed& there, int64_t begin, int64_t end) {
  CHECK(gpu::same_bits(here.unpack(), there.unpack()));
  CHECK(gpu::same_bits(here.unpack_rows(begin, end), there.unpack_rows(begin, end)));
}

}  // namespace

TEST_CASE("samples of several widths have the CPU's bytes on CUDA") {
  if (!gpu::available()) return;
  const int64_t before = live();
  for (const Shape& shape : {Shape{6, 24, 12}, Shape{9, 256, 4}, Shape{7, 20, 5}}) {
    CAPTURE(shape.str());
    const MixedQuantizer codec({256, Rounding::dithered, 3}),
        codec_there({256, Rounding::dithered, 3});
    std::vector<int> widths;
    for (int64_t n = 0; n < shape[0]; ++n) widths.push_back(1 + static_cast<int>(n * 5 % 7));
    const Tensor x = gpu::normals(shape, DType::f32, 2);
    gpu::put(x, 77, std::nanf(""));
    const auto here = codec.pack(x, {}, widths);
    const auto there = codec_there.pack(to_device(x, gpu::kCuda), {}, widths);
    CHECK(gpu::same_bits(gpu::payload(*here), gpu::payload(*there)));
    CHECK(codec.nonfinite_groups() == codec_there.nonfinite_groups());
    check_unpacked(*here, *there, 1, shape[0] - 1);
  }
  CHECK(live() == before);
}

TEST_CASE("samples of several widths carry signs on CUDA") {
  if (!gpu::available()) return;
  const Shape shape{6, 64, 8};
  const Tensor x = gpu::normals(shape, DType::f32, 2), mask = gpu::mask_of(shape);
  const std::vector<int> widths = {2, 4, 2, 8, 4, 3};
  const MixedQuantizer codec;
  const Sign sign{mask, 0}, sign_there{to_device(mask, gpu::kCuda), 0};
  SaveInfo info, info_there;
  info.sign = &sign, info_there.sign = &sign_there;
  const auto here = codec.pack(x, info, widths);
  const auto there = codec.pack(to_device(x, gpu::kCuda), info_there, widths);
  REQUIRE(there->carries_sign());
  CHECK(gpu::same_bits(gpu::payload(*here), gpu::payload(*there)));
  CHECK(gpu::same_bits(mask.view(here->unpack_sign().shape()), there->unpack_sign()));
  CHECK(gpu::same_bits(here->unpack_sign_rows(1, 4), there->unpack_sign_rows(1, 4)));
  check_unpacked(*here, *there, 2, 5);
}

TEST_CASE("error-bounded codecs keep payloads on CUDA, with the CPU's values") {
  if (!gpu::available()) return;
  const int64_t before = live();
  const Tensor x = gpu::normals({40, 9, 12}, DType::f32, 3);
  for (const std::string& name : error_bounded_names()) {
    CAPTURE(name);
    const auto codec = make_error_bounded(name);
    const auto here = codec->pack(x, 0.05, {});
    const auto there = codec->pack(to_device(x, gpu::kCuda), 0.05, {});
    const auto& kept = gpu::bounded_payload(*there);
    CHECK(kept.device() == gpu::kCuda);
    CHECK(gpu::same_bits(gpu::bounded_payload(*here), kept));
    check_unpacked(*here, *there, 3, 21);
  }
  CHECK(live() == before);
}

}  // namespace frugal::compress
