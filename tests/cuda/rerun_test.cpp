// Packing in captured work: each rerun draws the words of its own step, as the CPU would.
#include <functional>

#include "compress/quantize/mixed.h"
#include "core/cuda/cuda_graph.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "tests/cuda/packing.h"

namespace frugal::compress {
namespace {

SaveInfo at_step(uint64_t step, const Sign* sign = nullptr) {
  SaveInfo info;
  info.seq = 5;
  info.step = step;
  info.sign = sign;
  return info;
}

Tensor bits_of(const Shape& shape) {
  const Tensor mask = ops::empty_bitmask(shape, kCpu);
  for (int64_t i = 0; i < mask.numel(); ++i)
    mask.mut<uint8_t>()[i] = static_cast<uint8_t>(37 * i + i / 5);
  return mask;
}

// Packs and unpacks x and its mask as of step 20, captured, and compares reruns with the CPU.
using Pack = std::function<std::unique_ptr<Packed>(const Tensor&, const SaveInfo&)>;
void check_reruns(const Pack& pack, const Shape& shape, DType dtype, bool with_sign) {
  const int64_t end = shape[0] - 1;
  const Tensor x = gpu::normals(shape, dtype, 3), there = to_device(x, gpu::kCuda);
  const Tensor mask = bits_of(shape);
  const Sign sign{mask, 0.1}, sign_there{to_device(mask, gpu::kCuda), 0.1};
  Tensor bytes, rebuilt, rows;
  const auto work = [&] {
    const auto packed = pack(there, at_step(20, with_sign ? &sign_there : nullptr));
    bytes = gpu::payload(*packed);
    rebuilt = packed->unpack();
    rows = packed->unpack_rows(2, end);
  };
  work();  // what is made once is made before
  cuda::Graph graph;
  graph.capture(work);
  for (const uint64_t step : {20, 21, 1020, 20}) {
    CAPTURE(step);
    graph.rerun(step + 7, step - 20);
    const auto packed = pack(x, at_step(step, with_sign ? &sign : nullptr));
    REQUIRE(gpu::same_bits(gpu::payload(*packed), bytes));
    REQUIRE(gpu::same_bits(packed->unpack(), rebuilt));
    REQUIRE(gpu::same_bits(packed->unpack_rows(2, end), rows));
  }
  // Behind a rerun, steps are those that the host knows.
  const auto here = pack(x, at_step(3, with_sign ? &sign : nullptr));
  const auto packed = pack(there, at_step(3, with_sign ? &sign_there : nullptr));
  CHECK(gpu::same_bits(gpu::payload(*here), gpu::payload(*packed)));
}

}  // namespace

TEST_CASE("rerun packing draws anew: plain and split, stochastic and dithered") {
  if (!gpu::available()) return;
  for (const int bits : {2, 3, 4, 8, 11})
    for (const Rounding rounding : {Rounding::stochastic, Rounding::dithered, Rounding::nearest})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const bool with_sign : {false, true}) {
          CAPTURE(bits);
          CAPTURE(static_cast<int>(rounding));
          CAPTURE(with_sign);
          const Quantizer codec({bits, 256, GroupAxis::column, rounding, 5});
          check_reruns([&](const Tensor& x, const SaveInfo& info) { return codec.pack(x, info); },
                       {270, 36}, dtype, with_sign);
        }
}

TEST_CASE("rerun packing draws anew: samples of several widths") {
  if (!gpu::available()) return;
  const std::vector<int> widths = {2, 4, 2, 8, 4, 3};
  for (const bool with_sign : {false, true})
    for (const Rounding rounding : {Rounding::stochastic, Rounding::dithered}) {
      const MixedQuantizer codec({256, rounding, 3});
      check_reruns(
          [&](const Tensor& x, const SaveInfo& info) { return codec.pack(x, info, widths); },
          {6, 64, 8}, DType::f32, with_sign);
    }
}

}  // namespace frugal::compress
