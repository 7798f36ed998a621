// Outputs of frozen products that the backward pass computes again instead of keeping them.
#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "compress/policies/fixed_policy.h"
#include "compress/quantize/quantize.h"
#include "models/adapters/adapters.h"
#include "models/init.h"
#include "models/pack.h"
#include "models/zoo/decoder.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

using models::DecoderOptions, models::RebuiltProducts;

constexpr int64_t kDecoderTokens = 32, kDecoderTexts = 4, kDecoderWords = 40;

std::shared_ptr<models::Decoder> adapted_decoder(RebuiltProducts rebuilt,
                                                 const std::vector<std::string>& targets,
                                                 ops::MatrixFormat format) {
  DecoderOptions options;
  options.layers = 3;
  options.hidden = 32;
  options.heads = 4;
  options.kv_heads = 2;
  options.inner = 64;
  options.vocab_size = kDecoderWords;
  options.context_length = kDecoderTokens;
  options.rebuilt = rebuilt;
  models::Init init{Rng(3)};
  auto net = std::make_shared<models::Decoder>(init, options);
  models::AdapterOptions adapters;
  adapters.type = models::AdapterType::lora;
  adapters.rank = 4;
  adapters.targets = targets;
  adapters.is_pattern = targets.front() == "all-linear";
  models::add_adapters(*net, init, adapters);
  for (const auto& p : net->parameters())
    if (p.name.ends_with("lora_B.weight"))
      p.parameter->set_value(models::normal(init, p.parameter->shape(), 0.1));
  if (format != ops::MatrixFormat::f32) models::pack(*net, {.format = format, .layers = {}});
  return net;
}

struct DecoderStep {
  std::vector<std::vector<double>> gradients;
  int64_t kept = 0;  // bytes, when the forward pass has ended
};

DecoderStep step_of(models::Decoder& net, SavePolicy* policy) {
  const Tensor ids = Tensor::empty({kDecoderTexts, kDecoderTokens}, DType::i64);
  for (int64_t i = 0; i < ids.numel(); ++i)
    ids.mut<int64_t>()[i] = (7 * i + i / 11) % kDecoderWords;
  PolicyScope scope(policy);
  begin_step(0);
  const auto bytes = [] {
    const auto report = allocator(kCpu).report();
    return report.of(Category::activation) + report.of(Category::packed);
  };
  const int64_t before = bytes();
  Context context;
  Variable y = net.hidden(ids, context);
  DecoderStep step;
  step.kept = bytes() - before - y.value().nbytes();
  backward(mean(mul(y, y)));
  for (const auto& p : net.parameters()) {
    if (!p.parameter->requires_grad()) continue;
    step.gradients.push_back(p.parameter->grad().to_vector());
    p.parameter->zero_grad();
  }
  return step;
}

FixedPolicyOptions bits_of(int bits) {
  FixedPolicyOptions options;
  options.bits = bits;
  options.min_elements = 0;
  return options;
}

}  // namespace

TEST_CASE("rebuilt products change no bit where nothing is rounded") {
  const std::vector<std::vector<std::string>> adapters{{"all-linear"}, {"q_proj", "v_proj"}};
  for (const auto format : {ops::MatrixFormat::f32, ops::MatrixFormat::nf4})
    for (const auto& targets : adapters) {
      const auto plain = adapted_decoder(RebuiltProducts::none, targets, format);
      const auto all = adapted_decoder(RebuiltProducts::all, targets, format);
      const DecoderStep expected = step_of(*plain, nullptr);
      CHECK(step_of(*all, nullptr).gradients == expected.gradients);
      FixedPolicy recipes(bits_of(0));
      const DecoderStep lossless = step_of(*all, &recipes);
      CHECK(lossless.gradients == expected.gradients);
      CHECK(lossless.kept < step_of(*plain, &recipes).kept);
    }
}

TEST_CASE("rebuilt products: a layer keeps no q, and no more where that is sound") {
  const int64_t tokens = kDecoderTexts * kDecoderTokens;
  const Quantizer codec(QuantizeOptions{.bits = 4});
  const auto packed = [&](int64_t width) { return codec.packed_bytes({tokens, width}); };
  const auto kept = [](RebuiltProducts rebuilt, const std::vector<std::string>& targets) {
    FixedPolicy four(bits_of(4));
    return step_of(*adapted_decoder(rebuilt, targets, ops::MatrixFormat::nf4), &four).kept;
  };
  // Nothing leads to a gradient before the first layer, so nothing rebuilds its input.
  constexpr int64_t kRebuilding = 2;
  const std::vector<std::string> every{"all-linear"}, two{"q_proj", "v_proj"};
  const int64_t of_every = kept(RebuiltProducts::none, every),
                of_two = kept(RebuiltProducts::none, two);
  CHECK(of_every - kept(RebuiltProducts::queries, every) == kRebuilding * packed(32));
  CHECK(of_every - kept(RebuiltProducts::all, every) == kRebuilding * packed(32));
  CHECK(of_two - kept(RebuiltProducts::queries, two) == kRebuilding * packed(32));
  // v of the later layers, and what the gates of all layers are multiplied by: x of the first
  // layer's second branch has a gradient.
  CHECK(of_two - kept(RebuiltProducts::all, two) ==
        kRebuilding * (packed(32) + packed(16)) + 3 * packed(64));
}
