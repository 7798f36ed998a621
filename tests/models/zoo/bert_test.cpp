#include "models/zoo/bert.h"

#include "core/memory.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

BertOptions small_bert(BertHead head = BertHead::classification) {
  BertOptions options{2, 16, 2};
  options.vocab_size = 30;
  options.max_positions = 10;
  options.head = head;
  options.num_classes = 3;
  return options;
}

// Hugging Face's state dict, by rule.
std::set<std::string> published_bert(int64_t layers, int64_t h, BertHead head, int64_t classes) {
  std::set<std::string> lines;
  const auto table = [&](const char* name, int64_t rows) {
    lines.insert(fmt::format("bert.embeddings.{}_embeddings.weight [{}, {}]", name, rows, h));
  };
  const auto dense = [&](const std::string& name, int64_t in, int64_t out) {
    lines.insert(fmt::format("{}.weight [{}, {}]", name, out, in));
    lines.insert(fmt::format("{}.bias [{}]", name, out));
  };
  const auto norm = [&](const std::string& name) {
    lines.insert(fmt::format("{}.weight [{}]", name, h));
    lines.insert(fmt::format("{}.bias [{}]", name, h));
  };
  table("word", 30522);
  table("position", 512);
  table("token_type", 2);
  norm("bert.embeddings.LayerNorm");
  for (int64_t i = 0; i < layers; ++i) {
    const std::string at = fmt::format("bert.encoder.layer.{}.", i);
    for (const char* name : {"query", "key", "value"}) dense(at + "attention.self." + name, h, h);
    dense(at + "attention.output.dense", h, h);
    norm(at + "attention.output.LayerNorm");
    dense(at + "intermediate.dense", h, 4 * h);
    dense(at + "output.dense", 4 * h, h);
    norm(at + "output.LayerNorm");
  }
  if (head == BertHead::classification) {
    dense("bert.pooler.dense", h, h);
    dense("classifier", h, classes);
  } else {
    lines.insert("cls.predictions.bias [30522]");
    dense("cls.predictions.transform.dense", h, h);
    norm("cls.predictions.transform.LayerNorm");
  }
  return lines;
}

Variable tokens(int64_t n = 3, int64_t t = 7) { return Variable(ids({n, t}, 30, 4)); }

Tensor mask_of(int64_t n, int64_t t, int64_t shown) {
  Tensor mask = Tensor::zeros({n, t}, DType::i64);
  for (int64_t i = 0; i < n * t; ++i) mask.mut<int64_t>()[i] = i % t < shown ? 1 : 0;
  return mask;
}

}  // namespace

TEST_CASE("bert: parameter counts are the published ones") {
  const auto count = [](const char* name, BertHead head = BertHead::classification) {
    Init init = meta_init();
    BertOptions options = bert_options(name);
    options.head = head;
    Bert net(init, options);
    const int64_t classifier = options.hidden * options.num_classes + options.num_classes;
    return parameter_count(net) - (head == BertHead::classification ? classifier : 0);
  };
  CHECK(count("bert_base") == 109482240);
  CHECK(count("bert_large") == 335141888);
  CHECK(count("bert_tiny") == 4385920);
  CHECK(count("bert_mini") == 11170560);
  CHECK(count("bert_small") == 28763648);
  CHECK(count("bert_medium") == 41373184);
  CHECK(count("bert_base", BertHead::masked_lm) == 109514298);
  CHECK_THROWS_WITH_AS(bert_options("bert"), doctest::Contains("bert_base"), Error);
}

TEST_CASE("bert: names and shapes are Hugging Face's") {
  for (const BertHead head : {BertHead::classification, BertHead::masked_lm}) {
    Init init = meta_init();
    BertOptions options = bert_options("bert_base");
    options.head = head;
    options.num_classes = 5;
    Bert net(init, options);
    CHECK(lines_of(net) == published_bert(12, 768, head, 5));
  }
}

TEST_CASE("bert: initial weights") {
  Init init;
  BertOptions options = bert_options("bert_tiny");
  options.vocab_size = 1000;
  Bert net(init, options);
  for (const auto& p : net.parameters()) {
    CAPTURE(p.name);
    const Tensor& value = p.parameter->value();
    double squares = 0;
    for (int64_t i = 0; i < value.numel(); ++i)
      squares += value.data<float>()[i] * double{value.data<float>()[i]};
    const double deviation = std::sqrt(squares / static_cast<double>(value.numel()));
    if (value.dim() == 1)
      CHECK(deviation == (p.name.ends_with("LayerNorm.weight") ? 1 : 0));
    else if (value.numel() > 10000)
      CHECK(deviation == doctest::Approx(0.02).epsilon(0.03));
  }
  const Tensor& words = net.parameters()[0].parameter->value();
  for (int64_t i = 0; i < 128; ++i) CHECK(words.data<float>()[i] == 0);  // the padding token
}

TEST_CASE("bert: batches of a wrong form are refused") {
  Init init;
  Bert net(init, small_bert());
  Context context;
  context.training = false;
  const auto run = [&](const Variable& x) { return net.forward(x, context); };
  CHECK(run(tokens()).shape() == Shape{3, 3});
  CHECK_THROWS_WITH_AS(run(tokens(2, 11)), doctest::Contains("1 to 10 tokens, got 11"), Error);
  CHECK_THROWS_WITH_AS(run(randn({2, 3}, 1)), doctest::Contains("[N, T] i64"), Error);
  CHECK_THROWS_WITH_AS(run(Variable(ids({4}, 30, 1))), doctest::Contains("[N, T] i64"), Error);
  CHECK_THROWS_AS(run(Variable(ids({2, 3}, 3000, 1))), Error);
  for (const char* name : {"attention_mask", "token_type_ids"}) {
    context.extras = {{name, mask_of(3, 6, 2)}};
    CHECK_THROWS_WITH_AS(run(tokens()), doctest::Contains(name), Error);
    context.extras = {{name, Tensor::zeros({3, 7})}};
    CHECK_THROWS_WITH_AS(run(tokens()), doctest::Contains(name), Error);
  }
  context.extras = {};
  context.training = true;
  CHECK_THROWS_WITH_AS(run(tokens()), doctest::Contains("random stream"), Error);
  BertOptions odd = small_bert();
  odd.heads = 3;
  CHECK_THROWS_WITH_AS(Bert(init, odd), doctest::Contains("heads that divide the width 16, got 3"),
                       Error);
}

TEST_CASE("bert: padding tokens do not matter under an attention mask, types do") {
  for (const BertHead head : {BertHead::classification, BertHead::masked_lm}) {
    Init init;
    Bert net(init, small_bert(head));
    Context context;
    context.training = false;
    context.extras = {{"attention_mask", mask_of(2, 6, 4)}};
    NoGrad no_grad;
    const auto shown = [&](const Tensor& x) {
      const Tensor y = net.forward(Variable(x), context).value();
      return ops::contiguous(head == BertHead::classification ? y : y.slice(1, 0, 4));
    };
    const Tensor a = ids({2, 6}, 30, 4), b = ops::clone(a), c = ops::clone(a);
    b.mut<int64_t>()[5] = 29 - b.data<int64_t>()[5];
    c.mut<int64_t>()[3] = 29 - c.data<int64_t>()[3];
    CHECK(largest_difference(shown(a), shown(b)) == 0);
    CHECK(largest_difference(shown(a), shown(c)) > 1e-6);
    const Tensor cut = shown(a);
    context.extras = {};
    CHECK(largest_difference(cut, shown(a)) > 1e-7);
    const Tensor plain = shown(a);
    context.extras = {{"token_type_ids", Tensor::zeros({2, 6}, DType::i64)}};
    CHECK(largest_difference(plain, shown(a)) < 1e-6);
    context.extras = {{"token_type_ids", mask_of(2, 6, 4)}};
    CHECK(largest_difference(plain, shown(a)) > 1e-6);
  }
}

TEST_CASE("bert: steps learn, weights go out and in, checkpointing gives the same gradients") {
  for (const BertHead head : {BertHead::classification, BertHead::masked_lm}) {
    Init init, other;
    other.rng = Rng(5);
    Bert net(init, small_bert(head)), copy(other, small_bert(head));
    const Variable x = tokens();
    const int64_t rows = head == BertHead::classification ? 3 : 21;
    const Tensor target = ids({rows}, 3, 1);
    const auto loss = [&](const Variable& y) {
      return cross_entropy(reshape(y, {rows, y.shape().back()}), target);
    };
    Context context;
    context.extras = {{"attention_mask", mask_of(3, 7, 5)}};
    check_trains(net, copy, x, context, loss, 0.1);
  }
}

TEST_CASE("bert: a layer keeps ten widths a token; the bare encoder is torch's workload") {
  Init init = meta_init();
  BertOptions options = bert_options("encoder");
  Bert net(init, options);
  // nn.Embedding(30522, 256), 4 nn.TransformerEncoderLayer(256, 4, 1024), nn.Linear(256, 2)
  CHECK(parameter_count(net) == 30522 * 256 + 4 * 789760 + 514);
  class Recipes : public SavePolicy {
   public:
    Decision decide(const SaveInfo& info, const Tensor&) override {
      return {info.rebuilt == Rebuilt::none ? Decision::raw : Decision::rebuild, nullptr};
    }
  } policy;
  PolicyScope scope(&policy);
  const auto bytes = [&](int64_t layers) {
    options.layers = layers;
    Bert each(init, options);
    Context context;
    Rng rng(1);
    context.rng = &rng;
    const int64_t before = allocator(kMeta).report().of(Category::activation);
    const Variable y = each.forward(Variable(ids({32, 128}, 30522, 1, kMeta)), context);
    return allocator(kMeta).report().of(Category::activation) - before;
  };
  const int64_t layer = bytes(3) - bytes(2), token = layer / (32 * 128);
  CHECK(token >= 10 * 256 * 4);
  CHECK(token < 10.2 * 256 * 4);  // the rest is a few statistics
  // The classifier reads one token of the last layer: of the others only keys and values are kept,
  // and what those are made of.
  CHECK(bytes(1) < 3.2 * 256 * 4 * 32 * 128);
}
