// The formats of packed weights against their definitions, and products against the unpacked
// weight.
#include "ops/dense/packed_matrix.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/rng.h"
#include "ops/dense/copy.h"
#include "ops/dense/matmul.h"
#include "ops/dense/packed_linear.h"

using namespace frugal;
using ops::MatrixFormat;

namespace {

constexpr MatrixFormat kFormats[] = {MatrixFormat::bf16, MatrixFormat::int8, MatrixFormat::nf4};

// QLoRA's appendix E, in the digits that are printed there.
constexpr double kNormalFloat[] = {
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
};

unsigned nearest_code(double share) {
  unsigned best = 0;
  for (unsigned code = 1; code < 16; ++code)
    if (std::fabs(kNormalFloat[code] - share) < std::fabs(kNormalFloat[best] - share)) best = code;
  return best;
}

// The numbers of 8-bit dynamic trees with a sign, made as Dettmers 2016 describes them: a decade
// for each length of the run of zeros, and the middles of equal parts in it.
std::vector<double> dynamic_numbers() {
  std::vector<double> numbers = {0, 1};
  for (int zeros = 0; zeros < 7; ++zeros) {
    const int parts = 1 << (6 - zeros);
    for (int part = 0; part < parts; ++part) {
      const double share = 0.1 + 0.9 * (part + 0.5) / parts;
      numbers.push_back(share * std::pow(10.0, -zeros));
      numbers.push_back(-numbers.back());
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace

TEST_CASE("nf4: codes are the nearest numbers of NormalFloat, two in a byte") {
  const int64_t rows = 6, columns = 50;  // 300 elements: blocks do not end with rows
  const Tensor w = Tensor::randn({rows, columns}, {3, 1});
  const ops::PackedMatrix packed = ops::pack_matrix(w, MatrixFormat::nf4);
  CHECK(packed.codes.shape() == Shape{150, 1});
  CHECK(packed.scales.shape() == Shape{5});
  CHECK(packed.scale_blocks.shape() == Shape{1});
  const auto* x = w.data<float>();
  double mean = 0;
  std::vector<double> largest(5, 0);
  for (int64_t i = 0; i < w.numel(); ++i)
    largest[static_cast<size_t>(i / 64)] =
        std::max(largest[static_cast<size_t>(i / 64)], std::fabs(static_cast<double>(x[i])));
  for (const double each : largest) mean += each / 5;
  for (int64_t i = 0; i < w.numel(); ++i) {
    const unsigned byte = packed.codes.data<uint8_t>()[i / 2];
    const unsigned code = i % 2 == 0 ? byte >> 4 : byte & 15;
    CHECK(code == nearest_code(x[i] / largest[static_cast<size_t>(i / 64)]));
  }
  // scales, less their mean, in the numbers of dynamic trees
  CHECK(packed.scale_mean.item() == doctest::Approx(mean).epsilon(1e-6));
  double most = 0;
  for (const double each : largest) most = std::max(most, std::fabs(each - mean));
  CHECK(packed.scale_blocks.item() == doctest::Approx(most).epsilon(1e-5));
  const std::vector<double> numbers = dynamic_numbers();
  REQUIRE(numbers.size() == 256);
  for (size_t block = 0; block < 5; ++block) {
    const double share = (largest[block] - mean) / most;
    const double number = numbers[packed.scales.data<uint8_t>()[block]];
    double least = 2;
    for (const double each : numbers) least = std::min(least, std::fabs(each - share));
    CHECK(std::fabs(number - share) <= least + 1e-5);
    const double scale = number * packed.scale_blocks.item() + packed.scale_mean.item();
    CHECK(ops::nf4_scale(packed, static_cast<int64_t>(block)) ==
          doctest::Approx(scale).epsilon(1e-6));
  }
  const Tensor back = ops::unpack_matrix(packed);
  for (int64_t i = 0; i < w.numel(); ++i) {
    const unsigned byte = packed.codes.data<uint8_t>()[i / 2];
    const unsigned code = i % 2 == 0 ? byte >> 4 : byte & 15;
    const float expected = static_cast<float>(kNormalFloat[code]) * ops::nf4_scale(packed, i / 64);
    CHECK(back.data<float>()[i] == expected);
  }
}

TEST_CASE("nf4: known bytes of a block of 64, as bitsandbytes lays them out") {
  Tensor w = Tensor::zeros({1, 64});
  float* x = w.mut<float>();
  x[0] = 2, x[1] = -2, x[2] = 0, x[3] = 0.16F, x[4] = 1.45F, x[5] = -0.18F;
  const ops::PackedMatrix packed = ops::pack_matrix(w, MatrixFormat::nf4);
  const auto* codes = packed.codes.data<uint8_t>();
  CHECK(codes[0] == 0xf0);  // 1 and -1
  CHECK(codes[1] == 0x78);  // 0 and 0.08
  CHECK(codes[2] == 0xe6);  // 0.725 and -0.09
  CHECK(codes[3] == 0x77);
  CHECK(packed.scale_mean.item() == 2);
  CHECK(ops::unpack_matrix(packed).item(0) == 2);
}

TEST_CASE("nf4: blocks of zeros, tiny numbers, an odd number of elements") {
  Tensor w = Tensor::zeros({3, 43});  // 129 elements
  w.mut<float>()[0] = 1e-40F;
  w.mut<float>()[128] = -3;
  const ops::PackedMatrix packed = ops::pack_matrix(w, MatrixFormat::nf4);
  CHECK(packed.codes.numel() == 65);
  const std::vector<double> back = ops::unpack_matrix(packed).to_vector();
  for (size_t i = 1; i < 128; ++i) CHECK(back[i] == 0);
  CHECK(back[128] == doctest::Approx(-3).epsilon(0.01));  // its scale has 8 bits
}

TEST_CASE("int8: rows share a scale, which is their largest magnitude / 127") {
  const Tensor w = Tensor::randn({7, 33}, {4, 1});
  const ops::PackedMatrix packed = ops::pack_matrix(w, MatrixFormat::int8);
  const Tensor back = ops::unpack_matrix(packed);
  for (int64_t row = 0; row < 7; ++row) {
    double most = 0;
    for (int64_t i = 0; i < 33; ++i) most = std::max(most, std::fabs(w.item(row * 33 + i)));
    CHECK(packed.scales.item(row) == doctest::Approx(most / 127).epsilon(1e-6));
    for (int64_t i = 0; i < 33; ++i) {
      const int64_t at = row * 33 + i;
      const auto code = static_cast<int8_t>(packed.codes.data<uint8_t>()[at]);
      CHECK(code == static_cast<int>(std::nearbyint(w.item(at) / most * 127)));
      CHECK(back.data<float>()[at] == static_cast<float>(code) * packed.scales.data<float>()[row]);
    }
  }
}

TEST_CASE("packed matrices: bytes for each element") {
  const int64_t rows = 512, columns = 1024, n = rows * columns;
  const auto bytes = [&](MatrixFormat format) {
    return ops::empty_packed(format, rows, columns, kMeta).nbytes();
  };
  CHECK(bytes(MatrixFormat::bf16) == 2 * n);
  CHECK(bytes(MatrixFormat::int8) == n + 4 * rows);
  CHECK(bytes(MatrixFormat::nf4) == n / 2 + n / 64 + 4 * n / 64 / 256 + 4);
}

TEST_CASE("packed matrices: tiles are parts of the whole, in each dtype") {
  const Tensor w = Tensor::randn({70, 45}, {5, 1});
  for (const MatrixFormat format : kFormats) {
    CAPTURE(ops::name_of(format));
    const ops::PackedMatrix packed = ops::pack_matrix(w, format);
    const Tensor whole = ops::unpack_matrix(packed);
    for (const ops::Tile& tile : {ops::Tile{0, 70, 0, 45}, {3, 5, 7, 30}, {69, 1, 44, 1}}) {
      const Tensor part = whole.slice(0, tile.row, tile.row + tile.rows)
                              .slice(1, tile.column, tile.column + tile.columns);
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
        CHECK(ops::unpack_tile(packed, tile, dtype).to_vector() ==
              ops::cast(part, dtype).to_vector());
    }
  }
}

TEST_CASE("packed products are those with the unpacked weight") {
  // The second weight takes several tiles.
  for (const auto& [rows, out, in] :
       {std::array<int64_t, 3>{5, 9, 66}, {3, 1100, 1030}, {1, 1100, 1030}}) {
    const Tensor w = Tensor::randn({out, in}, {6, 1});
    const Tensor x = Tensor::randn({rows, in}, {6, 2}, DType::f64);
    const Tensor dy = Tensor::randn({rows, out}, {6, 3}, DType::f64);
    const Tensor bias = Tensor::randn({out}, {6, 4}, DType::f64);
    for (const MatrixFormat format : kFormats) {
      CAPTURE(ops::name_of(format));
      const ops::PackedMatrix packed = ops::pack_matrix(w, format);
      const Tensor whole = ops::unpack_matrix(packed, DType::f64);
      const auto close = [](const Tensor& a, const Tensor& b, double error) {
        REQUIRE(a.shape() == b.shape());
        const std::vector<double> left = a.to_vector(), right = b.to_vector();
        for (size_t i = 0; i < left.size(); ++i)
          if (std::fabs(left[i] - right[i]) > error) return false;
        return true;
      };
      const Tensor y = ops::linear(x, whole, bias), dx = ops::linear_backward_input(dy, whole);
      CHECK(close(ops::packed_linear(x, packed, bias), y, 1e-10));
      CHECK(close(ops::packed_linear_backward_input(dy, packed), dx, 1e-10));
      // Terms of f32 are below 32 in magnitude; a sum has as many roundings as terms.
      const double error = 32.0 * static_cast<double>(in + out) * 0x1p-24 * 4;
      const auto f32 = [](const Tensor& t) { return ops::cast(t, DType::f32); };
      CHECK(close(ops::packed_linear(f32(x), packed, f32(bias)), y, error));
      CHECK(close(ops::packed_linear_backward_input(f32(dy), packed), dx, error));
    }
  }
}

TEST_CASE("a packed product of one row has the bits of a whole weight's, and no tile") {
  const Tensor x = Tensor::randn({1, 1030}, {6, 5}), bias = Tensor::randn({1100}, {6, 6});
  const Tensor w = Tensor::randn({1100, 1030}, {6, 7});
  for (const MatrixFormat format : kFormats) {
    CAPTURE(ops::name_of(format));
    const ops::PackedMatrix packed = ops::pack_matrix(w, format);
    const Tensor whole = ops::unpack_matrix(packed);
    for (const Tensor& b : {bias, Tensor()}) {
      allocator(kCpu).reset_peak();
      const int64_t before = allocator(kCpu).report().live_total;
      const Tensor y = ops::packed_linear(x, packed, b);
      const int64_t took = allocator(kCpu).report().peak_total - before;
      CHECK(y.to_vector() == ops::linear(x, whole, b).to_vector());
      CHECK(took <= y.nbytes() + num_threads() * x.nbytes() + 64 * (1 + num_threads()));
    }
  }
}

TEST_CASE("packed products take a tile of workspace") {
  const ops::PackedMatrix packed = ops::empty_packed(MatrixFormat::nf4, 4096, 4096, kMeta);
  const Tensor x = Tensor::empty({8, 4096}, DType::f32, kMeta);
  allocator(kMeta).reset_peak();
  const int64_t before = allocator(kMeta).report().live_total;
  const Tensor y = ops::packed_linear(x, packed, {});
  const int64_t took = allocator(kMeta).report().peak_total - before;
  CHECK(took == y.nbytes() + ops::kTileBytes);
}

TEST_CASE("packed matrices: errors") {
  const Tensor w = Tensor::ones({4, 8});
  CHECK_THROWS_WITH_AS(ops::pack_matrix(w.select(0, 0), MatrixFormat::nf4),
                       doctest::Contains("[pack_matrix] expected a matrix with 2 axes"), Error);
  CHECK_THROWS_WITH_AS(ops::pack_matrix(ops::cast(w, DType::i64), MatrixFormat::nf4),
                       doctest::Contains("[pack_matrix] expected a floating matrix"), Error);
  Tensor bad = ops::clone(w);
  bad.mut<float>()[5] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH_AS(ops::pack_matrix(bad, MatrixFormat::int8),
                       doctest::Contains("[pack_matrix] expected finite values"), Error);
  const ops::PackedMatrix packed = ops::pack_matrix(w, MatrixFormat::int8);
  CHECK_THROWS_WITH_AS(
      ops::packed_linear(Tensor::ones({2, 7}), packed, {}),
      doctest::Contains("[packed_linear] expected x [..., 8] for a weight [4, 8], got [2, 7]"),
      Error);
  CHECK_THROWS_WITH_AS(ops::packed_linear_backward_input(Tensor::ones({2, 8}), packed),
                       doctest::Contains("[packed_linear backward] expected dy [..., 4]"), Error);
  CHECK_THROWS_WITH_AS(ops::packed_linear(Tensor::ones({2, 8}), packed, Tensor::ones({8})),
                       doctest::Contains("[packed_linear] expected bias of shape [4]"), Error);
}
