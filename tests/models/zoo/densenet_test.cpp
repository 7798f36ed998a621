#include "models/zoo/densenet.h"

#include "core/memory.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

DenseNetOptions small_densenet() {
  DenseNetOptions options;
  options.depths = {2, 1, 2, 1};
  options.growth = 4;
  options.stem_channels = 6;
  options.num_classes = 3;
  return options;
}

}  // namespace

TEST_CASE("densenet: parameter counts, names and shapes are torchvision's") {
  check_published<DenseNet>(densenet_options,
                            {
                                {"densenet121", 7978856, 727, 0xf63c1578ce0f9c58},
                                {"densenet161", 28681000, 967, 0xfa1175f4cb1d1475},
                                {"densenet201", 20013928, 1207, 0xac1a9ed27d7501be},
                            });
  CHECK_THROWS_WITH_AS(densenet_options("densenet"), doctest::Contains("densenet169"), Error);
}

TEST_CASE("densenet: a block's saved bytes grow with its depth, not with its square") {
  // Twice the layers of a block: twice the outputs, and a mask of one bit for each reader.
  const auto bytes = [](int64_t depth) {
    Init init = meta_init();
    DenseNetOptions options = densenet_options("densenet121");
    options.depths = {depth, 1, 1, 1};
    options.bottleneck = 1;
    DenseNet net(init, options);
    // What a norm and a convolution keep in other libraries: both their whole inputs.
    int64_t others = 0;
    for (int64_t i = 0; i < depth; ++i) others += 2 * (64 + i * 32) * 56 * 56 * 4;
    class Recipes : public SavePolicy {
     public:
      Decision decide(const SaveInfo& info, const Tensor&) override {
        return {info.rebuilt == Rebuilt::none ? Decision::raw : Decision::rebuild, nullptr};
      }
    } policy;
    PolicyScope scope(&policy);
    Context context;
    const int64_t before = allocator(kMeta).report().of(Category::activation);
    const Variable y = net.forward(randn({1, 224, 224, 3}, 1, kMeta), context);
    return std::pair{allocator(kMeta).report().of(Category::activation) - before, others};
  };
  const auto [short_ours, short_others] = bytes(24);
  const auto [long_ours, long_others] = bytes(48);
  const int64_t ours = long_ours - short_ours, others = long_others - short_others;
  CHECK(ours * 10 < others);
  // 24 more outputs and as many inner ones, and at most a bit for 1/32 of the others' bytes each.
  CHECK(ours < 2 * 24 * 32 * 56 * 56 * 4 + others / 32 + others / 64);
}

TEST_CASE("densenet: runs on meta; small images are refused") {
  Init init = meta_init();
  DenseNet net(init, densenet_options("densenet121"));
  Context context;
  check_runs_on_meta(net, randn({2, 224, 224, 3}, 1, kMeta), {2, 1000});
  CHECK_THROWS_WITH_AS(net.forward(randn({2, 32, 16, 3}, 1, kMeta), context),
                       doctest::Contains("at least 32 x 32"), Error);
}

TEST_CASE(
    "densenet: a step learns, weights go out and in, checkpointing gives the same gradients") {
  Init init, other;
  other.rng = Rng(5);
  DenseNetOptions options = small_densenet();
  options.dropout = 0.1;
  DenseNet net(init, options), copy(other, options);
  const Variable x = randn({6, 64, 64, 3}, 2);
  const Tensor target = ids({6}, 3, 1);
  const auto loss = [&](const Variable& y) { return cross_entropy(y, target); };
  check_trains(net, copy, x, {}, loss, 0.05);
}
