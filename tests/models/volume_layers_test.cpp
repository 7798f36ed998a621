// Layers of sequences and volumes: shapes, PyTorch's layouts in files, gradients for all
// parameters.
#include "models/volume_layers.h"

#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

// y = layer(x) of this shape; the layer's weight has the other shape in files, and comes back.
void check(Module& layer, Module& another, const Shape& x, const Shape& y, const Shape& in_files) {
  Rng rng(3);
  Context context;
  context.rng = &rng;
  const Variable out = layer.forward(randn(x, 1), context);
  CHECK(out.shape() == y);
  CHECK(state_dict(layer).front().second.shape() == in_files);
  check_round_trip(layer, another);
  backward(sum(mul(out, out)));
  for (const auto& p : layer.parameters()) CHECK_MESSAGE(p.parameter->has_grad(), p.name);
}

}  // namespace

TEST_CASE("convolutions of sequences and volumes have PyTorch's layouts in files") {
  Init a{Rng(1)}, b{Rng(2)};
  {
    Conv1d one(a, 4, 6, 3, {.stride = 2, .padding = 1, .groups = 2}),
        two(b, 4, 6, 3, {.groups = 2});
    check(one, two, {2, 7, 4}, {2, 4, 6}, {6, 2, 3});
  }
  {
    Conv3d one(a, 2, 3, {2, 3, 1}), two(b, 2, 3, {2, 3, 1});
    check(one, two, {2, 4, 5, 3, 2}, {2, 3, 3, 3, 3}, {3, 2, 2, 3, 1});
  }
  {
    ConvTranspose1d one(a, 4, 6, 3, {.stride = 2, .groups = 2}), two(b, 4, 6, 3, {.groups = 2});
    check(one, two, {2, 3, 4}, {2, 7, 6}, {4, 3, 3});
  }
  {
    ConvTranspose2d one(a, 4, 3, {2, 3}, {{2, 1}}), two(b, 4, 3, {2, 3});
    check(one, two, {2, 3, 4, 4}, {2, 6, 6, 3}, {4, 3, 2, 3});
  }
  {
    ConvTranspose3d one(a, 2, 3, {1, 2, 2}, {{1, 2, 2}}), two(b, 2, 3, {1, 2, 2});
    check(one, two, {1, 2, 2, 3, 2}, {1, 2, 4, 6, 3}, {2, 3, 1, 2, 2});
  }
  CHECK_THROWS_WITH_AS(Conv1d(a, 4, 6, 3, {.groups = 4}),
                       doctest::Contains("[conv1d] expected groups that divide 4 and 6"), Error);
}

TEST_CASE("pools of sequences and volumes, and dropout of channels") {
  Context context;
  CHECK(MaxPool1d({3, 2, 1}).forward(randn({2, 7, 4}, 1), context).shape() == Shape{2, 4, 4});
  CHECK(AvgPool1d({2, 2, 0}).forward(randn({2, 7, 4}, 1), context).shape() == Shape{2, 3, 4});
  CHECK(MaxPool3d({}).forward(randn({2, 4, 6, 3, 2}, 1), context).shape() == Shape{2, 2, 3, 1, 2});
  CHECK(AvgPool3d({}).forward(randn({2, 4, 6, 3, 2}, 1), context).shape() == Shape{2, 2, 3, 1, 2});
  CHECK(AdaptiveMaxPool2d(2, 3).forward(randn({2, 5, 7, 4}, 1), context).shape() ==
        Shape{2, 2, 3, 4});
  Rng rng(3);
  context.rng = &rng;
  const Variable x(Tensor::full({4, 3, 3, 8}, 1));
  const Tensor y = Dropout2d(0.5).forward(x, context).value();
  int64_t dropped = 0;
  for (int64_t n = 0; n < 4; ++n)
    for (int64_t c = 0; c < 8; ++c) {
      const double first = y.item((n * 9) * 8 + c);
      CHECK((first == 0 || first == 2));
      dropped += first == 0 ? 1 : 0;
      for (int64_t place = 1; place < 9; ++place) CHECK(y.item((n * 9 + place) * 8 + c) == first);
    }
  CHECK(dropped > 4);
  CHECK(dropped < 28);
  context.training = false;
  CHECK(Dropout2d(0.5).forward(x, context).value().to_vector() == x.value().to_vector());
  CHECK_THROWS_WITH_AS(Dropout2d(1), doctest::Contains("[dropout2d] expected a probability"),
                       Error);
}
