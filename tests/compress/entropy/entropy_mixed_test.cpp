// Tensors whose samples have different widths, their codes coded by their entropy.
#include <doctest/doctest.h>

#include <filesystem>

#include "compress/policies/actnn_policy.h"
#include "compress/policies/entropy_policy.h"
#include "compress/policies/offload_policy.h"
#include "compress/quantize/mixed.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "tests/compress/entropy/coded.h"
#include "tests/compress/policies/one_step.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

// A mixed quantizer of given widths.
class MixedCodec final : public Codec {
 public:
  explicit MixedCodec(std::vector<int> cycle) : cycle_(std::move(cycle)) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    const Samples samples = samples_of(tensor.shape(), info.sign != nullptr);
    std::vector<int> widths(static_cast<size_t>(samples.count));
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = cycle_[i * i % cycle_.size()];
    return quantizer_.pack(tensor, info, widths);
  }

 private:
  std::vector<int> cycle_;
  MixedQuantizer quantizer_;
};

// One element in ten is not 0.
Tensor sparse_normals(const Shape& shape) {
  std::vector<float> x(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = uniform({3, 0}, i) < 0.1f ? std::abs(normal({4, 0}, i)) : 0.0f;
  return Tensor::from(x, shape);
}
Tensor even(const Shape& shape) {
  std::vector<float> x(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = uniform({3, 0}, i);
  return Tensor::from(x, shape);
}

}  // namespace

TEST_CASE("coded samples of several widths unpack to the same bits") {
  // Samples of whole row groups, of parts of one, of odd extents, on the row axis, and many.
  for (const Shape& shape : {Shape{40, 16, 16, 6}, Shape{90, 8, 8, 16}, Shape{20, 7, 7, 5},
                             Shape{6, 4, 4, 40}, Shape{1500, 12}})
    for (const auto& cycle : {std::vector<int>{2, 1, 3, 8, 2}, std::vector<int>{4, 16, 7}})
      for (const bool with_sign : {false, true}) {
        CAPTURE(shape);
        CAPTURE(with_sign);
        const Tensor x = sparse_normals(shape),
                     mask = mask_of(shape, [](size_t i) { return i % 5 == 1; });
        const Sign sign{mask, 0};
        SaveInfo info = entry(1);
        if (with_sign) info.sign = &sign;
        const auto inner = std::make_shared<MixedCodec>(cycle);
        const auto plain = inner->pack(x, info), coded = Entropy(inner, kAlways).pack(x, info);
        REQUIRE(is_coded(*coded));
        CHECK(coded->carries_sign() == plain->carries_sign());
        CHECK(coded->knows_variance() == plain->knows_variance());
        CHECK(same_bytes(coded->unpack(), plain->unpack()));
        CHECK(coded->unpack().storage()->category() == Category::workspace);
        const int64_t n = shape[0];
        for (const auto& [begin, end] :
             std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {n / 3, n / 2}, {n - 1, n}, {2, 2}})
          CHECK(same_bytes(coded->unpack_rows(begin, end), plain->unpack_rows(begin, end)));
        if (!plain->carries_sign()) continue;
        CHECK(same_bytes(coded->unpack_sign(), plain->unpack_sign()));
        const Tensor a = coded->unpack_sign_rows(0, n / 2), b = plain->unpack_sign_rows(0, n / 2);
        REQUIRE(a.defined() == b.defined());
        if (a.defined()) CHECK(same_bytes(a, b));
      }
}

TEST_CASE("samples of several widths are coded where that pays, and nowhere else") {
  const auto inner = std::make_shared<MixedCodec>(std::vector<int>{1, 2, 4, 2, 3});
  // Segments of many samples, and of one: their tables are shared.
  for (const Shape& shape : {Shape{200, 8, 8, 16}, Shape{200, 16, 16, 8}}) {
    CAPTURE(shape);
    const auto plain = inner->pack(sparse_normals(shape), entry(1));
    const auto coded = Entropy(inner).pack(sparse_normals(shape), entry(1));
    REQUIRE(is_coded(*coded));
    CHECK(static_cast<double>(bytes_of(*coded)) < 0.8 * static_cast<double>(bytes_of(*plain)));
    CHECK(!is_coded(*Entropy(inner).pack(even(shape), entry(1))));
    // Kept as they are inside a coded tensor, even codes cost a hundredth.
    const auto raw = Entropy(inner, kAlways).pack(even(shape), entry(1));
    CHECK(bytes_of(*raw) < bytes_of(*plain) + bytes_of(*plain) / 100 + 256);
  }
  // On `meta` nothing is saved, and decoding takes its memory.
  const Tensor described = Tensor::empty({200, 8, 8, 16}, DType::f32, kMeta);
  const auto plain = inner->pack(described, {}), meta = Entropy(inner).pack(described, {});
  REQUIRE(is_coded(*meta));
  CHECK(bytes_of(*meta) == bytes_of(*plain));
  const int64_t before = allocator(kMeta).report().of(Category::workspace);
  meta->unpack_rows(0, 1);
  CHECK(allocator(kMeta).report().of(Category::workspace) - before == bytes_of(*plain));
}

TEST_CASE("bytes of coded samples do not depend on the number of threads") {
  const Entropy codec(std::make_shared<MixedCodec>(std::vector<int>{1, 2, 4, 2, 3}));
  const Tensor x = sparse_normals({300, 8, 8, 16});
  const int threads = num_threads();
  std::vector<uint8_t> first;
  for (const int count : {1, 2, 5}) {
    set_num_threads(count);
    const auto packed = codec.pack(x, entry(1));
    const Tensor& payload = dynamic_cast<const EntropyCoded&>(*packed).payload();
    const std::vector<uint8_t> bytes(payload.data<uint8_t>(),
                                     payload.data<uint8_t>() + payload.nbytes());
    if (first.empty()) first = bytes;
    CHECK(bytes == first);
  }
  set_num_threads(threads);
}

TEST_CASE("memory of coded samples: what fails leaves nothing, what goes takes all along") {
  const Entropy codec(std::make_shared<MixedCodec>(std::vector<int>{1, 2, 4, 2, 3}));
  const Tensor x = sparse_normals({200, 8, 8, 16});
  const int64_t before = allocator(kCpu).report().live_total;
  int failures = 0;
  for (int64_t n = 0; n >= 0; ++n) {
    allocator(kCpu).fail_after(n);
    try {
      const auto packed = codec.pack(x, entry(1));
      packed->unpack_rows(3, 100);
      n = -2;
    } catch (const OutOfMemory&) {
      ++failures;
    }
    allocator(kCpu).fail_after(-1);
    CHECK(allocator(kCpu).report().live_total == before);
  }
  CHECK(failures > 5);
  const int64_t packed_before = live(Category::packed);
  auto packed = codec.pack(x, entry(1));
  CHECK(live(Category::packed) - packed_before >= bytes_of(*packed));
  CHECK(live(Category::packed) - packed_before < bytes_of(*packed) + 64);
  packed->unpack();
  packed = nullptr;
  CHECK(allocator(kCpu).report().live_total == before);
}

TEST_CASE("ActNN's tensors are coded, and may lie in a file: other bytes, the same values") {
  ActnnOptions options;
  options.average = 2;
  options.mixed = true;
  options.interval = 1;
  options.keep.min_elements = 100;
  OffloadOptions file;
  file.directory = std::filesystem::temp_directory_path();
  const auto actnn = [&] { return std::make_shared<ActnnPolicy>(options); };
  const auto coded = [&] { return std::make_shared<EntropyPolicy>(actnn()); };
  const int64_t before = allocator(kCpu).report().live_total;
  {
    const auto plain = actnn();
    OffloadPolicy away(coded(), file, 100);
    const auto here = coded();
    // Samples of growing spread: their widths differ.
    Tensor x = sparse_normals({64, 8, 8, 16});
    for (int64_t i = 0; i < x.numel(); ++i)
      x.mut<float>()[i] *= 1 + static_cast<float>(i / (8 * 8 * 16) % 13);
    const auto a = step(*plain, {x, x}), b = step(*here, {x, x});
    const int64_t resident = live(Category::packed);
    const auto c = step(away, {x, x});
    CHECK(live(Category::packed) - resident < bytes_of(*a.at(0)));
    for (const uint64_t seq : {0u, 1u}) {
      REQUIRE(is_coded(*b.at(seq)));
      CHECK(bytes_of(*b.at(seq)) < bytes_of(*a.at(seq)));
      c.at(seq)->prefetch();
      CHECK(same_bytes(b.at(seq)->unpack(), a.at(seq)->unpack()));
      CHECK(same_bytes(c.at(seq)->unpack_rows(5, 33), a.at(seq)->unpack_rows(5, 33)));
      CHECK(same_bytes(c.at(seq)->unpack(), a.at(seq)->unpack()));
    }
  }
  CHECK(allocator(kCpu).report().live_total == before);
}
