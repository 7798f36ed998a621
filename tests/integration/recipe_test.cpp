// Recipes through real codecs: gradients stay unbiased, and what is kept is what the design says.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/levels.h"
#include "compress/quantize/quantize.h"
#include "core/rng.h"
#include "models/zoo/resnet_cifar.h"
#include "ops/dense/bitmask.h"
#include "ops/image/batch_norm.h"
#include "optim/optimizers.h"
#include "tests/integration/bias.h"

using namespace frugal;

namespace {

Tensor recipe_noise(const Shape& shape, uint64_t stream, double scale = 1) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(scale) * normal({11, stream}, static_cast<uint64_t>(i));
  return x;
}

compress::FixedPolicyOptions keep_options(std::string_view level, uint64_t seed) {
  compress::FixedPolicyOptions o;
  o.bits = static_cast<int>(compress::level(level).choice.bits());
  o.min_elements = 0;
  o.seed = seed;
  return o;
}

}  // namespace

TEST_CASE("a relu rebuilt through its exact sign is unbiased, through the rebuilt sign it is not") {
  constexpr int kDraws = 200;
  const Tensor x = recipe_noise({256, 16}, 1);
  const BatchNormOptions training;
  const ops::BatchNormMoments moments = ops::batch_norm_moments(x, {}, {}, training);
  const ops::BatchNormOutput exact = ops::batch_norm_apply(x, moments, {}, {}, true, true);
  for (int bits : {2, 4}) {
    CAPTURE(bits);
    Bias by_sign(exact.y.to_vector()), by_clamp(exact.y.to_vector());
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      compress::QuantizeOptions quantize;
      quantize.bits = bits;
      quantize.seed = seed;
      const compress::Quantizer codec(quantize);
      const Tensor rebuilt = codec.pack(x, {})->unpack();
      by_sign.add(ops::batch_norm_by_mask(rebuilt, moments, {}, {}, exact.mask).to_vector());
      by_clamp.add(ops::batch_norm_apply(rebuilt, moments, {}, {}, true, false).y.to_vector());
    }
    // 4096 elements: the average of their chi-squares has a standard deviation of about 0.022.
    CHECK(by_sign.chi_square() < 1.15);
    CHECK(by_clamp.chi_square() > 1.5);
  }
}

TEST_CASE("the gradient of a convolution behind a rebuilt relu is unbiased at 2 and 4 bits") {
  constexpr int kDraws = 200;
  const Variable x(recipe_noise({4, 8, 8, 16}, 2), true);
  const Variable weight = Variable::parameter(recipe_noise({8, 3, 3, 16}, 3, 0.1));
  const Tensor dy = recipe_noise({4, 8, 8, 8}, 4);
  Conv2dOptions same;
  same.padding = {1, 1};
  auto gradient = [&](SavePolicy* policy, uint64_t step) {
    Variable(weight).zero_grad();
    PolicyScope scope(policy);
    begin_step(step);
    const Variable in = scale(x, 1);
    backward(conv2d(batch_norm_relu(in, {}, {}, {}), weight, {}, same), dy);
    return weight.grad().to_vector();
  };
  const std::vector<double> exact = gradient(nullptr, 0);
  for (const char* level : {"L1", "L1.2"}) {
    CAPTURE(level);
    compress::FixedPolicy policy(keep_options(level, 5));
    Bias bias(exact);
    for (uint64_t step = 0; step < kDraws; ++step) bias.add(gradient(&policy, step));
    // 1152 elements that share their noise: a wider margin.
    CHECK(bias.chi_square() < 1.5);
  }
}

TEST_CASE("lossless recipes of a whole network change no bit of any gradient") {
  models::Init init;
  models::CifarResNet net(init, models::cifar_resnet_options("resnet20"));
  Context context;
  const Variable x(recipe_noise({4, 16, 16, 3}, 6));
  auto gradients = [&](std::string_view level, bool recipes) {
    net.zero_grad();
    compress::FixedPolicyOptions o = keep_options(level, 0);
    o.recipes = recipes;
    compress::FixedPolicy policy(o);
    PolicyScope scope(&policy);
    const Variable y = net.forward(x, context);
    const int64_t bytes = allocator(kCpu).report().of(Category::activation);
    backward(sum(mul(y, y)));
    std::vector<std::vector<double>> all;
    for (const auto& p : net.parameters()) all.push_back(p.parameter->grad().to_vector());
    return std::pair(all, bytes);
  };
  const auto plain = gradients("L0", false), recipes = gradients("L0", true);
  CHECK(plain.first == recipes.first);
  CHECK(static_cast<double>(recipes.second) < 0.8 * static_cast<double>(plain.second));
}

TEST_CASE("a residual network keeps what the design says: two norm inputs and two signs a block") {
  models::Init init;
  models::CifarResNetOptions small = models::cifar_resnet_options("resnet20");
  models::CifarResNet net(init, small);
  Context context;
  const Variable x(recipe_noise({32, 32, 32, 3}, 7));
  for (const double chain : {0.0, 16.0}) {
    CAPTURE(chain);
    compress::FixedPolicyOptions o = keep_options("L1", 0);
    o.min_elements = 16384;
    o.signs = compress::Signs::masks;
    o.chain = chain;
    compress::FixedPolicy policy(o);
    PolicyScope scope(&policy);
    const MemoryReport before = allocator(kCpu).report();
    const Variable y = net.forward(x, context);
    const MemoryReport after = allocator(kCpu).report();
    const int64_t kept = after.of(Category::packed) - before.of(Category::packed) +
                         after.of(Category::activation) - before.of(Category::activation);
    // Elements of the stages' outputs: 16, 32 and 64 channels on 32, 16 and 8 pixels a side.
    const double stage[] = {32.0 * 32 * 32 * 16, 32.0 * 16 * 16 * 32, 32.0 * 8 * 8 * 64};
    // The stem (norm input, sign) and three blocks a stage.
    double bits = stage[0] * (4.125 + 1);
    for (double elements : stage) bits += 3 * elements * (2 * 4.125 + 2);
    // Without chains every second output is kept, from which the next one is rebuilt. With them,
    // only the first output of the last stage, at the end of a chain of 22 times its elements.
    if (chain == 0)
      bits += 4.125 * (2 * stage[0] + 2 * stage[1] + stage[2]);
    else
      bits += 4.125 * stage[2];
    CHECK(static_cast<double>(kept) == doctest::Approx(bits / 8).epsilon(0.03));
  }
}

TEST_CASE("every level trains: the loss of a small network falls") {
  for (const std::string level : {"L0", "L1", "L1.1", "L1.2"}) {
    CAPTURE(level);
    models::Init init;
    models::CifarResNetOptions small = models::cifar_resnet_options("resnet20");
    small.blocks = 1;
    small.num_classes = 2;
    models::CifarResNet net(init, small);
    compress::FixedPolicy policy(keep_options(level, 1));
    Context context;
    const Variable x(recipe_noise({16, 8, 8, 3}, 8));
    const Tensor target =
        Tensor::from<int64_t>({0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0}, {16});
    std::vector<std::pair<std::string, Variable>> parameters;
    for (const auto& p : net.parameters()) parameters.emplace_back(p.name, *p.parameter);
    optim::Sgd sgd(optim::decay_groups(parameters, 0, false), {0.9, false});
    double first = 0, last = 0;
    for (uint64_t step = 0; step < 15; ++step) {
      PolicyScope scope(&policy);
      begin_step(step);
      net.zero_grad();
      const Variable loss = cross_entropy(net.forward(x, context), target);
      backward(loss);
      (step == 0 ? first : last) = loss.value().item();
      sgd.step(0.02);
    }
    CHECK(last < 0.5 * first);
  }
}

TEST_CASE("gelu and silu of packed values: the correction takes the mean bias away") {
  constexpr int kDraws = 64;
  // A mean over many elements: what a weight's gradient sees.
  const Variable x(recipe_noise({4096, 16}, 12, 1.5), true);
  for (const auto& [name, op] :
       std::initializer_list<std::pair<const char*, std::function<Variable(const Variable&)>>>{
           {"gelu", [](const Variable& v) { return gelu(v); }},
           {"gelu tanh", [](const Variable& v) { return gelu(v, Gelu::tanh); }},
           {"silu", [](const Variable& v) { return silu(v); }}})
    for (int bits : {3, 4}) {
      const auto& this_name = name;
      CAPTURE(std::string(this_name));
      CAPTURE(bits);
      // The sums over rows of y^ and of dx, per channel; with the packed x's variance or without.
      auto sums = [&, &op = op](SavePolicy* policy, uint64_t step) {
        PolicyScope scope(policy);
        begin_step(step);
        Variable(x).zero_grad();
        Tensor seen;
        const Variable y = op(scale(x, 1));
        const Variable z = record("read", {y}, y.value(), {save(y)}, [&](const Backward& b) {
          seen = b.saved(0);
          return Grads{b.dy()};
        });
        backward(sum(z));
        std::vector<double> out(32, 0.0);
        for (int64_t i = 0; i < seen.numel(); ++i) {
          out[static_cast<size_t>(i % 16)] += static_cast<double>(seen.data<float>()[i]);
          out[static_cast<size_t>(16 + i % 16)] += static_cast<double>(x.grad().data<float>()[i]);
        }
        return out;
      };
      const std::vector<double> exact = sums(nullptr, 0);
      compress::FixedPolicyOptions o = keep_options("L1", 5);
      o.bits = bits;
      compress::FixedPolicy policy(o);
      // A codec that does not tell its noise: what comes out is not corrected.
      class Unknown : public SavePolicy, public Codec {
       public:
        explicit Unknown(const compress::FixedPolicyOptions& wanted) : known_(wanted) {}
        Decision decide(const SaveInfo& info, const Tensor&) override {
          return {info.rebuilt == Rebuilt::biased ? Decision::rebuild : Decision::pack, this};
        }
        std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
          struct Hidden : Packed {
            std::unique_ptr<Packed> inner;
            Tensor unpack() const override { return inner->unpack(); }
          };
          auto hidden = std::make_unique<Hidden>();
          hidden->inner = known_.codec().pack(tensor, info);
          return hidden;
        }

       private:
        compress::FixedPolicy known_;
      };
      Unknown unknown(o);
      Bias corrected(exact), plain(exact);
      for (uint64_t step = 0; step < kDraws; ++step) {
        corrected.add(sums(&policy, step));
        plain.add(sums(&unknown, step));
      }
      // Chi-square over 32 sums; plain ones lie many standard errors off.
      CHECK(plain.chi_square() > 10);
      CHECK(corrected.chi_square() < 0.25 * plain.chi_square());
      if (bits == 4) CHECK(corrected.chi_square() < 3);
    }
}
