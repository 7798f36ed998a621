// Frozen parameters: which they are, that nothing is saved for them, and what norms do.
#include "models/freeze.h"

#include <doctest/doctest.h>

#include <cmath>

#include "models/layer_order.h"
#include "models/name_pattern.h"
#include "models/zoo/bert.h"
#include "models/zoo/densenet.h"
#include "models/zoo/gcn.h"
#include "models/zoo/gpt2.h"
#include "models/zoo/mlp.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "models/zoo/swin.h"
#include "models/zoo/vgg.h"
#include "models/zoo/vit.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;

namespace {

CifarResNet resnet20() {
  CifarResNetOptions options = cifar_resnet_options("resnet20");
  options.num_classes = 16;  // blocks of memory are multiples of 64 bytes
  Init init{Rng(1)};
  return {init, options};
}

Variable images(uint64_t seed = 3) { return zoo::randn({4, 8, 8, 3}, seed); }

int64_t saved_bytes() {
  const MemoryReport report = allocator(kCpu).report();
  return report.of(Category::activation) + report.of(Category::packed);
}

// The bytes that a forward pass leaves for backward, beside its output.
int64_t kept_by(Module& net, Context context) {
  Rng rng(1);
  context.rng = &rng;
  context.keeps_frozen_statistics = net.keeps_frozen_statistics();
  const int64_t before = saved_bytes();
  CategoryScope scope(Category::activation);
  const Variable y = net.forward(images(), context);
  return saved_bytes() - before - y.value().nbytes();
}

std::vector<double> buffers_of(Module& net) {
  std::vector<double> all;
  for (const auto& b : net.buffers())
    for (const double value : b.buffer->to_vector()) all.push_back(value);
  return all;
}

template <class Net, class Options>
std::string head_of(Options options) {
  Init init = zoo::meta_init();
  return Net(init, options).head_prefix();
}

}  // namespace

TEST_CASE("a name fits its beginnings and patterns") {
  CHECK(fits("layer1.", "layer1.0.conv1.weight"));
  CHECK(fits("", "x"));
  CHECK_FALSE(fits("conv1", "layer1.0.conv1.weight"));
  CHECK(fits("*.bias", "fc.bias"));
  CHECK_FALSE(fits("*.bias", "fc.bias2"));
  CHECK(fits("*.bn[12].*", "layer1.0.bn2.weight"));
  CHECK_FALSE(fits("?ayer", "layer1.0"));
}

TEST_CASE("each network knows its last layer") {
  CHECK(head_of<CifarResNet>(cifar_resnet_options("resnet20")) == "linear.");
  CHECK(head_of<ResNet>(resnet_options("resnet18")) == "fc.");
  CHECK(head_of<Vgg>(vgg_options("vgg11")) == "classifier.6.");
  CHECK(head_of<DenseNet>(densenet_options("densenet121")) == "classifier.");
  CHECK(head_of<Vit>(vit_options("vit_b_32")) == "heads.head.");
  CHECK(head_of<Swin>(swin_options("swin_t")) == "head.");
  CHECK(head_of<Bert>(bert_options("bert_tiny")) == "classifier.");
  CHECK(head_of<Bert>(bert_options("encoder")) == "classifier.");
  CHECK(head_of<Gpt2>(gpt2_options("gpt2")).empty());
  MlpOptions mlp;
  mlp.in_features = 4;
  CHECK(head_of<Mlp>(mlp) == "fc3.");
  GnnOptions gcn;
  gcn.in_features = 4;
  gcn.num_classes = 2;
  gcn.layers = 2;
  gcn.batch_norm = true;
  CHECK(head_of<Gcn>(gcn) == "convs.1.");
}

TEST_CASE("patterns choose what is frozen, and a later entry goes first") {
  CifarResNet net = resnet20();
  const size_t all = net.parameters().size();
  CHECK(freeze(net, {}).empty());
  CHECK(freeze(net, {kAllButHead}).size() == all - 2);
  size_t trained = 0;
  for (const auto& p : net.parameters()) trained += p.parameter->requires_grad() ? 1 : 0;
  CHECK(trained == 2);
  thaw(net);
  for (const auto& p : net.parameters()) CHECK(p.parameter->requires_grad());
  for (const std::string& name : freeze(net, {kAllButHead, "!layer3."}))
    CHECK_FALSE((name.starts_with("layer3.") || name.starts_with("linear.")));
  thaw(net);
  CHECK(freeze(net, {"*.bias"}).size() == 20);
  thaw(net);
  CHECK_THROWS_WITH_AS(freeze(net, {"leyer1."}),
                       doctest::Contains("such as \"conv1.weight\", got \"leyer1.\""), Error);
  CHECK_THROWS_WITH_AS(freeze(net, {""}), doctest::Contains("expected a pattern"), Error);
  CHECK_THROWS_WITH_AS(freeze(net, {"*"}), doctest::Contains("left to train"), Error);
  Init init = zoo::meta_init();
  Gpt2Options small;
  small.layers = 1;
  Gpt2 gpt2(init, small);
  CHECK_THROWS_WITH_AS(freeze(gpt2, {kAllButHead}), doctest::Contains("no head of its own"), Error);
}

TEST_CASE("frozen layers save nothing, also where blocks are checkpointed") {
  CifarResNet net = resnet20();
  Context whole, checkpointed;
  checkpointed.checkpointed_blocks = kAllBlocks;
  CHECK(kept_by(net, whole) > 1000);
  freeze(net, {kAllButHead});
  // The last layer keeps its input, 64 numbers of each of 4 images.
  CHECK(kept_by(net, whole) == 4 * 64 * 4);
  CHECK(kept_by(net, checkpointed) == 4 * 64 * 4);
  thaw(net);
  freeze(net, {kAllButHead, "!layer3.2."});
  const int64_t one_block = kept_by(net, whole);
  CHECK(one_block > 4 * 64 * 4);
  // The block's input [4, 2, 2, 64] instead.
  CHECK(kept_by(net, checkpointed) == 4 * 64 * 4 + 4 * 2 * 2 * 64 * 4);
}

TEST_CASE("a checkpointed step with frozen layers has the gradients of one that is not") {
  CifarResNet net = resnet20();
  freeze(net, {"conv1.", "bn1.", "layer1.", "layer2.0."});
  Context context;
  const auto gradients = [&](int64_t blocks) {
    Rng rng(1);
    Context now = context;
    now.rng = &rng;
    now.keeps_frozen_statistics = true;
    now.checkpointed_blocks = blocks;
    net.zero_grad();
    backward(sum(net.forward(images(), now)));
    std::vector<double> all;
    for (const auto& p : net.parameters()) {
      CHECK(p.parameter->has_grad() == p.parameter->requires_grad());
      if (p.parameter->has_grad())
        for (const double v : p.parameter->grad().to_vector()) all.push_back(v);
    }
    return all;
  };
  const std::vector<double> expected = gradients(0), found = gradients(kAllBlocks);
  REQUIRE(expected.size() == found.size());
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i)
    largest = std::max(largest, std::abs(found[i] - expected[i]));
  CHECK(largest < 1e-3);
}

TEST_CASE("norms of frozen layers keep their statistics, unless they are told to use the batch's") {
  CifarResNet net = resnet20();
  Context context;
  const auto pass = [&] {
    Context now = context;
    now.keeps_frozen_statistics = net.keeps_frozen_statistics();
    return net.forward(images(), now).value().to_vector();
  };
  const std::vector<double> by_batch = pass();  // this pass also moves the statistics
  const std::vector<double> before = buffers_of(net);
  freeze(net, {kAllButHead});
  CHECK(pass() != by_batch);
  CHECK(buffers_of(net) == before);
  thaw(net);
  CHECK(pass() == by_batch);
  CHECK(buffers_of(net) != before);
  freeze(net, {kAllButHead}, {.keep_statistics = false});
  const std::vector<double> again = buffers_of(net);
  CHECK(pass() == by_batch);
  CHECK(buffers_of(net) != again);

  DenseNetOptions options;
  options.depths = {1, 1, 1, 1};
  options.growth = 8;
  options.stem_channels = 8;
  Init init{Rng(1)};
  DenseNet dense(init, options);
  freeze(dense, {kAllButHead});
  Context now;
  now.keeps_frozen_statistics = dense.keeps_frozen_statistics();
  const std::vector<double> untouched = buffers_of(dense);
  dense.forward(zoo::randn({2, 32, 32, 3}, 1), now);
  CHECK(buffers_of(dense) == untouched);
}

TEST_CASE("layers are counted as timm counts them") {
  const auto layer_of = [](Module& net, const std::string& name) {
    const auto parameters = net.parameters();
    const std::vector<int64_t> layers = layers_of(net);
    for (size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].name.starts_with(name)) return layers[i];
    return int64_t{-1};
  };
  Init init = zoo::meta_init();
  Vit vit(init, vit_options("vit_b_32"));
  CHECK(layer_of(vit, "class_token") == 0);
  CHECK(layer_of(vit, "encoder.pos_embedding") == 0);
  CHECK(layer_of(vit, "conv_proj.") == 0);
  CHECK(layer_of(vit, "encoder.layers.encoder_layer_0.") == 1);
  CHECK(layer_of(vit, "encoder.layers.encoder_layer_11.") == 12);
  CHECK(layer_of(vit, "encoder.ln.") == 12);
  CHECK(layer_of(vit, "heads.head.") == 13);
  CHECK(layer_decay_factors(vit, 0.5).front() == std::pow(0.5, 13));
  CHECK(layer_decay_factors(vit, 0.5).back() == 1);

  Swin swin(init, swin_options("swin_t"));
  CHECK(layer_of(swin, "features.0.") == 0);
  CHECK(layer_of(swin, "features.1.1.") == 2);
  CHECK(layer_of(swin, "features.2.") == 3);
  CHECK(layer_of(swin, "features.3.0.") == 3);
  CHECK(layer_of(swin, "features.7.1.") == 12);
  CHECK(layer_of(swin, "norm.") == 12);
  CHECK(layer_of(swin, "head.") == 13);

  Gpt2 gpt2(init, gpt2_options("gpt2"));
  CHECK(layer_of(gpt2, "transformer.wte.") == 0);
  CHECK(layer_of(gpt2, "transformer.h.11.") == 12);
  CHECK(layer_of(gpt2, "transformer.ln_f.") == 12);
  CHECK(layer_decay_factors(gpt2, 0.5).back() == 1);

  Bert bert(init, bert_options("bert_tiny"));
  CHECK(layer_of(bert, "bert.embeddings.") == 0);
  CHECK(layer_of(bert, "bert.encoder.layer.1.") == 2);
  CHECK(layer_of(bert, "bert.pooler.") == 3);
  CHECK(layer_of(bert, "classifier.") == 3);

  ResNet resnet(init, resnet_options("resnet18"));
  CHECK(layer_of(resnet, "bn1.") == 0);
  CHECK(layer_of(resnet, "layer1.1.") == 2);
  CHECK(layer_of(resnet, "layer4.1.") == 8);
  CHECK(layer_of(resnet, "fc.") == 9);
}
