// Fixed-point codes within error bounds on CUDA: the CPU's bytes and values, made there.
#include <cmath>
#include <limits>

#include "compress/bounded/bounded_fixed.h"
#include "core/cuda/cuda_graph.h"
#include "tests/compress/quantize/samples.h"
#include "tests/cuda/packing.h"

namespace frugal::compress {
namespace {

using gpu::bounded_payload, gpu::live;

// Returns whether zeros became masks.
bool check_bounded(const BoundedFixedOptions& options, const Tensor& x, const ErrorBound& bound) {
  const BoundedFixed codec(options);
  const Tensor x_there = to_device(x, gpu::kCuda);
  const int64_t before = live();
  const auto here = codec.pack(x, bound, entry(1)), there = codec.pack(x_there, bound, entry(1));
  CHECK(bounded_payload(*there).device() == gpu::kCuda);
  CHECK(gpu::same_bits(bounded_payload(*here), bounded_payload(*there)));
  CHECK(live() - before <= (bounded_payload(*here).nbytes() + 63) / 64 * 64);
  CHECK(gpu::same_bits(here->unpack(), there->unpack()));
  const int64_t n = x.shape()[0];
  const std::pair<int64_t, int64_t> ranges[] = {{0, 1}, {n / 3, n / 2}, {n - 1, n}, {n, n}};
  for (const auto& range : ranges)
    CHECK(gpu::same_bits(here->unpack_rows(range.first, range.second),
                         there->unpack_rows(range.first, range.second)));
  CHECK(live() - before <= (bounded_payload(*here).nbytes() + 63) / 64 * 64);
  const bool masked = static_cast<const PackedFixed&>(*here).masked();
  CHECK(static_cast<const PackedFixed&>(*there).masked() == masked);
  return masked;
}

// Channels of very different spread, so that their widths differ; this share of values is 0.
Tensor spread(const Shape& shape, DType dtype, float zeros) {
  const Tensor x = Tensor::empty(shape, dtype);
  const int64_t channels = shape.back();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const float scale = std::ldexp(1.0f, static_cast<int>(i % channels * 7 % 19) - 12);
    const bool zero = uniform({6, 0}, at) < zeros;
    gpu::put(x, i, zero ? (i % 2 == 0 ? 0.0f : -0.0f) : scale * normal({5, 0}, at));
  }
  return x;
}

BoundedFixedOptions options_of(Rounding rounding, WidthRule rule, bool zeros) {
  BoundedFixedOptions options;
  options.of.rounding = rounding;
  options.of.seed = 9;
  options.rule = rule;
  options.zeros = zeros;
  return options;
}

const Shape kBoundedShapes[] = {{40, 9, 12}, {300, 3}, {5, 7}, {1}, {70, 300}, {9, 8, 8, 40}};

}  // namespace

TEST_CASE("fixed-point codes on CUDA have the CPU's bytes, at widths of all sorts") {
  if (!gpu::available()) return;
  for (const Shape& shape : kBoundedShapes)
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic})
      for (const WidthRule rule : {WidthRule::tight, WidthRule::published})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          CAPTURE(shape.str());
          const Tensor x = spread(shape, dtype, 0.2f);
          check_bounded(options_of(rounding, rule, false), x, 0.001);
        }
  // Bounds by channel: any error, none, and between.
  std::vector<double> bounds;
  for (int c = 0; c < 40; ++c) bounds.push_back(std::ldexp(1.0, -c));
  bounds[3] = std::numeric_limits<double>::infinity(), bounds[4] = 0;
  check_bounded(options_of(Rounding::nearest, WidthRule::tight, false),
                spread({9, 8, 8, 40}, DType::f32, 0), ErrorBound(bounds));
}

TEST_CASE("zeros as masks on CUDA have the CPU's bytes") {
  if (!gpu::available()) return;
  int masked = 0;
  for (const Shape& shape : kBoundedShapes)
    for (const float zeros : {0.1f, 0.6f, 0.9f})
      for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          CAPTURE(shape.str());
          masked += check_bounded(options_of(rounding, WidthRule::tight, true),
                                  spread(shape, dtype, zeros), 0.0005);
        }
  CHECK(masked > 20);
  // More columns than shared memory has room for; nothing but zeros.
  CHECK(check_bounded(options_of(Rounding::nearest, WidthRule::tight, true),
                      spread({20, 13000}, DType::f32, 0.8f),
                      ErrorBound(std::vector<double>(13000, 0.001))));
  check_bounded(options_of(Rounding::nearest, WidthRule::tight, true), Tensor::zeros({300, 8}),
                0.1);
}

TEST_CASE("values that no code can hold are kept as they are on CUDA") {
  if (!gpu::available()) return;
  for (const bool zeros : {false, true}) {
    const Tensor x = spread({300, 6}, DType::f32, 0.7f);
    gpu::put(x, 77, std::nanf(""));
    gpu::put(x, 6 * 50 + 2, std::numeric_limits<float>::infinity());
    gpu::put(x, 6 * 51 + 3, 3e38f);
    gpu::put(x, 6 * 52 + 3, -3e38f);
    gpu::put(x, 6 * 53 + 4, 1e-42f);
    check_bounded(options_of(Rounding::nearest, WidthRule::tight, zeros), x, 0.01);
  }
}

TEST_CASE("which zero is a channel's least does not show in its bytes") {
  // Ranges are gathered in any order: chunks of the CPU, threads of CUDA.
  const Tensor plus = Tensor::zeros({600, 5}), minus = Tensor::zeros({600, 5});
  for (int64_t i = 0; i < plus.numel(); ++i) {
    const float value = uniform({1, 0}, static_cast<uint64_t>(i));
    gpu::put(plus, i, value < 0.5f ? 0.0f : value);
    gpu::put(minus, i, value < 0.5f ? -0.0f : value);
  }
  const BoundedFixed codec;
  const auto a = codec.pack(plus, 0.01, entry(1)), b = codec.pack(minus, 0.01, entry(1));
  CHECK(gpu::same_bits(bounded_payload(*a), bounded_payload(*b)));
  if (!gpu::available()) return;
  const auto c = codec.pack(to_device(minus, gpu::kCuda), 0.01, entry(1));
  CHECK(gpu::same_bits(bounded_payload(*a), bounded_payload(*c)));
}

TEST_CASE("values within bounds do not go through the host") {
  if (!gpu::available()) return;
  for (const bool zeros : {false, true}) {
    const Tensor x = to_device(spread({4000, 16}, DType::f32, 0.7f), gpu::kCuda);
    allocator(kCpu).reset_peak();
    const int64_t before = allocator(kCpu).report().peak_total;
    const BoundedFixed codec(options_of(Rounding::nearest, WidthRule::tight, zeros));
    const auto packed = codec.pack(x, 0.001, entry(1));
    CHECK(static_cast<const PackedFixed&>(*packed).masked() == zeros);
    packed->unpack_rows(3, 3000);
    CHECK(allocator(kCpu).report().peak_total - before < x.nbytes() / 8);
  }
}

TEST_CASE("packing within bounds cannot be captured, and says why") {
  if (!gpu::available()) return;
  const Tensor x = to_device(spread({64, 16}, DType::f32, 0), gpu::kCuda);
  cuda::Graph graph;
  std::string message;
  try {
    graph.capture([&] { BoundedFixed().pack(x, 0.001, entry(1)); });
  } catch (const Error& e) {
    message = e.what();
  }
  CHECK(message.find(
            "[error_bounded] expected work that is run, got work that is being captured") == 0);
}

}  // namespace frugal::compress
