// Samples that share rows: loss and gradients are those of each sample alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "compress/policies/fixed_policy.h"
#include "core/memory.h"
#include "data/text/sequence_batches.h"
#include "models/state.h"
#include "models/zoo/decoder.h"
#include "models/zoo/gpt2.h"

namespace frugal::train {
namespace {

constexpr int64_t kJoinedWords = 19, kJoinedRow = 40;

// Samples of 2 to kJoinedRow inputs; a part of the ids of each counts.
std::vector<data::Sequence> samples() {
  std::vector<data::Sequence> all;
  for (const int32_t inputs : {3, 17, 40, 2, 9, 24, 5, 11, 2}) {
    data::Sequence sequence;
    for (int32_t i = 0; i <= inputs; ++i)
      sequence.ids.push_back(static_cast<int32_t>((7 * i * i + 3 * i + 5 * inputs) % kJoinedWords));
    sequence.second = inputs + 1;
    sequence.counted = {{inputs / 3, inputs + 1}};
    all.push_back(std::move(sequence));
  }
  return all;
}

data::SequenceBatches batches(int64_t batch_size, int64_t join_to) {
  return {samples(),
          {.batch_size = batch_size, .shuffle = false, .next_tokens = true, .join_to = join_to}};
}

models::DecoderOptions decoder(models::DecoderFamily family, int64_t window = 0) {
  models::DecoderOptions o;
  o.family = family;
  o.layers = 2, o.hidden = 12, o.heads = 4, o.kv_heads = 2, o.head_size = 4, o.inner = 10;
  o.vocab_size = kJoinedWords, o.context_length = kJoinedRow;
  if (window > 0) o.window = window;
  return o;
}

std::vector<std::pair<std::string, std::shared_ptr<Module>>> networks() {
  using Family = models::DecoderFamily;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> all;
  models::Init init;
  const auto add = [&](const char* name, const models::DecoderOptions& options) {
    all.emplace_back(name, std::make_shared<models::Decoder>(init, options));
  };
  add("llama", decoder(Family::llama));
  add("mistral, window", decoder(Family::mistral, 6));
  add("qwen3", decoder(Family::qwen3));
  add("smollm3, a layer turns nothing", [] {
    auto o = decoder(Family::smollm3);
    o.rotations = {1, 0};
    return o;
  }());
  add("gemma2, windows and caps", decoder(Family::gemma2, 5));
  models::Gpt2Options gpt2{2, 16, 2, kJoinedWords, kJoinedRow};
  gpt2.dropout = gpt2.attention_dropout = 0;
  all.emplace_back("gpt2", std::make_shared<models::Gpt2>(init, gpt2));
  return all;
}

struct Sums {
  double loss = 0;  // the mean over all targets that count
  std::vector<std::vector<double>> gradients;
  int64_t kept = 0;  // bytes of activations before the backward pass
};

Sums sums_of(Module& net, data::SequenceBatches source, SavePolicy* policy = nullptr) {
  net.zero_grad();
  double targets = 0;
  for (const data::Sequence& each : samples())
    targets += each.counted[0].end - std::max(each.counted[0].begin, 1);
  Sums sums;
  const PolicyScope scope(policy);
  while (const auto batch = source.next()) {
    Context context;
    context.extras = batch->extras;
    const int64_t before = allocator(kCpu).report().of(Category::activation);
    const Variable logits = net.forward(Variable(batch->input), context);
    sums.kept += allocator(kCpu).report().of(Category::activation) - before;
    const auto* target = batch->target.data<int64_t>();
    const auto counted =
        batch->target.numel() - std::count(target, target + batch->target.numel(), kIgnored);
    const double share = static_cast<double>(counted) / targets;
    const Variable loss =
        cross_entropy(reshape(logits, {batch->target.numel(), kJoinedWords}),
                      batch->target.view({batch->target.numel()}), {.ignore_index = kIgnored});
    sums.loss += share * loss.value().item();
    backward(scale(loss, share));
  }
  for (const auto& p : net.parameters()) sums.gradients.push_back(p.parameter->grad().to_vector());
  return sums;
}

// The largest difference beside the largest gradient of a parameter.
double distance(const Sums& a, const Sums& b) {
  double worst = 0;
  for (size_t k = 0; k < a.gradients.size(); ++k) {
    double largest = 1e-6, off = 0;  // a bias of keys changes no score: 0 but for rounding
    for (size_t i = 0; i < a.gradients[k].size(); ++i) {
      largest = std::max(largest, std::abs(b.gradients[k][i]));
      off = std::max(off, std::abs(a.gradients[k][i] - b.gradients[k][i]));
    }
    worst = std::max(worst, off / largest);
  }
  return worst;
}

}  // namespace

TEST_CASE("samples that share rows: loss and every gradient are those of each sample alone") {
  for (const auto& [name, net] : networks()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    for (const DType dtype : {DType::f32, DType::f64}) {
      models::to_dtype(*net, dtype);
      const double tolerance = dtype == DType::f64 ? 1e-9 : 2e-4;
      const Sums alone = sums_of(*net, batches(1, 0)),
                 joined = sums_of(*net, batches(2, kJoinedRow));
      CHECK(joined.loss == doctest::Approx(alone.loss).epsilon(dtype == DType::f64 ? 1e-13 : 1e-5));
      CHECK(distance(joined, alone) < tolerance);
      // Samples that see each other give something else.
      data::SequenceBatches source = batches(2, kJoinedRow);
      Batch batch = *source.next();
      Context apart, together;
      apart.extras = batch.extras;
      const NoGrad no_grad;
      const auto kept_apart = net->forward(Variable(batch.input), apart).value().to_vector(),
                 seen = net->forward(Variable(batch.input), together).value().to_vector();
      CHECK(kept_apart != seen);
    }
  }
}

TEST_CASE("samples that share rows: recipes without codes change no bit, and rows keep no more") {
  for (const auto& [name, net] : networks()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    compress::FixedPolicyOptions whole, lossless;
    whole.bits = lossless.bits = 0;
    whole.recipes = false;
    compress::FixedPolicy l0(whole), rebuilt(lossless);
    const Sums plain = sums_of(*net, batches(2, kJoinedRow), &l0),
               recipes = sums_of(*net, batches(2, kJoinedRow), &rebuilt);
    CHECK(plain.loss == recipes.loss);
    CHECK(plain.gradients == recipes.gradients);
    // Samples that were padded to the longest of their batch keep at least as much.
    const Sums padded = sums_of(*net, batches(9, 0), &l0);
    CHECK(plain.kept < padded.kept);
  }
}

TEST_CASE("samples that share rows: what does not keep them apart is refused") {
  models::Init init;
  models::Decoder net(init, decoder(models::DecoderFamily::llama));
  Context context;
  const Tensor ids = Tensor::zeros({2, 5}, DType::i64);
  context.extras = {{"position_ids", Tensor::zeros({2, 4}, DType::i64)}};
  CHECK_THROWS_WITH_AS(net.forward(Variable(ids), context),
                       doctest::Contains("[decoder] expected position_ids to be [2, 5] i64"),
                       Error);
  context.extras = {{"position_ids", ids}, {"attention_mask", ids}};
  CHECK_THROWS_WITH_AS(net.forward(Variable(ids), context),
                       doctest::Contains("position_ids without an attention_mask"), Error);
  auto longer = decoder(models::DecoderFamily::llama);
  longer.rotary.scaling = RotaryOptions::Scaling::dynamic;
  longer.rotary.factor = 2, longer.rotary.first_length = 4;
  models::Decoder dynamic(init, longer);
  context.extras = {{"position_ids", Tensor::full({2, 5}, 4, DType::i64)}};
  CHECK_THROWS_WITH_AS(dynamic.forward(Variable(ids), context),
                       doctest::Contains("expected positions below first_length 4"), Error);
}

}  // namespace frugal::train
