// How tensors of another library are kept on CUDA (compress/foreign/forms.h): what comes back is
// what the CPU gives, bit for bit.
#include "compress/foreign/forms.h"

#include <cmath>
#include <limits>

#include "core/cuda/cuda_device.h"
#include "ops/dense/copy.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/packing.h"

namespace frugal::compress::foreign {
namespace {

using gpu::there;

Tensor drawn(int64_t count, uint64_t seed, DType dtype = DType::f32) {
  return ops::cast(Tensor::randn({count}, {seed, 0}), dtype);
}

// Memory as another library gives it.
Tensor given(int64_t bytes) { return Tensor::empty({bytes}, DType::u8, gpu::kCuda); }

Tensor unpacked(const Kept& kept) {
  const Tensor out = Tensor::empty({kept.elements()}, kept.dtype(), gpu::kCuda);
  kept.unpack_into(out);
  return out;
}

}  // namespace

TEST_CASE("groups of another library's tensors on CUDA") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int bits : {2, 3, 4, 8})
      for (const int64_t columns : {0, 16, 48})
        for (const int64_t count : {16 * 48, 48 * 250, 48 * 1001}) {
          CAPTURE(name_of(dtype));
          CAPTURE(bits);
          CAPTURE(columns);
          CAPTURE(count);
          const Tensor x = drawn(count, 3, dtype);
          const GroupOptions options{bits, columns, false, 5, 2, 9};
          const auto here = keep_groups(x, options);
          const auto kept = keep_groups(there(x), options, given, given);
          CHECK(kept->bytes() == here->bytes());
          CHECK(gpu::same_bits(here->unpack(), unpacked(*kept)));
          CHECK_THROWS_WITH_AS(kept->unpack_positive(), doctest::Contains("positive"), Error);
        }
}

TEST_CASE("groups that tell signs, and a tail, of another library's tensors on CUDA") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int bits : {2, 4, 5})
      for (const int64_t count : {16 * 8 * 40, 16 * 8 * 40 + 77, 100}) {
        CAPTURE(name_of(dtype));
        CAPTURE(bits);
        CAPTURE(count);
        Tensor x = drawn(count, 4, dtype);
        for (int64_t i = 0; i < count; ++i)
          if (x.item(i) < 0) ops::fill(x.slice(0, i, i + 1), 0);
        const GroupOptions options{bits, 16, true, 5, 2, 9};
        const auto here = keep_groups(x, options);
        const auto kept = keep_groups(there(x), options, given, given);
        CHECK(kept->bytes() == here->bytes());
        CHECK(gpu::same_bits(here->unpack(), unpacked(*kept)));
        const Tensor signs = Tensor::empty({count}, dtype, gpu::kCuda);
        kept->unpack_positive_into(signs, given);
        CHECK(gpu::same_bits(here->unpack_positive(), signs));
      }
}

TEST_CASE("numbers of f16 that are not finite, subnormal or large, in groups on CUDA") {
  if (!gpu::available()) return;
  for (const bool positive : {false, true}) {
    Tensor x = ops::cast(Tensor::randn({16 * 8 * 60}, {3, 0}), DType::f32);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.mut<float>()[i] *= i < 2500 ? 0x1p-20f : i < 5000 ? 0x1p13f : 1;
    x.mut<float>()[5800] = std::numeric_limits<float>::infinity();
    x.mut<float>()[7000] = std::nanf("");
    const Tensor half = ops::cast(x, DType::f16);
    const GroupOptions options{4, 16, positive, 5, 2, 9};
    CHECK(keep_groups(half, options) == nullptr);  // who packs on the CPU keeps it whole
    // On CUDA, nobody looks at the values: the groups of these two become NaN, and no other one.
    for (const int64_t at : {5800, 7000}) x.mut<float>()[at] = 0.5f;
    const Tensor here =
        ops::cast(keep_groups(ops::cast(x, DType::f16), options)->unpack(), DType::f32);
    const auto away = keep_groups(there(half), options, given, given);
    const Tensor kept = ops::cast(to_device(unpacked(*away), kCpu), DType::f32);
    int64_t odd = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const float value = kept.data<float>()[i];
      const bool in_column = i % 16 == 5800 % 16 || i % 16 == 7000 % 16;
      odd += std::isnan(value) ? 1 : 0;
      CHECK((std::isnan(value) ? in_column : value == here.data<float>()[i]));
    }
    CHECK(odd >= 2);
    CHECK(odd <= 2 * 256);
  }
}

TEST_CASE("bits of another library's tensors on CUDA") {
  if (!gpu::available()) return;
  for (const int64_t count : {1, 7, 512, 1003, 20000}) {
    CAPTURE(count);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Tensor x = drawn(count, 6, dtype);
      const float infinity = std::numeric_limits<float>::infinity();
      if (count > 100) {
        ops::fill(x.slice(0, 3, 5), 0);
        ops::fill(x.slice(0, 5, 6), infinity);
        ops::fill(x.slice(0, 6, 7), -infinity);
        ops::fill(x.slice(0, 7, 8), std::nan(""));
      }
      const auto here = keep_positive(x), kept = keep_positive(there(x), given);
      CHECK(kept->bytes() == here->bytes());
      CHECK(gpu::same_bits(here->unpack(), unpacked(*kept)));
      CHECK(keep_two_values(there(x), given) == nullptr);  // that would need a look at the values
    }
    Tensor dropped = Tensor::zeros({count}, DType::bool_);
    for (int64_t i = 0; i < count; i += 3) dropped.mut<bool>()[i] = true;
    const auto kept = keep_two_values(there(dropped), given);
    REQUIRE(kept != nullptr);
    CHECK(kept->bytes() == keep_two_values(dropped)->bytes());
    CHECK(gpu::same_bits(dropped, unpacked(*kept)));
  }
}

TEST_CASE("levels of another library's tensors on CUDA") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int width : {1, 2, 4, 8})
      for (const int64_t count : {5, 5000}) {
        CAPTURE(name_of(dtype));
        CAPTURE(width);
        CAPTURE(count);
        std::vector<float> levels, table;
        for (int i = 0; i < 1 << width; ++i) {
          levels.push_back(-1 + 2.1F * static_cast<float>(i) / static_cast<float>(1 << width));
          table.push_back(static_cast<float>(3 * i));
        }
        Tensor x = drawn(count, 8);
        const RngKey key{4, 1 << 20};
        const auto here = keep_levels(x, levels, width, table, dtype, key);
        const auto kept = keep_levels(there(x), levels, width, table, dtype, key, given);
        CHECK(kept->bytes() == here->bytes() + (count + 2047) / 2048);
        CHECK(gpu::same_bits(here->unpack(), unpacked(*kept)));
        if (count < 5000) continue;
        // A value that is not finite makes its block NaN.
        x.mut<float>()[3000] = std::numeric_limits<float>::infinity();
        CHECK(keep_levels(x, levels, width, table, dtype, key) == nullptr);
        const Tensor odd = to_device(
            unpacked(*keep_levels(there(x), levels, width, table, dtype, key, given)), kCpu);
        const Tensor whole = here->unpack();
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; ++i)
          wrong += i / 2048 == 1 ? !std::isnan(odd.item(i)) : odd.item(i) != whole.item(i);
        CHECK(wrong == 0);
      }
}

TEST_CASE("places in windows of another library's tensors on CUDA") {
  if (!gpu::available()) return;
  for (const Windows& w : {Windows{11, 13, 5, 6, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
                           Windows{11, 13, 6, 7, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                           Windows{12, 13, 5, 9, {2, 3}, {2, 1}, {0, 0}, {3, 2}}}) {
    const int64_t planes = 3, outputs = w.out_height * w.out_width;
    const Tensor indices = Tensor::empty({planes * outputs}, DType::i64);
    for (int64_t i = 0; i < planes * outputs; ++i) {
      const int64_t row = i % outputs / w.out_width, column = i % w.out_width;
      int64_t y = 0, x = 0;
      for (uint64_t draw = 0;; ++draw) {  // a place of the window that lies in the plane
        const double u = uniform({7, draw}, static_cast<uint64_t>(i));
        const auto place = static_cast<int64_t>(u * static_cast<double>(w.kernel[0] * w.kernel[1]));
        y = row * w.stride[0] - w.padding[0] + place / w.kernel[1] * w.dilation[0];
        x = column * w.stride[1] - w.padding[1] + place % w.kernel[1] * w.dilation[1];
        if (y >= 0 && y < w.height && x >= 0 && x < w.width) break;
      }
      indices.mut<int64_t>()[i] = y * w.width + x;
    }
    const auto here = keep_windows(indices, w), kept = keep_windows(there(indices), w, given);
    REQUIRE(here != nullptr);
    REQUIRE(kept != nullptr);
    CHECK(kept->bytes() == here->bytes());
    CHECK(gpu::same_bits(indices, unpacked(*kept)));
  }
}

TEST_CASE("an index outside its window becomes an index of its plane on CUDA") {
  if (!gpu::available()) return;
  for (const Windows& w : {Windows{11, 13, 5, 6, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
                           Windows{11, 13, 6, 7, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                           Windows{12, 13, 5, 9, {2, 3}, {2, 1}, {0, 0}, {3, 2}}}) {
    const int64_t outputs = w.out_height * w.out_width, last = w.height * w.width - 1;
    for (const int64_t odd : {int64_t{-5}, int64_t{-1}, int64_t{77}, last, last + 1,
                              std::numeric_limits<int64_t>::max() / 2}) {
      CAPTURE(odd);
      const Tensor indices = Tensor::full({2 * outputs}, static_cast<double>(odd), DType::i64);
      CHECK(keep_windows(indices, w) == nullptr);
      const Tensor found = to_device(unpacked(*keep_windows(there(indices), w, given)), kCpu);
      int64_t wrong = 0;
      for (int64_t i = 0; i < found.numel(); ++i)
        wrong += found.data<int64_t>()[i] < 0 || found.data<int64_t>()[i] > last;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("another library's stream gets the work of its tensors, and the host does not wait") {
  if (!gpu::available()) return;
  const int64_t count = 16 * 8 * 50 + 9;
  const Tensor values = Tensor::rand({count}, {3, 0}), x = there(values);
  const GroupOptions options{4, 16, true, 1, 1, 1};
  const auto expected = keep_groups(values, options);
  const Tensor out = Tensor::empty({count}, DType::f32, gpu::kCuda);
  const Tensor signs = Tensor::empty({count}, DType::f32, gpu::kCuda);
  const auto step = [&] {
    auto kept = keep_groups(x, options, given, given);
    kept->unpack_positive_into(signs, given);
    kept->unpack_into(out);
    return kept;
  };
  step();  // what a process makes once is there
  cuda::synchronize();
  const int64_t waits = gpu::waits();
  std::unique_ptr<Kept> kept;
  {
    const cuda::StreamScope scope(0, nullptr);
    kept = step();
    if (gpu::emulated()) CHECK(gpu::waits() == waits);
    cuda::synchronize();
  }
  CHECK(gpu::same_bits(expected->unpack(), out));
  CHECK(gpu::same_bits(expected->unpack_positive(), signs));
  {
    const int before = cuda::current_device();
    const cuda::StreamScope scope(cuda::device_count() - 1, nullptr);
    CHECK(cuda::current_device() == cuda::device_count() - 1);
    CHECK(before == 0);
  }
  CHECK(cuda::current_device() == 0);
  const compress::Quantizer codec;
  CHECK_THROWS_WITH_AS(codec.pack_into(given(3), x, {}), doctest::Contains("to pack into"), Error);
  const auto plain = codec.pack(x, {});
  CHECK_THROWS_WITH_AS(static_cast<const compress::Quantized&>(*plain).unpack_sign_into(given(3)),
                       doctest::Contains("codes with signs"), Error);
  CHECK_THROWS_WITH_AS(kept->unpack_into(Tensor::empty({count})), doctest::Contains("[unpack]"),
                       Error);
  CHECK_THROWS_WITH_AS(keep_groups(
                           x, options, [](int64_t) { return Tensor::zeros({1}); }, given),
                       doctest::Contains("contiguous bytes"), Error);
}

}  // namespace frugal::compress::foreign
