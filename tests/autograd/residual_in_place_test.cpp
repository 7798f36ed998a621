// A residual that is moved in gives its bytes to the output, and nothing else notices.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "tests/autograd/copy_codec.h"

using namespace frugal;

namespace {

Tensor shifted_waves(const Shape& shape, double phase) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i) * 0.7 + phase));
  return x;
}

// Rebuilds what it can and packs the rest, exactly.
class Rebuilds : public SavePolicy {
 public:
  Decision decide(const SaveInfo& info, const Tensor&) override {
    return {info.rebuilt != Rebuilt::none ? Decision::rebuild : Decision::pack, &codec_};
  }

 private:
  CopyCodec codec_;
};

struct BlocksResult {
  std::vector<double> y, dx, dw;
  int in_place = 0;
};

// Three blocks of which each output is the next one's input and residual.
BlocksResult blocks(SavePolicy* policy, bool moved) {
  const Shape shape{4, 4, 4, 8};
  PolicyScope scope(policy);
  begin_step(0);
  BlocksResult result;
  const Variable x(shifted_waves(shape, 0), true),
      w = Variable::parameter(shifted_waves({8, 1, 1, 8}, 2));
  Variable y = scale(x, 1.25);
  for (int i = 0; i < 3; ++i) {
    const Variable z = conv2d(y, w, {}, {});
    const uint64_t id = y.value().storage()->id();
    y = moved ? batch_norm_add_relu(z, std::move(y), {}, {}, {})
              : batch_norm_add_relu(z, y, {}, {}, {});
    if (y.value().storage()->id() == id) ++result.in_place;
  }
  result.y = y.value().to_vector();
  backward(sum(mul(y, y)));
  result.dx = x.grad().to_vector();
  result.dw = w.grad().to_vector();
  return result;
}

}  // namespace

TEST_CASE("a residual that is moved in is written over where nobody keeps its bytes") {
  Rebuilds rebuilds;
  for (SavePolicy* policy :
       {static_cast<SavePolicy*>(nullptr), static_cast<SavePolicy*>(&rebuilds)}) {
    const BlocksResult copied = blocks(policy, false), moved = blocks(policy, true);
    CHECK(copied.in_place == 0);
    // Kept raw by the convolution, it stays.
    CHECK(moved.in_place == (policy == nullptr ? 0 : 3));
    CHECK(moved.y == copied.y);
    CHECK(moved.dx == copied.dx);
    CHECK(moved.dw == copied.dw);
  }
}

TEST_CASE("a residual that somebody else holds is left alone") {
  const Tensor held = shifted_waves({8, 8}, 1), before = ops::clone(held);
  const Variable z(shifted_waves({8, 8}, 3), true);
  const Variable of_tensor = batch_norm_add_relu(z, Variable(held), {}, {}, {});
  CHECK(held.to_vector() == before.to_vector());
  Variable r(ops::clone(held));
  const Variable other = r;
  const Variable of_handle = batch_norm_add_relu(z, std::move(r), {}, {}, {});
  CHECK(other.value().to_vector() == before.to_vector());
  CHECK(of_handle.value().to_vector() == of_tensor.value().to_vector());
}
