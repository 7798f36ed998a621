#include "compress/offload/offload.h"

#include <doctest/doctest.h>

#include "autograd/packed_pass.h"
#include "compress/policies/offload_policy.h"
#include "compress/quantize/quantize.h"
#include "ops/dense/bitmask.h"
#include "tests/compress/codec_table.h"
#include "tests/compress/offload/offload_samples.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

std::shared_ptr<PayloadStore> store_in(const TempFolder& folder, int64_t window) {
  OffloadOptions options;
  options.directory = folder.path();
  options.window = window;
  return std::make_shared<PayloadStore>(options);
}

// Keeps what it is told.
class ToldPolicy final : public SavePolicy {
 public:
  Decision decide(const SaveInfo& info, const Tensor&) override {
    seen = info;
    return decision;
  }
  int64_t slice_bytes() const override { return 77; }
  Decision decision;
  SaveInfo seen;
};

}  // namespace

TEST_CASE("offloaded codecs unpack as the codecs alone, every way of unpacking") {
  const TempFolder folder;
  const auto store = store_in(folder, 0);
  const int64_t before = live(Category::packed);
  const Tensor x = Tensor::from(normals(40 * 16 * 8, 3), {40, 16, 8});
  const Tensor mask = ops::empty_bitmask(x.shape(), kCpu);
  for (int64_t i = 0; i < mask.numel(); ++i) mask.mut<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
  const Sign sign{mask, 0.5};
  for (const CodecRow& row : codec_table())
    for (bool with_sign : {false, true}) {
      CAPTURE(row.name);
      CAPTURE(with_sign);
      SaveInfo info = entry(5);
      if (with_sign) info.sign = &sign;
      const auto codec = row.make(row, 11);
      const Offload offload(*codec, store);
      const auto alone = codec->pack(x, info), away = offload.pack(x, info);
      const auto other = offload.pack(x, entry(6));  // pushes it out
      CHECK(away->carries_sign() == alone->carries_sign());
      CHECK(away->knows_variance() == alone->knows_variance());
      away->prefetch();
      const auto same = [](const Tensor& a, const Tensor& b) {
        return a.defined() == b.defined() &&
               (!a.defined() ||
                (a.shape() == b.shape() && a.dtype() == b.dtype() &&
                 b.storage()->category() == Category::workspace && same_bytes(a, b)));
      };
      CHECK(same(alone->unpack(), away->unpack()));
      other->unpack();
      CHECK(same(alone->unpack_rows(3, 21), away->unpack_rows(3, 21)));
      CHECK(same(alone->unpack_sign(), away->unpack_sign()));
      CHECK(same(alone->unpack_sign_rows(4, 20), away->unpack_sign_rows(4, 20)));
      CHECK(same(variance_of(*alone), variance_of(*away)));
    }
  CHECK(live(Category::packed) == before);
  CHECK(store->file().used_bytes() == 0);
  CHECK(store->stats().read > 0);
}

TEST_CASE("packed tensors outlive the offload and keep its store") {
  const TempFolder folder;
  const Tensor x = Tensor::from(normals(1000, 3), {1000});
  const Quantizer codec;
  std::unique_ptr<Packed> a, b;
  {
    const Offload offload(codec, store_in(folder, 0));
    a = offload.pack(x, entry(1));
    b = offload.pack(x, entry(2));
  }
  CHECK(same_bytes(a->unpack(), codec.pack(x, entry(1))->unpack()));
  a = nullptr;
  CHECK(same_bytes(b->unpack(), codec.pack(x, entry(2))->unpack()));
}

TEST_CASE("a codec's error and an allocation that fails leave nothing") {
  const TempFolder folder;
  const auto store = store_in(folder, 0);
  const Quantizer codec;
  const Offload offload(codec, store);
  const int64_t before = allocator(kCpu).report().live_total;
  {
    const Tensor x = Tensor::from(normals(1000, 3), {10, 100});
    CHECK_THROWS_AS(offload.pack(x.transpose(0, 1), {}), Error);
    const auto packed = offload.pack(x, entry(1)), other = offload.pack(x, entry(2));
    for (int64_t n = 0; n < 4; ++n) {
      allocator(kCpu).fail_after(n);
      try {
        packed->unpack();
        other->unpack();
      } catch (const OutOfMemory&) {
      }
      allocator(kCpu).fail_after(-1);
    }
    CHECK(same_bytes(packed->unpack(), codec.pack(x, entry(1))->unpack()));
  }
  CHECK(allocator(kCpu).report().live_total == before);
  CHECK(store->resident_bytes() == 0);
}

TEST_CASE("a codec whose payload cannot be moved is refused") {
  class Fixed final : public Packed {
   public:
    Tensor unpack() const override { return {}; }
  };
  class FixedCodec final : public Codec {
   public:
    std::unique_ptr<Packed> pack(const Tensor&, const SaveInfo&) const override {
      return std::make_unique<Fixed>();
    }
  };
  const TempFolder folder;
  const FixedCodec codec;
  const Offload offload(codec, store_in(folder, 0));
  CHECK_THROWS_WITH_AS(offload.pack(Tensor::zeros({2, 3}), {}),
                       "[offload] expected a codec whose payload can be moved, got one that packs "
                       "[2, 3] f32 on cpu in another way",
                       Error);
}

TEST_CASE("an offloading policy moves what another keeps") {
  const TempFolder folder;
  OffloadOptions options;
  options.directory = folder.path();
  const auto told = std::make_shared<ToldPolicy>();
  OffloadPolicy policy(told, options, 100);
  CHECK(policy.slice_bytes() == 77);
  const Tensor large = Tensor::empty({101}), small = Tensor::empty({100});

  // Raw: what is large, floating and not the batch.
  CHECK(policy.decide({}, large).what == Decision::pack);
  CHECK(policy.decide({}, small).what == Decision::raw);
  CHECK(policy.decide({}, Tensor::empty({101}, DType::i64)).what == Decision::raw);
  {
    CategoryScope scope(Category::input);
    CHECK(policy.decide({}, Tensor::empty({101})).what == Decision::raw);
  }
  const auto packed = policy.decide({}, large).codec->pack(large, {});
  CHECK(policy.store().resident_bytes() == 448);
  // So what reads it, such as a recipe, stays exact.
  CHECK(packed->loses_nothing());

  SaveInfo info;
  info.seq = 1;
  CHECK((policy.decide(info, large), told->seen.rebuilt == Rebuilt::none));
  info.rebuilt = Rebuilt::biased;
  told->decision = {Decision::rebuild};
  CHECK(policy.decide(info, large).codec != nullptr);
  CHECK(told->seen.rebuilt == Rebuilt::biased);
  CHECK(policy.decide(info, small).codec == nullptr);
  const Quantizer codec;
  told->decision = {Decision::pack, &codec, false};
  const Decision decision = policy.decide(info, small);
  CHECK(decision.what == Decision::pack);
  CHECK(decision.codec != &codec);
  CHECK(!decision.carry_sign);
  CHECK(policy.decide(info, large).codec == decision.codec);
  CHECK_FALSE(decision.codec->pack(small, info)->loses_nothing());

  CHECK_THROWS_WITH_AS(OffloadPolicy(told, options, -1),
                       "[offload] expected min_elements >= 0, got -1", Error);
}
