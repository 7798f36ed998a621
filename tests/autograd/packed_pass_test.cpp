// Passes over packed data: what reaches the codec, and when an op has to unpack.
#include "autograd/packed_pass.h"

#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "tests/autograd/pack_all.h"

using namespace frugal;

namespace {

// Remembers the passes that it is asked for, and answers them with ones.
class AskedCodec final : public Codec {
 public:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    struct Asked final : Packed {
      Tensor kept, mask;
      const AskedCodec* codec = nullptr;
      Tensor unpack() const override { return ops::clone(kept); }
      Tensor unpack_sign() const override { return ops::clone(mask); }
      bool carries_sign() const override { return mask.defined(); }
      bool knows_variance() const override { return true; }
      bool run(PackedPass& pass) const override {
        codec->passes.push_back(pass);
        if (!codec->takes) return false;
        Shape shape = kept.shape();
        if (pass.rows.of != 0) shape[0] = pass.rows.end - pass.rows.begin;
        pass.out = Tensor::full(shape, 1);
        return true;
      }
    };
    auto packed = std::make_unique<Asked>();
    packed->codec = this;
    CategoryScope scope(Category::packed);
    packed->kept = ops::clone(tensor);
    if (carries && info.sign != nullptr) packed->mask = ops::clone(info.sign->mask);
    return packed;
  }
  bool carries = false, takes = true;
  mutable std::vector<PackedPass> passes;
};

Tensor coefficients() { return Tensor::zeros({4, 3}); }

// Saves x [8, 3] and a mask, and runs `look` as its backward.
void look_at(SavePolicy* policy, const Variable& x,
             const std::function<void(const Backward&)>& look) {
  int looked = 0;
  const Tensor mask = ops::empty_bitmask(x.shape(), kCpu);
  PolicyScope scope(policy);
  const Variable y = record("looked_at", {x}, ops::clone(x.value()),
                            {save(x).with_sign(mask, 0), save_sign(mask)}, [&](const Backward& b) {
                              look(b);
                              ++looked;
                              return Grads{b.dy()};
                            });
  backward(y, Tensor::zeros(x.shape()));
  CHECK(looked == 1);
}

}  // namespace

TEST_CASE("a pass finds the mask in the codes, or as bits, or keeps all elements") {
  const Variable x(Tensor::zeros({8, 3}), true);
  for (const bool carries : {false, true}) {
    CAPTURE(carries);
    AskedCodec codec;
    codec.carries = carries;
    PackAll policy(&codec);
    look_at(&policy, x, [&](const Backward& b) {
      CHECK(b.run({PackedPass::Combine{b.dy(), coefficients()}}, 0, 1));
      CHECK(b.run({PackedPass::Combine{b.dy(), coefficients()}}, 0));
    });
    REQUIRE(codec.passes.size() == 2);
    CHECK(codec.passes[0].mask.in_codes == carries);
    CHECK(codec.passes[0].mask.bits.defined() == !carries);
    CHECK_FALSE(codec.passes[0].mask.keeps_all());
    CHECK(codec.passes[1].mask.keeps_all());
  }
}

TEST_CASE("a pass over rows gives these rows, and what cannot be sliced is not asked for") {
  const Variable x(Tensor::zeros({8, 3}), true);
  AskedCodec codec;
  PackAll policy(&codec);
  look_at(&policy, x, [&](const Backward& b) {
    PackedPass pass{PackedPass::Combine{b.dy().slice(0, 2, 5), coefficients()}};
    pass.rows = {2, 5, 8};
    CHECK(run_over(b.slot(0), pass).shape() == Shape{3, 3});
    pass.rows = {2, 5, 16};  // another number of items
    CHECK_FALSE(run_over(b.slot(0), pass).defined());
  });
  REQUIRE(codec.passes.size() == 1);
  CHECK(codec.passes[0].rows.begin == 2);
  CHECK(codec.passes[0].rows.end == 5);
}

TEST_CASE("an op unpacks where a codec declines, and where nothing is packed") {
  const Variable x(Tensor::zeros({8, 3}), true);
  AskedCodec codec;
  codec.takes = false;
  PackAll policy(&codec);
  look_at(&policy, x, [&](const Backward& b) {
    CHECK_FALSE(b.run({PackedPass::Map{ops::Unary::exp}}, 0));
    CHECK_FALSE(variance_of(b.slot(0)).defined());
  });
  CHECK(codec.passes.size() == 2);
  codec.takes = true;
  look_at(nullptr, x, [&](const Backward& b) {
    CHECK_FALSE(b.run({PackedPass::Map{ops::Unary::exp}}, 0));
    CHECK_FALSE(variance_of(b.slot(0)).defined());
    CHECK(b.slot(0).knows_variance());  // there is none
  });
  CHECK(codec.passes.size() == 2);
  CHECK_FALSE(run_over(SavedTensor(), {PackedPass::Variance{}}).defined());
}

TEST_CASE("of a transposed tensor the variance has its layout; passes with operands unpack it") {
  const Variable x(Tensor::zeros({3, 8}), true);
  AskedCodec codec;
  PackAll policy(&codec);
  look_at(&policy, transpose(x, 0, 1), [&](const Backward& b) {
    const Tensor variance = variance_of(b.slot(0));
    CHECK(variance.shape() == Shape{8, 3});
    CHECK(variance.strides() == Shape{1, 8});
    CHECK_FALSE(b.run({PackedPass::Combine{b.dy(), coefficients()}}, 0));
  });
  CHECK(codec.passes.size() == 1);
}
