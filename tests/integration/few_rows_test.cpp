// Small networks of shapes drawn at random: maps of one pixel, batches of a few samples, and
// channels before a norm whose sizes differ by 1e8. Codes change their gradients by no more than
// rounding within each channel does.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/transformer_functions.h"
#include "compress/policies/choice.h"
#include "compress/policies/fixed_policy.h"
#include "models/layers.h"
#include "tests/integration/noise.h"
#include "tests/integration/relative_distance.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr uint64_t kNetworks = 60;

int64_t drawn(RngKey key, uint64_t index, int64_t low, int64_t bound) {
  return low + static_cast<int64_t>(uniform_int(key, index, static_cast<uint64_t>(bound - low)));
}

// Blocks of a convolution, a norm and relu, then an average and a classifier. The norm takes away
// the scale by which the weights of each channel were multiplied.
class Blocks {
 public:
  explicit Blocks(uint64_t seed) {
    const RngKey key{seed, 1};
    const int64_t side = int64_t{1} << drawn(key, 0, 0, 3);
    const int64_t batch = drawn(key, 1, side == 1 ? 3 : 1, 71), blocks = drawn(key, 2, 1, 4);
    int64_t channels = drawn(key, 3, 3, 40);
    models::Init init{Rng(seed + 1)};
    x_ = noise({batch, side, side, channels}, 2 * seed);
    for (int64_t n = 0; n < blocks; ++n) {
      const int64_t out = drawn(key, static_cast<uint64_t>(4 + n), 8, 70);
      layers_.push_back({std::make_shared<models::Conv2d>(
                             init, channels, out, side == 1 ? 1 : 3,
                             Conv2dOptions{.padding = side == 1 ? Pair{0, 0} : Pair{1, 1}}),
                         std::make_shared<models::BatchNorm2d>(init, out)});
      const Tensor weight = layers_.back().conv->parameters().at(0).parameter->value();
      const int64_t each = weight.numel() / out;
      for (int64_t i = 0; i < weight.numel(); ++i) {
        const double place = static_cast<double>(i / each) / static_cast<double>(out - 1);
        weight.mut<float>()[i] *= static_cast<float>(std::pow(10, 8 * place - 1));
      }
      channels = out;
    }
    head_ = std::make_shared<models::Linear>(init, channels, kClasses);
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < batch; ++i)
      targets.push_back(drawn({seed, 2}, static_cast<uint64_t>(i), 0, kClasses));
    targets_ = Tensor::from(targets, {batch});
  }

  std::vector<double> gradient(SavePolicy* policy, uint64_t step) {
    std::vector<Module*> modules{head_.get()};
    for (const Layer& layer : layers_)
      modules.insert(modules.end(), {layer.conv.get(), layer.norm.get()});
    for (Module* module : modules) module->zero_grad();
    Context context;
    begin_step(step);
    {
      PolicyScope scope(policy);
      Variable y(x_);
      for (const Layer& layer : layers_)
        y = layer.norm->forward_relu(layer.conv->forward(std::move(y), context), context);
      backward(cross_entropy(head_->forward(mean(y, {1, 2}), context), targets_));
    }
    std::vector<double> all;
    for (Module* module : modules)
      for (const auto& p : module->parameters()) {
        const std::vector<double> each = p.parameter->grad().to_vector();
        all.insert(all.end(), each.begin(), each.end());
      }
    return all;
  }

 private:
  static constexpr int64_t kClasses = 3;
  struct Layer {
    std::shared_ptr<models::Conv2d> conv;
    std::shared_ptr<models::BatchNorm2d> norm;
  };
  Tensor x_, targets_;
  std::vector<Layer> layers_;
  std::shared_ptr<models::Linear> head_;
};

std::vector<Choice> policies(int bits) {
  FixedPolicyOptions keep;
  keep.min_elements = 0;
  keep.bits = bits;
  keep.rounding = Rounding::dithered;
  ActnnOptions actnn;
  actnn.mixed = true;
  actnn.keep = keep;
  actnn.average = bits;
  actnn.interval = 1;
  FixedPolicyOptions stochastic = keep;
  stochastic.rounding = Rounding::stochastic;
  return {{.policy = keep},
          {.policy = stochastic},
          {.policy = AdaptiveOptions{keep, static_cast<double>(bits)}},
          {.policy = actnn},
          {.policy = keep, .entropy = true}};
}

}  // namespace

TEST_CASE("codes of any shape leave gradients as they are, up to rounding within channels") {
  double worst = 0;
  for (uint64_t seed = 0; seed < kNetworks; ++seed) {
    CAPTURE(seed);
    Blocks network(seed);
    const std::vector<double> exact = network.gradient(nullptr, 1);
    for (const auto& [bits, most] : {std::pair{4, 1.0}, std::pair{8, 1.0 / 16}})
      for (const Choice& options : policies(bits)) {
        const auto& this_bits = bits;
        CAPTURE(this_bits);
        const auto policy = make_policy(options, kCpu, 0);
        for (uint64_t step = 1; step <= 2; ++step) {
          const double error = relative_distance(network.gradient(policy.get(), step), exact);
          worst = std::max(worst, error / most);
          CHECK(error <= most);
        }
      }
  }
  MESSAGE("largest share of what is allowed: ", worst);
}

TEST_CASE("heads of attention keep their own sizes") {
  // Queries and keys of head h are larger by 10^h, values smaller by as much.
  const int64_t n = 4, t = 16, heads = 4, d = 8;
  const Variable qkv = Variable::parameter(noise({n, t, 3 * heads, d}, 5));
  const Tensor values = qkv.value();
  for (int64_t i = 0; i < values.numel(); ++i) {
    const int64_t part = i / d % (3 * heads), head = part % heads;
    values.mut<float>()[i] *= static_cast<float>(
        std::pow(10.0, part < 2 * heads ? 0.0 : 2.0 * static_cast<double>(head)));
  }
  FixedPolicyOptions keep;
  keep.min_elements = 0;
  keep.bits = 8;
  FixedPolicy policy(keep);
  // The input of attention is not a parameter, or it would be kept as it is.
  const auto saved = [&](SavePolicy* of) {
    Variable x = Variable::parameter(Tensor::from(values.to_vector<float>(), values.shape()));
    begin_step(1);
    PolicyScope scope(of);
    const Variable y = qkv_attention(mul(x, Variable(Tensor::full({}, 1))), {}, {}, {});
    backward(sum(y));
    return x.grad();
  };
  const std::vector<double> exact = saved(nullptr).to_vector(), coded = saved(&policy).to_vector();
  std::vector<double> error(static_cast<size_t>(3 * heads)), norm(error.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const size_t part = i / static_cast<size_t>(d) % error.size();
    error[part] += (exact[i] - coded[i]) * (exact[i] - coded[i]);
    norm[part] += exact[i] * exact[i];
  }
  // The gradients of values are sums of probabilities, which depend on q and k alone.
  for (size_t part = 0; part < error.size(); ++part) {
    CAPTURE(part);
    CHECK(std::sqrt(error[part] / norm[part]) < 0.1);
  }
}
