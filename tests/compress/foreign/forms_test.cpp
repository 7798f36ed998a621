// Tests how tensors of another library are kept on the CPU (compress/foreign/forms.h). Threads must
// not change what comes back. tests/cuda/forms_test.cpp compares CUDA with the CPU.
#include "compress/foreign/forms.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "tests/compress/bytes.h"

namespace frugal::compress::foreign {
namespace {

// Several ranges of each loop, and a rest that fills no block.
constexpr int64_t kMany = 3 * (int64_t{1} << 14) + 77;

Tensor normal(DType dtype = DType::f32) { return ops::cast(Tensor::randn({kMany}, {3, 0}), dtype); }

// relu's output.
Tensor positive_or_zero(DType dtype) {
  const Tensor x = Tensor::randn({kMany}, {4, 0});
  for (int64_t i = 0; i < kMany; ++i) x.mut<float>()[i] = std::max(x.mut<float>()[i], 0.0f);
  return ops::cast(x, dtype);
}

Tensor two_values() {
  const Tensor x = Tensor::empty({kMany});
  for (int64_t i = 0; i < kMany; ++i) x.mut<float>()[i] = i * i % 7 < 3 ? -0.0f : 1.25f;
  return x;
}

const std::vector<float> kLevels = {-1, -0.5f, 0.25f, 2}, kTable = {10, 11, 12, 13};

// The index of a maximum in each window of 2x2 of three planes.
constexpr Windows kWindows{256, 256, 128, 128, {2, 2}, {2, 2}, {0, 0}, {1, 1}};
Tensor places() {
  const int64_t outputs = kWindows.out_height * kWindows.out_width;
  const Tensor indices = Tensor::empty({3 * outputs}, DType::i64);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const int64_t row = i % outputs / kWindows.out_width, column = i % kWindows.out_width;
    const int64_t place = i * i % 4;
    indices.mut<int64_t>()[i] = (2 * row + place / 2) * kWindows.width + 2 * column + place % 2;
  }
  return indices;
}

struct Form {
  const char* name;
  std::function<std::unique_ptr<Kept>()> keep;
};
std::vector<Form> forms() {
  GroupOptions rows, signs;
  rows.seed = signs.seed = 5;
  signs.columns = 16;
  signs.positive = true;
  const RngKey key{4, 1 << 20};
  const Tensor x = normal(), whole = positive_or_zero(DType::f32), two = two_values(),
               indices = places();
  return {{"groups", [=] { return keep_groups(x, rows); }},
          {"groups with signs", [=] { return keep_groups(whole, signs); }},
          {"two values", [=] { return keep_two_values(two); }},
          {"positive", [=] { return keep_positive(x); }},
          {"levels", [=] { return keep_levels(x, kLevels, 2, kTable, DType::f32, key); }},
          {"windows", [=] { return keep_windows(indices, kWindows); }}};
}

TEST_CASE("forms: threads change no bit, neither those of a loop nor those that ask together") {
  const int before = num_threads();
  for (const Form& form : forms()) {
    CAPTURE(form.name);
    set_num_threads(1);
    const auto kept = form.keep();
    REQUIRE(kept != nullptr);
    const Tensor alone = kept->unpack();
    set_num_threads(3);
    CHECK(same_bytes(form.keep()->unpack(), alone));
    Tensor found[3];
    std::thread threads[3];
    for (int i = 0; i < 3; ++i)
      threads[i] = std::thread([&, i] {
        set_num_threads(3);  // OpenMP's number is each thread's own
        const ThreadLimit two(2);
        found[i] = (i == 0 ? *kept : *form.keep()).unpack();
      });
    for (std::thread& thread : threads) thread.join();
    for (const Tensor& one : found) CHECK(same_bytes(one, alone));
  }
  set_num_threads(before);
}

TEST_CASE("forms: what is kept without a loss comes back") {
  CHECK(same_bytes(keep_two_values(two_values())->unpack(), two_values()));
  CHECK(same_bytes(keep_windows(places(), kWindows)->unpack(), places()));
  GroupOptions signs;
  signs.columns = 16;
  signs.positive = true;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CAPTURE(name_of(dtype));
    const Tensor x = positive_or_zero(dtype), one = keep_positive(x)->unpack(),
                 other = keep_groups(x, signs)->unpack_positive();
    int64_t wrong = 0;
    for (int64_t i = 0; i < kMany; ++i)
      wrong += one.item(i) != double(x.item(i) > 0) || other.item(i) != double(x.item(i) > 0);
    CHECK(wrong == 0);
  }
}

TEST_CASE("forms: a value becomes one of its two neighbours among the levels") {
  const Tensor x = normal();
  const Tensor found = keep_levels(x, kLevels, 2, kTable, DType::f32, {4, 1 << 20})->unpack();
  int64_t wrong = 0;
  for (int64_t i = 0; i < kMany; ++i) {
    const double value = std::clamp(x.item(i), double(kLevels.front()), double(kLevels.back()));
    const auto code = static_cast<size_t>(found.item(i)) - 10;
    const double low = code == 0 ? kLevels[0] : kLevels[code - 1];
    const double high = code == 3 ? kLevels[3] : kLevels[code + 1];
    wrong += !(low <= value && value <= high);
  }
  CHECK(wrong == 0);
}

TEST_CASE("forms: values that a form cannot keep are seen, wherever they are") {
  const int before = num_threads();
  set_num_threads(3);
  for (const int64_t at : {int64_t{400}, kMany / 2, kMany - 1}) {
    CAPTURE(at);
    const Tensor two = two_values(), x = normal(), indices = places();
    two.mut<float>()[at] = 7;
    CHECK(keep_two_values(two) == nullptr);
    x.mut<float>()[at] = std::numeric_limits<float>::infinity();
    CHECK(keep_levels(x, kLevels, 2, kTable, DType::f32, {4, 0}) == nullptr);
    indices.mut<int64_t>()[std::min(at, indices.numel() - 1)] += 2;
    CHECK(keep_windows(indices, kWindows) == nullptr);
  }
  // Each range of a loop sees one.
  const Tensor three = two_values();
  for (int64_t i = 400; i < kMany; i += 400) three.mut<float>()[i] = 7;
  CHECK(keep_two_values(three) == nullptr);
  const Tensor endless = Tensor::full({kMany}, std::numeric_limits<double>::infinity());
  CHECK(keep_levels(endless, kLevels, 2, kTable, DType::f32, {4, 0}) == nullptr);
  GroupOptions options;
  for (const bool positive : {false, true}) {
    options.columns = positive ? 16 : 0;
    options.positive = positive;
    for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      Tensor x = ops::clone(normal());
      CHECK(keep_groups(x, options) != nullptr);
      x.mut<float>()[1234] = odd;
      CHECK(keep_groups(x, options) == nullptr);
    }
  }
  CHECK(keep_windows(Tensor::full({3 * 128 * 128}, -5, DType::i64), kWindows) == nullptr);
  set_num_threads(before);
}

TEST_CASE("forms: what cannot be is an error") {
  const Tensor x = normal();
  GroupOptions options;
  options.columns = 10;
  CHECK_THROWS_WITH_AS(keep_groups(x, options), doctest::Contains("columns that divide"), Error);
  options.columns = 0;
  options.positive = true;
  CHECK_THROWS_WITH_AS(keep_groups(x, options), doctest::Contains("codes that tell signs"), Error);
  CHECK_THROWS_WITH_AS(keep_groups(Tensor(), {}), doctest::Contains("undefined"), Error);
  CHECK_THROWS_WITH_AS(keep_positive(places()), doctest::Contains("floating dtype"), Error);
  CHECK_THROWS_WITH_AS(keep_levels(x, kLevels, 3, kTable, DType::f32, {1, 0}),
                       doctest::Contains("1, 2, 4 or 8 bits"), Error);
  CHECK_THROWS_WITH_AS(keep_levels(x, {1, 0, 2, 3}, 2, kTable, DType::f32, {1, 0}),
                       doctest::Contains("levels that rise"), Error);
  const auto kept = keep_groups(x, {});
  CHECK_THROWS_WITH_AS(kept->unpack_positive(), doctest::Contains("positive"), Error);
  CHECK_THROWS_WITH_AS(kept->unpack_positive_into(Tensor::empty(x.shape(), x.dtype())),
                       "[unpack] expected codes that tell which values are positive", Error);
  CHECK_THROWS_WITH_AS(kept->unpack_into(Tensor::empty({kMany}, DType::bf16)),
                       doctest::Contains("to unpack into"), Error);
  const auto small = [](int64_t bytes) { return Tensor::empty({bytes - 1}, DType::u8); };
  CHECK_THROWS_WITH_AS(keep_positive(x, small), doctest::Contains("contiguous bytes"), Error);
}

}  // namespace
}  // namespace frugal::compress::foreign
