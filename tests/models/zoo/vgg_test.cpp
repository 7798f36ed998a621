#include "models/zoo/vgg.h"

#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

VggOptions small_vgg(bool batch_norm) {
  VggOptions options = vgg_options(batch_norm ? "vgg11_bn" : "vgg11");
  options.num_classes = 3;
  options.width = 4;
  options.hidden = 32;
  return options;
}

}  // namespace

TEST_CASE("vgg: parameter counts are the published ones") {
  const auto count = [](const char* name) {
    Init init = meta_init();
    Vgg net(init, vgg_options(name));
    return parameter_count(net);
  };
  CHECK(count("vgg11") == 132863336);
  CHECK(count("vgg11_bn") == 132868840);
  CHECK(count("vgg13") == 133047848);
  CHECK(count("vgg16") == 138357544);
  CHECK(count("vgg16_bn") == 138365992);
  CHECK(count("vgg19_bn") == 143678248);
  CHECK_THROWS_WITH_AS(vgg_options("vgg12"), doctest::Contains("vgg11_bn"), Error);
}

TEST_CASE("vgg: names and shapes are torchvision's") {
  // torchvision_zoo_names.py
  const struct {
    const char* name;
    size_t tensors;
    uint64_t fingerprint;
  } expected[] = {
      {"vgg11", 22, 0x288d104ae091ee95},
      {"vgg11_bn", 62, 0x4486d62ddfb009dd},
      {"vgg16", 32, 0xc28928e39d007d16},
      {"vgg16_bn", 97, 0xefaeff4895642f0e},
  };
  for (const auto& row : expected) {
    CAPTURE(row.name);
    Init init = meta_init();
    Vgg net(init, vgg_options(row.name));
    const auto lines = lines_of(net);
    CHECK(lines.size() == row.tensors);
    CHECK(fingerprint(lines) == row.fingerprint);
  }
}

TEST_CASE("vgg: runs on meta; small images are refused") {
  Init init = meta_init();
  Vgg net(init, vgg_options("vgg16_bn"));
  Context context;
  Rng rng(1);
  context.rng = &rng;
  check_runs_on_meta(net, randn({2, 224, 224, 3}, 1, kMeta), {2, 1000});
  CHECK_THROWS_WITH_AS(net.forward(randn({2, 16, 32, 3}, 1, kMeta), context),
                       doctest::Contains("at least 32 x 32"), Error);
  context.rng = nullptr;
  CHECK_THROWS_WITH_AS(net.forward(randn({2, 32, 32, 3}, 1, kMeta), context),
                       doctest::Contains("random stream"), Error);
}

TEST_CASE("vgg: a step learns, weights go out and in, checkpointing gives the same gradients") {
  for (const bool batch_norm : {false, true}) {
    CAPTURE(batch_norm);
    Init init, other;
    other.rng = Rng(5);
    Vgg net(init, small_vgg(batch_norm)), copy(other, small_vgg(batch_norm));
    const Variable x = randn({4, 32, 32, 3}, 2);
    const Tensor target = ids({4}, 3, 1);
    const auto loss = [&](const Variable& y) { return cross_entropy(y, target); };
    check_trains(net, copy, x, {}, loss, 0.05);
  }
}
