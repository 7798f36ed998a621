// What the study of gradients finds: known variances and biases, and that it ends.
#include "train/noise/gradient_study.h"

#include <doctest/doctest.h>

#include "autograd/functions.h"
#include "data/graph/graph_batches.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "models/layers.h"
#include "optim/optimizers.h"

namespace frugal::train {
namespace {

constexpr int64_t kRows = 64, kIn = 96, kOut = 4;

// Two linear layers, whose gradients are known: the loss is that of their outputs' sum.
class TwoLayers final : public Module {
 public:
  explicit TwoLayers(models::Init& init)
      : first_(register_module("first", std::make_shared<models::Linear>(init, kIn, kOut))),
        second_(register_module("second", std::make_shared<models::Linear>(init, kIn, kOut))) {}
  Variable forward(Variable x, Context& context) override {
    x = reshape(x, {-1, kIn});
    const Variable y = first_->forward(scale(x, 1), context);
    return add(y, second_->forward(scale(x, 1), context));
  }

 private:
  std::shared_ptr<models::Linear> first_, second_;
};

Tensor noise(Shape shape, uint64_t key) {
  Tensor values = Tensor::empty(std::move(shape));
  for (int64_t i = 0; i < values.numel(); ++i)
    values.mut<float>()[i] = normal({key, 0}, static_cast<uint64_t>(i));
  return values;
}

RunRecipe recipe_of(BatchSpec::Kind kind,
                    std::function<std::unique_ptr<data::BatchSource>()> open) {
  RunRecipe recipe;
  recipe.make_model = [](Device) {
    models::Init init;
    return std::make_shared<TwoLayers>(init);
  };
  recipe.make_optimizer = [](Module& model) {
    return std::make_unique<optim::Sgd>(model.parameters(), optim::SgdOptions{});
  };
  recipe.open_train = std::move(open);
  recipe.options.spec.kind = kind;
  return recipe;
}

Tensor labels() {
  Tensor y = Tensor::empty({2 * kRows}, DType::i64);
  for (int64_t i = 0; i < y.numel(); ++i) y.mut<int64_t>()[i] = i * 7 % kOut;
  return y;
}

RunRecipe rows() {
  return recipe_of(BatchSpec::Kind::images, [] {
    const CategoryScope scope(Category::input);
    const auto data =
        std::make_shared<data::MemoryDataset>(noise({2 * kRows, 1, 1, kIn}, 3), labels(), kOut);
    return std::make_unique<data::Loader>(data,
                                          data::LoaderOptions{.batch_size = kRows, .threads = 0});
  });
}

RunRecipe whole_graph() {
  return recipe_of(BatchSpec::Kind::graph, [] {
    const CategoryScope scope(Category::input);
    data::GraphData graph;
    graph.nodes = 2 * kRows;
    graph.features = kIn;
    graph.x = noise({2 * kRows, kIn}, 3);
    graph.y = labels();
    graph.classes = kOut;
    graph.edge_index = Tensor::zeros({2, 1}, DType::i64);
    graph.train_mask = Tensor::full({2 * kRows}, 1, DType::u8);
    return std::make_unique<data::GraphBatches>(graph, data::GraphPart::train);
  });
}

// Gives back each element with noise of a known variance, and `bias` more in the first layer.
class KnownErrors final : public SavePolicy, private Codec {
 public:
  explicit KnownErrors(double bias) : bias_(bias) {}
  bool lossy() const override { return true; }
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    if (std::string(info.op) != "linear" || value.numel() < kRows * kIn) return {};
    return {Decision::pack, this};
  }
  static constexpr double kDeviation = 0.25;

 private:
  struct Values final : Packed {
    explicit Values(Tensor all) : values(std::move(all)) {}
    Tensor unpack() const override { return values; }
    Tensor values;
  };
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    const CategoryScope scope(Category::packed);
    Tensor all = Tensor::empty(tensor.shape());
    const RngKey key{77 + info.seq, info.step};
    for (int64_t i = 0; i < all.numel(); ++i)
      all.mut<float>()[i] = tensor.data<float>()[i] +
                            static_cast<float>((info.seq == 0 ? bias_ : 0) +
                                               kDeviation * static_cast<double>(normal(
                                                                key, static_cast<uint64_t>(i))));
    return std::make_unique<Values>(all);
  }
  double bias_;
};

void check_within(const Estimate& found, double expected, double errors = 4) {
  CAPTURE(found.value);
  CAPTURE(found.error);
  CAPTURE(expected);
  CHECK(std::abs(found.value - expected) <= errors * found.error);
}

// The gradients dy of the outputs, which both layers have in common: softmax minus what is right.
Tensor outputs_gradient(GradientStudy& study) {
  const Tensor& x = study.batch().input;
  std::vector<Tensor> p;
  for (const auto& parameter : study.model().parameters())
    p.push_back(parameter.parameter->value());
  const int64_t n = x.size(0);
  Tensor dy = Tensor::empty({n, kOut});
  for (int64_t i = 0; i < n; ++i) {
    double z[kOut], sum = 0;
    for (int64_t k = 0; k < kOut; ++k) {
      z[k] = p[1].item(k) + p[3].item(k);
      for (int64_t c = 0; c < kIn; ++c)
        z[k] += x.item(i * kIn + c) * (p[0].item(k * kIn + c) + p[2].item(k * kIn + c));
    }
    for (double& each : z) sum += each = std::exp(each);
    for (int64_t k = 0; k < kOut; ++k)
      dy.mut<float>()[i * kOut + k] = static_cast<float>(
          (z[k] / sum - (study.batch().target.data<int64_t>()[i] == k)) / static_cast<double>(n));
  }
  return dy;
}

}  // namespace

// With errors e of x, the weight's gradient dy^T x is off by dy^T e.
TEST_CASE("a codec with a known bias and variance is found to have them, by layer and in total") {
  constexpr double kDeviation2 = KnownErrors::kDeviation * KnownErrors::kDeviation;
  for (const double bias : {0.0, 0.1}) {
    CAPTURE(bias);
    GradientStudy study(rows());
    study.begin(16);
    KnownErrors policy(bias);
    const LayeredErrors found = study.measure(policy, 128);
    const Tensor dy = outputs_gradient(study);
    double squares = 0, of_sums = 0;
    for (int64_t k = 0; k < kOut; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < kRows; ++i) {
        const double each = dy.item(i * kOut + k);
        squares += each * each;
        sum += each;
      }
      of_sums += sum * sum;
    }
    const double variance = kIn * kDeviation2 * squares, square = kIn * bias * bias * of_sums;
    REQUIRE(study.layers().names == std::vector<std::string>{"first", "second"});
    check_within(found.layers[0].rounding, variance);
    check_within(found.layers[1].rounding, variance);
    check_within(found.rounding, 2 * variance);
    CHECK(found.rounding.error < 0.05 * found.rounding.value);
    check_within(found.layers[0].squared_bias, square);
    check_within(found.layers[1].squared_bias, 0);
    check_within(found.squared_bias, square);
    CHECK((found.squared_bias.value > 3 * found.squared_bias.error) == (bias > 0));
    CHECK(found.minibatch.value ==
          doctest::Approx(found.layers[0].minibatch.value + found.layers[1].minibatch.value));
    CHECK(found.has_minibatches());
    CHECK(found.unit() == found.minibatch.value);
    // The rounding of a layer's tensors reaches the gradient of this layer alone.
    if (bias > 0) continue;
    const std::vector<RoundedLayer> sources = study.measure_by_source(policy, 128);
    REQUIRE(sources.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
      CHECK(sources[i].packed == 1);
      check_within(sources[i].from, variance);
      CHECK(sources[i].into[1 - i] == 0);
    }
  }
}

TEST_CASE("codes that are unbiased have no bias beyond its error") {
  GradientStudy study(rows());
  study.train(4);
  study.begin(8);
  for (const int bits : {2, 4}) {
    CAPTURE(bits);
    compress::FixedPolicyOptions options;
    options.bits = bits;
    options.min_elements = 16;
    compress::FixedPolicy policy(options);
    const LayeredErrors found = study.measure(policy, 64);
    CHECK(found.rounding.value > 10 * found.rounding.error);
    check_within(found.squared_bias, 0, 3);
    CHECK(found.memory.packed > 0);
    CHECK(found.memory.saved() < study.whole_memory().saved());
  }
}

TEST_CASE("a study of a whole graph ends, and compares with the squared gradient") {
  GradientStudy study(whole_graph());
  study.train(2);
  study.begin(32);
  KnownErrors policy(0.1);
  CHECK(study.let_learn(policy).input.size(0) == 2 * kRows);
  const LayeredErrors found = study.measure(policy, 16);
  CHECK(found.minibatch.value == 0);
  CHECK_FALSE(found.has_minibatches());
  CHECK(found.square > 0);
  CHECK(found.unit() == found.square);
  CHECK(found.square == doctest::Approx(found.layers[0].square + found.layers[1].square));
  CHECK(found.rounding.value > 0);
  CHECK(found.squared_bias.value > 0);
}

}  // namespace frugal::train
