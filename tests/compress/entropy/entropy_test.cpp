#include "compress/entropy/entropy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "compress/quantize/code_map.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "tests/compress/entropy/coded.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

QuantizeOptions quantizer(int bits, GroupAxis axis = GroupAxis::column, int64_t group = 256) {
  QuantizeOptions options;
  options.bits = bits;
  options.axis = axis;
  options.group = group;
  options.seed = 5;
  return options;
}
Entropy coder(const QuantizeOptions& inner, const EntropyOptions& options = kAlways) {
  return Entropy(std::make_unique<Quantizer>(inner), options);
}

enum class Values : uint8_t { constant, two, uniform, normal, relu, rare };
constexpr Values kValues[] = {Values::constant, Values::two,  Values::uniform,
                              Values::normal,   Values::relu, Values::rare};

std::vector<float> draw(Values values, int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    const float u = uniform({3, 0}, i), g = normal({4, 0}, i);
    switch (values) {
      case Values::constant:
        x[i] = 2.5f;
        break;
      case Values::two:
        x[i] = u < 0.1f ? 1.0f : 0.0f;
        break;
      case Values::uniform:
        x[i] = u;
        break;
      case Values::normal:
        x[i] = g;
        break;
      case Values::relu:
        x[i] = std::max(g, 0.0f);
        break;
      case Values::rare:
        x[i] = u < 0.001f ? 100 * g : 0.01f * g;
        break;
    }
  }
  return x;
}

// All that a packed tensor can give is the plain one's, bit for bit.
void check_same(const Packed& coded, const Packed& plain, const Shape& shape) {
  CHECK(same_bytes(coded.unpack(), plain.unpack()));
  CHECK(coded.carries_sign() == plain.carries_sign());
  CHECK(coded.knows_variance() == plain.knows_variance());
  if (plain.carries_sign()) CHECK(same_bytes(coded.unpack_sign(), plain.unpack_sign()));
  if (plain.knows_variance()) CHECK(same_bytes(variance_of(coded), variance_of(plain)));
  const int64_t n = shape[0];
  const std::pair<int64_t, int64_t> ranges[] = {
      {0, n}, {0, 1}, {n - 1, n}, {n / 3, n / 3}, {n / 2, n}, {n / 3, n / 2}, {0, 0}, {n, n}};
  for (const auto& range : ranges) {
    const int64_t begin = range.first, end = range.second;
    CAPTURE(begin);
    CAPTURE(end);
    const Tensor rows = coded.unpack_rows(begin, end);
    CHECK(same_bytes(rows, plain.unpack_rows(begin, end)));
    CHECK(rows.storage()->category() == Category::workspace);
    if (plain.carries_sign())
      CHECK(same_bytes(coded.unpack_sign_rows(begin, end), plain.unpack_sign_rows(begin, end)));
  }
}

}  // namespace

TEST_CASE("what is coded unpacks to the inner codec's bits, at any width and distribution") {
  const Shape shapes[] = {{530, 24}, {12, 10, 9, 7}, {1500, 3}};
  for (const Shape& shape : shapes)
    for (Values values : kValues) {
      const Tensor x = Tensor::from(draw(values, shape.numel()), shape);
      for (int bits = 1; bits <= 16; ++bits)
        for (GroupAxis axis : {GroupAxis::column, GroupAxis::row}) {
          if (bits > 8 && values != Values::rare) continue;
          CAPTURE(bits);
          CAPTURE(static_cast<int>(values));
          CAPTURE(shape.str());
          const auto plain = Quantizer(quantizer(bits, axis)).pack(x, entry(1));
          const auto coded = coder(quantizer(bits, axis)).pack(x, entry(1));
          REQUIRE(is_coded(*coded));
          check_same(*coded, *plain, shape);
        }
    }
}

TEST_CASE("blocks: several groups in one, several blocks, ragged ends and odd groups") {
  for (int64_t rows : {64, 255, 257, 20000}) {
    const Shape shape = {rows, 9};
    const Tensor x = Tensor::from(draw(Values::relu, shape.numel()), shape);
    for (int64_t group : {64, 256, 1000})
      for (int bits : {2, 3}) {
        CAPTURE(rows);
        CAPTURE(group);
        CAPTURE(bits);
        const QuantizeOptions options = quantizer(bits, GroupAxis::column, group);
        const auto coded = coder(options).pack(x, entry(1));
        REQUIRE(is_coded(*coded));
        check_same(*coded, *Quantizer(options).pack(x, entry(1)), shape);
      }
  }
}

// Few groups of many channels give as many blocks as many groups of few.
TEST_CASE("blocks end within groups") {
  for (const Shape& shape : {Shape{300, 1000}, Shape{30000, 10}})
    for (int bits : {3, 4}) {
      CAPTURE(shape.str());
      CAPTURE(bits);
      const Tensor x = Tensor::from(draw(Values::relu, shape.numel()), shape);
      const auto plain = Quantizer(quantizer(bits)).pack(x, entry(1));
      const entropy::CodeMap map(dynamic_cast<const Grouped&>(*plain).parts());
      const int64_t most = map.blocks()[0].bytes;
      CHECK(most <= 65536);
      CHECK((map.block_count() <= 2 || map.block_count() % 4 == 0));
      int64_t at = 0;
      for (const entropy::Block& block : map.blocks()) {
        CHECK(block.at == at);
        CHECK(block.bytes == std::min(most, map.code_bytes() - at));
        int64_t bytes = 0;
        map.for_segments(block, [&](const entropy::Segment& s) { bytes += s.size; });
        CHECK(bytes == block.bytes);
        at += block.bytes;
      }
      CHECK(at == map.code_bytes());
      const auto coded = coder(quantizer(bits)).pack(x, entry(1));
      REQUIRE(is_coded(*coded));
      check_same(*coded, *plain, shape);
    }
}

TEST_CASE("signs in codes") {
  // Items that are a part of a group, several, and neither.
  for (const Shape& shape : {Shape{64, 4, 4, 24}, Shape{3, 32, 32, 16}, Shape{40, 7, 8, 20}})
    for (int bits : {2, 3, 4, 8})
      for (double slope : {0.0, 0.5}) {
        CAPTURE(shape.str());
        CAPTURE(bits);
        const std::vector<float> values = draw(Values::normal, shape.numel());
        const Tensor x = Tensor::from(values, shape);
        const Sign sign{mask_of(values, shape, Bits::sign), slope};
        SaveInfo info = entry(1);
        info.sign = &sign;
        const auto plain = Quantizer(quantizer(bits)).pack(x, info);
        REQUIRE(plain->carries_sign());
        const auto coded = coder(quantizer(bits)).pack(x, info);
        REQUIRE(is_coded(*coded));
        check_same(*coded, *plain, shape);
      }
}

TEST_CASE("other dtypes, scalars and groups with NaN") {
  for (DType dtype : {DType::f64, DType::bf16, DType::f16}) {
    const Tensor x = Tensor::full({300, 8}, 0.5, dtype);
    check_same(*coder(quantizer(4)).pack(x, entry(1)), *Quantizer(quantizer(4)).pack(x, entry(1)),
               {300, 8});
  }
  std::vector<float> values = draw(Values::normal, 300 * 8);
  values[77] = std::nanf("");
  const Tensor x = Tensor::from(values, {300, 8});
  check_same(*coder(quantizer(4)).pack(x, entry(1)), *Quantizer(quantizer(4)).pack(x, entry(1)),
             {300, 8});
  const auto scalar = coder(quantizer(4)).pack(Tensor::full({}, 3), entry(1));
  CHECK(scalar->unpack().item() == 3);
}

TEST_CASE("only what pays is coded") {
  const int64_t n = 1 << 18;
  for (int bits : {1, 2, 4, 8}) {
    CAPTURE(bits);
    const auto bytes = [&](Values values, const EntropyOptions& options) {
      const Tensor x = Tensor::from(draw(values, n), {n / 16, 16});
      return bytes_of(*coder(quantizer(bits), options).pack(x, entry(1)));
    };
    const int64_t plain = Quantizer(quantizer(bits)).packed_bytes({n / 16, 16});
    const Tensor even = Tensor::from(draw(Values::uniform, n), {n / 16, 16});
    CHECK(!is_coded(*coder(quantizer(bits), {}).pack(even, entry(1))));
    // Kept as they are inside a coded tensor, uniform codes cost a thousandth.
    CHECK(bytes(Values::uniform, kAlways) <= plain + plain / 100 + 64);
    CHECK(bytes(Values::constant, {}) < plain / 2);
    // 0.1 log2(10) + 0.9 log2(10/9) = 0.469 bits and the metadata's 0.125.
    CHECK(bytes(Values::two, {}) == doctest::Approx(n * 0.594 / 8).epsilon(0.07));
    CHECK(bytes(Values::rare, {}) < plain);
  }
  const Tensor x = Tensor::from(draw(Values::constant, 1 << 14), {1 << 10, 16});
  CHECK(!is_coded(*coder(quantizer(4), {}).pack(x, entry(1))));  // 8 KiB
  CHECK(!is_coded(*coder(quantizer(4), {0.99, 0}).pack(x, entry(1))));
  CHECK(is_coded(*coder(quantizer(4), {0.5, 0}).pack(x, entry(1))));
}

TEST_CASE("one part of a tensor that does not fit the table costs no more than its codes") {
  std::vector<float> values = draw(Values::two, 1 << 18);
  const std::vector<float> even = draw(Values::uniform, 1 << 18);
  std::copy(even.begin(), even.begin() + (1 << 15), values.begin() + (1 << 16));
  const Shape shape = {1 << 14, 16};
  const Tensor x = Tensor::from(values, shape);
  const auto coded = coder(quantizer(4)).pack(x, entry(1));
  check_same(*coded, *Quantizer(quantizer(4)).pack(x, entry(1)), shape);
  CHECK(bytes_of(*coded) < (1 << 15) / 2 + (7 << 15) * 1.2 / 8);
}

TEST_CASE("empty tensors, meta and other results stay the inner codec's") {
  for (const Shape& shape : {Shape{0, 16}, Shape{16, 0}}) {
    const auto packed = coder(quantizer(4)).pack(Tensor::zeros(shape), entry(1));
    CHECK(packed->unpack().shape() == shape);
  }
  const auto meta =
      coder(quantizer(4)).pack(Tensor::empty({4096, 16}, DType::f32, kMeta), entry(1));
  CHECK(meta->unpack().device() == kMeta);
  CHECK(bytes_of(*meta) == Quantizer(quantizer(4)).packed_bytes({4096, 16}));
}

TEST_CASE("bytes do not depend on the number of threads") {
  const int threads = num_threads();
  const Shape shape = {40000, 16};
  const Tensor x = Tensor::from(draw(Values::rare, shape.numel()), shape);
  std::vector<uint8_t> first;
  for (int count : {1, 2, 3, 7}) {
    set_num_threads(count);
    const auto packed = coder(quantizer(4)).pack(x, entry(1));
    const Tensor& payload = dynamic_cast<const EntropyCoded&>(*packed).payload();
    const std::vector<uint8_t> bytes(payload.data<uint8_t>(),
                                     payload.data<uint8_t>() + payload.nbytes());
    if (first.empty()) first = bytes;
    CHECK(bytes == first);
    CHECK(same_bytes(packed->unpack(), Quantizer(quantizer(4)).pack(x, entry(1))->unpack()));
  }
  set_num_threads(threads);
}

TEST_CASE("memory: categories, the plain payload goes, and a failing allocation leaves nothing") {
  const Shape shape = {40000, 16};
  const Tensor x = Tensor::from(draw(Values::rare, shape.numel()), shape);
  const auto live = [](Category c) { return allocator(kCpu).report().of(c); };
  const int64_t packed_before = live(Category::packed), work_before = live(Category::workspace);
  auto packed = coder(quantizer(4)).pack(x, entry(1));
  const int64_t held = live(Category::packed) - packed_before;
  CHECK(held >= bytes_of(*packed));
  CHECK(held < bytes_of(*packed) + 64);
  CHECK(live(Category::workspace) == work_before);

  const int64_t decoded = Quantizer(quantizer(4)).packed_bytes(shape) + 64;
  int failures = 0;
  const auto fails = [&](int64_t n, auto&& f) {
    allocator(kCpu).fail_after(n);
    bool failed = false;
    try {
      f();
    } catch (const OutOfMemory&) {
      failed = true;
      ++failures;
    }
    allocator(kCpu).fail_after(-1);
    CHECK(live(Category::packed) - packed_before == held);
    CHECK(live(Category::workspace) - work_before <= decoded);
    return failed;
  };
  for (int64_t n = 0; fails(n, [&] { coder(quantizer(4)).pack(x, entry(1)); }); ++n) {
  }
  CHECK(failures >= 3);  // the inner payload, the encoder's buffer, the result
  for (int64_t n = 0; fails(n, [&] { packed->unpack_rows(100, 30000); }); ++n) {
  }
  CHECK(failures >= 5);
  // What was decoded stays, no larger than what the inner codec would hold.
  CHECK(live(Category::workspace) - work_before > held);
  allocator(kCpu).fail_after(1);  // the result, and nothing decoded
  packed->unpack_rows(0, 8);
  allocator(kCpu).fail_after(-1);
  packed = nullptr;
  CHECK(live(Category::workspace) == work_before);
  CHECK(live(Category::packed) == packed_before);
}

TEST_CASE("errors") {
  CHECK_THROWS_WITH_AS(Entropy(nullptr), "[entropy] expected an inner codec, got none", Error);
  for (double saving : {1.0, std::nan("")})
    CHECK_THROWS_WITH_AS(
        coder(quantizer(4), {saving, 0}),
        fmt::format("[entropy] expected min_saving below 1, got {}", saving).c_str(), Error);
  const auto packed = coder(quantizer(4)).pack(Tensor::zeros({300, 8}), entry(1));
  REQUIRE(is_coded(*packed));
  CHECK_THROWS_WITH_AS(
      packed->unpack_rows(0, 301),
      "[quantize] expected a range within the leading axis of [300, 8], got 0 to 301", Error);
  CHECK_THROWS_AS(packed->unpack_rows(5, 4), Error);
  CHECK_THROWS_AS(coder(quantizer(4)).pack(Tensor::zeros({300, 8}).transpose(0, 1), entry(1)),
                  Error);
}

TEST_CASE("a coded payload can lie elsewhere for a while") {
  const Tensor x = Tensor::from(draw(Values::relu, 1 << 14), {1 << 10, 16});
  const auto packed = coder(quantizer(4)).pack(x, entry(1));
  const auto plain = Quantizer(quantizer(4)).pack(x, entry(1));
  auto* movable = dynamic_cast<Movable*>(packed.get());
  REQUIRE(movable != nullptr);
  const int64_t live = allocator(kCpu).report().of(Category::packed);
  Tensor payload = movable->take_payload();
  const std::vector<uint8_t> bytes(payload.data<uint8_t>(),
                                   payload.data<uint8_t>() + payload.nbytes());
  payload = Tensor();
  CHECK(allocator(kCpu).report().of(Category::packed) < live);  // nothing else held it
  movable->put_payload(Tensor::from(bytes, {static_cast<int64_t>(bytes.size())}));
  check_same(*packed, *plain, x.shape());
  // What is decoded stays while the payload goes once more, and comes back as it was.
  const int64_t decoded = allocator(kCpu).report().of(Category::workspace);
  payload = movable->take_payload();
  CHECK(allocator(kCpu).report().of(Category::workspace) == decoded);
  movable->put_payload(std::move(payload));
  check_same(*packed, *plain, x.shape());
}
