#include "models/zoo/swin.h"

#include "models/zoo/swin_window.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

SwinOptions small_swin() {
  SwinOptions options;
  options.width = 8;
  options.depths = {2, 2, 1, 1};
  options.heads = {1, 2, 2, 4};
  options.window = 3;
  options.num_classes = 5;
  return options;
}

}  // namespace

TEST_CASE("swin: parameter counts, names and shapes are torchvision's") {
  check_published<Swin>(swin_options, {
                                          {"swin_t", 28288354, 185, 0x46fbaaa452fc5d67},
                                          {"swin_s", 49606258, 353, 0x815e211097176a27},
                                      });
  CHECK_THROWS_WITH_AS(swin_options("swin"), doctest::Contains("swin_t"), Error);
}

TEST_CASE("swin: windows hold neighbouring pixels, and joining them gives the image back") {
  for (const int64_t shift : {0, 1})
    for (const Shape& shape : {Shape{2, 6, 9, 2}, Shape{1, 5, 7, 1}, Shape{1, 3, 6, 1}}) {
      CAPTURE(shift);
      CAPTURE(shape);
      const Windows windows(shape, 3, shift);
      const Variable x = randn(shape, 1);
      const Variable parts = windows.part(x);
      CHECK(parts.shape() == Shape{shape[0], 9, windows.count(), shape[3]});
      const Tensor back = ops::contiguous(windows.join(parts).value());
      CHECK(largest_difference(back, x.value()) == 0);
      CHECK(windows.padded() == (shape[1] % 3 != 0 || shape[2] % 3 != 0));
    }
  // One window along a side: no shift along it. Two: the seam lies in the last.
  const Shape shape{1, 3, 6, 1};
  const Windows windows(shape, 3, 1);
  const Variable x = randn(shape, 1);
  const Tensor parts = windows.part(x).value();
  CHECK(parts.item(0) == x.value().item(1));                // row 0, column 1: the first token
  CHECK(parts.item(2 * 2 + 1) == x.value().item(0));        // row 0, column 0: the last of the row
  const Tensor apart = windows.apart(2, kCpu, DType::f32);  // [2 windows, 2 heads, 9, 9]
  REQUIRE(apart.shape() == Shape{4, 9, 9});
  for (int64_t i = 0; i < apart.numel(); ++i) {
    const int64_t each = i / 81, a = i / 9 % 9, b = i % 9;
    const bool parted = each >= 2 && (a % 3 == 2) != (b % 3 == 2);
    CHECK(apart.item(i) == (parted ? -100 : 0));
  }
  CHECK(!Windows(shape, 3, 0).apart(2, kCpu, DType::f32).defined());
  CHECK(!Windows({1, 3, 3, 1}, 3, 1).apart(2, kCpu, DType::f32).defined());
}

TEST_CASE("swin: planned on meta; images and options that do not fit are refused") {
  Init init = meta_init();
  Swin net(init, swin_options("swin_t"));
  Context context;
  Rng rng(1);
  context.rng = &rng;
  check_runs_on_meta(net, randn({2, 224, 224, 3}, 1, kMeta), {2, 1000});
  CHECK_THROWS_WITH_AS(net.forward(randn({2, 3, 30, 3}, 1, kMeta), context),
                       doctest::Contains("at least 4 x 4"), Error);
  context.rng = nullptr;
  CHECK_THROWS_WITH_AS(net.forward(randn({2, 32, 32, 3}, 1, kMeta), context),
                       doctest::Contains("random stream"), Error);
  SwinOptions odd = small_swin();
  odd.heads = {3, 3, 3, 3};
  CHECK_THROWS_WITH_AS(Swin(init, odd), doctest::Contains("heads"), Error);
  odd = small_swin();
  odd.window = 0;
  CHECK_THROWS_WITH_AS(Swin(init, odd), doctest::Contains("window"), Error);
}

TEST_CASE("swin: steps learn, weights go out and in, checkpointing gives the same gradients") {
  Init init, other;
  other.rng = Rng(5);
  SwinOptions options = small_swin();
  options.dropout = options.attention_dropout = 0.1;
  Swin net(init, options), copy(other, options);
  const Variable x = randn({4, 40, 24, 3}, 2);  // 10 x 6 patches: a padded and a whole side
  const Tensor target = ids({4}, 5, 1);
  const auto loss = [&](const Variable& y) { return cross_entropy(y, target); };
  check_trains(net, copy, x, {}, loss, 0.05);
}

TEST_CASE("swin: whole samples of a branch are left out, and the rest is scaled") {
  Init init;
  SwinOptions options = small_swin();
  options.depths = {1, 1, 1, 1};
  options.stochastic_depth = 0.9;
  Swin net(init, options);
  Context context;
  Rng rng(3), same(3);
  context.rng = &rng;
  NoGrad no_grad;
  const Variable one = randn({1, 24, 24, 3}, 2);
  const Variable x = concat({one, one, one, one, one, one}, 0);
  const Tensor y = net.forward(x, context).value();
  context.rng = &same;
  CHECK(largest_difference(y, net.forward(x, context).value()) == 0);
  // The batch is one image six times, in training mode: only the branches can differ.
  std::set<double> seen;
  for (int64_t n = 0; n < 6; ++n) seen.insert(y.item(n * 5));
  CHECK(seen.size() > 1);
  context.training = false;
  const Tensor all = net.forward(x, context).value();
  for (int64_t n = 1; n < 6; ++n) CHECK(all.item(n * 5) == doctest::Approx(all.item(0)));
}
