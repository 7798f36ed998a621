// The zoo: every function it records is in the op table, recipes change no gradient, wide codes
// change them little.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "bench/op_table/op_table.h"
#include "compress/policies/fixed_policy.h"
#include "models/zoo/bert.h"
#include "models/zoo/decoder.h"
#include "models/zoo/densenet.h"
#include "models/zoo/dilated_resnet.h"
#include "models/zoo/gat.h"
#include "models/zoo/gcn.h"
#include "models/zoo/gcnii.h"
#include "models/zoo/gpt2.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "models/zoo/sage.h"
#include "models/zoo/semantic_fpn.h"
#include "models/zoo/swin.h"
#include "models/zoo/vgg.h"
#include "models/zoo/vit.h"
#include "ops/dense/copy.h"
#include "tests/integration/relative_distance.h"

using namespace frugal;
using namespace frugal::models;

namespace {

struct ZooNet {
  std::string name;
  std::function<std::shared_ptr<Module>(Init&)> make;
  Shape input;
  int64_t vocabulary = 0;  // number of token ids; 0: the input is an image
  bool graph = false;      // the input has a row for each node of a graph
};

template <class M, class Options>
ZooNet net(std::string name, const Options& options, Shape input, int64_t vocabulary = 0) {
  return {std::move(name), [options](Init& init) { return std::make_shared<M>(init, options); },
          input, vocabulary};
}

constexpr int64_t kZooNodes = 60, kEdges = 200, kFeatures = 12;

template <class M, class Options>
ZooNet graph_net(std::string name, Options options) {
  options.in_features = kFeatures;
  options.hidden = 16;
  options.num_classes = 5;
  options.layers = 3;
  options.dropout = 0.2;
  ZooNet all = net<M>(std::move(name), options, {kZooNodes, kFeatures});
  all.graph = true;
  return all;
}

std::vector<ZooNet> graph_networks() {
  GnnOptions gcn, gcn_norms;
  gcn.input_dropout = 0.1;
  gcn.jk = JumpingKnowledge::cat;
  gcn_norms.batch_norm = gcn_norms.residual = true;
  SageOptions sage, maxima;
  sage.batch_norm = true;
  sage.jk = JumpingKnowledge::max;
  maxima.aggregation = SageAggregation::max;
  maxima.residual = true;
  GatOptions gat, gat_norms;
  gat.heads = gat_norms.heads = 2;
  gat.jk = JumpingKnowledge::cat;
  gat_norms.batch_norm = gat_norms.residual = true;
  return {graph_net<Gcn>("gcn", gcn),
          graph_net<Gcn>("gcn with norms", gcn_norms),
          graph_net<Sage>("sage", sage),
          graph_net<Sage>("sage of maxima", maxima),
          graph_net<Gat>("gat", gat),
          graph_net<Gat>("gat with norms", gat_norms),
          graph_net<Gcnii>("gcnii", GcniiOptions{})};
}

std::vector<ZooNet> zoo() {
  BertOptions bert{2, 32, 2};
  bert.vocab_size = 50;
  BertOptions masked = bert, bare = bert;
  masked.head = BertHead::masked_lm;
  bare.bare = true;
  bare.inner_dropout = 0.1;
  VggOptions vgg = vgg_options("vgg11_bn");
  vgg.width = 4;
  vgg.hidden = 16;
  VggOptions plain = vgg;
  plain.batch_norm = false;
  DenseNetOptions densenet;
  densenet.depths = {2, 2, 2, 2};
  densenet.growth = 8;
  densenet.dropout = 0.1;
  SwinOptions swin;
  swin.width = 8;
  swin.depths = {2, 2, 1, 1};
  swin.heads = {1, 2, 2, 4};
  swin.window = 3;
  VitOptions vit{4, 2, 2, 32, 48, 16, 3, 5};
  vit.dropout = 0.1;
  ResNetOptions resnet = resnet_options("resnet18");
  resnet.stem = Stem::cifar;
  resnet.num_classes = 5;
  resnet.depths = {1, 1, 1, 1};
  DilatedResNetOptions deeplab = dilated_resnet_options("deeplabv3_resnet50");
  deeplab.depths = {1, 1, 1, 1};
  deeplab.width = 4;
  SemanticFpnOptions fpn;
  fpn.depths = {1, 1, 1, 1};
  fpn.width = 4;
  CifarResNetOptions preact = cifar_resnet_options("preact_resnet56");
  preact.blocks = 3;
  DecoderOptions llama, gemma;
  llama.layers = 2;
  llama.hidden = 32;
  llama.heads = 4;
  llama.kv_heads = 2;
  llama.vocab_size = 50;
  llama.attention_dropout = 0.1;
  gemma = llama;
  gemma.family = DecoderFamily::gemma3;
  gemma.window = 5;
  gemma.cap = gemma.attention_cap = 3;
  std::vector<ZooNet> all = {
      net<Decoder>("llama", llama, {4, 16}, 50),
      net<Decoder>("gemma", gemma, {4, 16}, 50),
      net<Bert>("bert", bert, {4, 16}, 50),
      net<Bert>("bert for masked tokens", masked, {4, 16}, 50),
      net<Bert>("bare bert", bare, {4, 16}, 50),
      net<Gpt2>("gpt2", Gpt2Options{2, 32, 2, 50, 16}, {4, 16}, 50),
      net<Vit>("vit", vit, {4, 16, 16, 3}),
      net<Swin>("swin", swin, {4, 40, 24, 3}),
      net<Vgg>("vgg", vgg, {4, 32, 32, 3}),
      net<Vgg>("vgg without norms", plain, {4, 32, 32, 3}),
      net<DenseNet>("densenet", densenet, {4, 32, 32, 3}),
      net<DilatedResNet>("deeplabv3", deeplab, {4, 24, 20, 3}),
      net<SemanticFpn>("semantic fpn", fpn, {4, 24, 20, 3}),
      net<CifarResNet>("resnet20", cifar_resnet_options("resnet20"), {4, 16, 16, 3}),
      net<CifarResNet>("preact_resnet20", preact, {4, 16, 16, 3}),
      net<ResNet>("resnet18 with one block a stage", resnet, {4, 16, 16, 3})};
  for (ZooNet& each : graph_networks()) all.push_back(std::move(each));
  return all;
}

// What stands beside the input: random edges.
NamedTensors extras_of(const ZooNet& each) {
  if (!each.graph) return {};
  CategoryScope scope(Category::input);
  const Tensor edges = Tensor::empty({2, kEdges}, DType::i64);
  for (int64_t i = 0; i < edges.numel(); ++i)
    edges.mut<int64_t>()[i] =
        static_cast<int64_t>(uniform_int({2, 1}, static_cast<uint64_t>(i), kZooNodes));
  return {{"edge_index", edges}};
}

Variable input_of(const ZooNet& each, Device device) {
  CategoryScope scope(Category::input);
  const bool tokens = each.vocabulary > 0;
  Tensor x = Tensor::empty(each.input, tokens ? DType::i64 : DType::f32, device);
  if (x.raw() == nullptr) return Variable(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    if (tokens)
      x.mut<int64_t>()[i] =
          static_cast<int64_t>(uniform_int({1, 1}, at, static_cast<uint64_t>(each.vocabulary)));
    else
      x.mut<float>()[i] = normal({1, 1}, at);
  }
  return Variable(x);
}

// The gradients of one step, weights and dropout by the same seeds each time.
std::vector<double> gradients(const ZooNet& each, SavePolicy* policy) {
  Init init;
  const auto module = each.make(init);
  // Heads that start at 0 would hide everything behind them.
  for (const auto& p : module->parameters())
    if (p.name == "heads.head.weight")
      p.parameter->set_value(normal(init, p.parameter->shape(), 1));
  PolicyScope scope(policy);
  begin_step(0);
  Rng rng(3);
  Context context;
  context.rng = &rng;
  context.extras = extras_of(each);
  Variable y = module->forward(input_of(each, kCpu), context);
  Variable loss = mean(mul(y, y));
  y = {};
  backward(loss);
  std::vector<double> all;
  for (const auto& p : module->parameters()) {
    REQUIRE(p.parameter->grad().defined());
    const Tensor g = ops::contiguous(p.parameter->grad());
    all.insert(all.end(), g.data<float>(), g.data<float>() + g.numel());
  }
  return all;
}

}  // namespace

TEST_CASE("every function that the zoo records is in the op table") {
  std::set<std::string> rows;
  for (const op_table::Op& op : op_table::rows()) rows.insert(op.name);
  std::vector<ZooNet> nets = zoo();
  for (const char* name : {"resnet18", "resnet50"})  // on `meta`, size costs nothing
    nets.push_back(net<ResNet>(name, resnet_options(name), {2, 64, 64, 3}));
  for (const char* name : {"resnet56", "preact_resnet56"})
    nets.push_back(net<CifarResNet>(name, cifar_resnet_options(name), {2, 32, 32, 3}));
  for (const ZooNet& each : nets) {
    CAPTURE(each.name);
    Init init;
    init.device = kMeta;
    const auto module = each.make(init);
    for (const int64_t blocks : {int64_t{0}, int64_t{1}, kAllBlocks}) {
      if (blocks > 0 && each.graph) continue;  // they have no blocks to recompute
      Rng rng(1);
      Context context;
      context.rng = &rng;
      context.checkpointed_blocks = blocks;
      context.extras = extras_of(each);
      int64_t checkpointed = 0;
      for (const std::string op : graph_ops(module->forward(input_of(each, kMeta), context))) {
        checkpointed += op == "checkpoint";
        if (op != "checkpoint") CHECK_MESSAGE(rows.contains(op), op);
      }
      CHECK(checkpointed == std::min(blocks, context.block));
      if (blocks > 0) CHECK(checkpointed > 0);
    }
  }
}

TEST_CASE("recipes change no bit of the zoo's gradients, codes of 12 bits change them little") {
  for (const ZooNet& each : zoo()) {
    CAPTURE(each.name);
    compress::FixedPolicyOptions options;
    options.min_elements = 0;
    options.bits = 0;
    options.slice_bytes = 2048;
    compress::FixedPolicy recipes(options);
    options.recipes = false;
    compress::FixedPolicy whole(options);
    const std::vector<double> exact = gradients(each, &whole);
    const bool equal = gradients(each, &recipes) == exact;
    CHECK(equal);
    options = {};
    options.min_elements = 0;
    options.bits = 12;
    compress::FixedPolicy codes(options);
    const double error = relative_distance(gradients(each, &codes), exact);
    CAPTURE(error);
    CHECK(error > 0);
    CHECK(error < 0.03);
  }
}
