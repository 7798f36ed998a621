// Logits that are too large to be held at once: the loss takes their rows in parts.
#include <doctest/doctest.h>

#include "autograd/functions.h"
#include "autograd/record.h"
#include "compress/policies/fixed_policy.h"
#include "models/zoo/bert.h"
#include "models/zoo/gpt2.h"
#include "optim/clip.h"
#include "tests/train/task_of.h"
#include "train/evaluate.h"
#include "train/tasks/language_model.h"
#include "train/tasks/make_task.h"
#include "train/training_step.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr int64_t kTokens = 300, kVocabulary = 70000;
constexpr int64_t kBatchLogitBytes = 2 * kTokens * kVocabulary * 4;  // bytes for a batch of two

std::shared_ptr<HeadedModule> gpt2() {
  models::Init init;
  models::Gpt2Options options{1, 16, 2, kVocabulary, kTokens};
  options.dropout = options.attention_dropout = 0;
  return std::make_shared<models::Gpt2>(init, options);
}
std::shared_ptr<HeadedModule> bert() {
  models::Init init;
  models::BertOptions options{1, 16, 2, 0, kVocabulary, kTokens};
  options.head = models::BertHead::masked_lm;
  options.dropout = options.attention_dropout = 0;
  return std::make_shared<models::Bert>(init, options);
}

// Every fifth target is ignored; some tokens are what an untrained network says.
Batch batch(int64_t samples = 2) {
  Batch out;
  out.input = Tensor::zeros({samples, kTokens}, DType::i64);
  out.target = Tensor::zeros({samples, kTokens}, DType::i64);
  for (int64_t i = 0; i < samples * kTokens; ++i) {
    out.input.mut<int64_t>()[i] = i * 37 % kVocabulary;
    out.target.mut<int64_t>()[i] = i % 5 == 0 ? kIgnored : i * 37 % kVocabulary;
  }
  return out;
}

std::vector<std::vector<double>> gradients_of(Module& model) {
  std::vector<std::vector<double>> all;
  for (const auto& p : model.parameters())
    all.push_back(p.parameter->accumulator()->whole().to_vector());
  model.zero_grad();
  return all;
}

void check_close(const std::vector<std::vector<double>>& a,
                 const std::vector<std::vector<double>>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t k = 0; k < a.size(); ++k) {
    double largest = 0, off = 0;
    for (size_t i = 0; i < a[k].size(); ++i) {
      largest = std::max(largest, std::abs(b[k][i]));
      off = std::max(off, std::abs(a[k][i] - b[k][i]));
    }
    CHECK(off <= 1e-5 * largest + 1e-12);  // a key's bias changes no score: 0 but for rounding
  }
}

}  // namespace

TEST_CASE("logits in parts: the loss and gradients of all at once, without their memory") {
  for (const auto& model : {gpt2(), bert()}) {
    PassOptions options;
    options.weight = 0.5;  // as one of two accumulated batches
    options.label_smoothing = 0.1;

    Context context;
    Rng rng;
    context.rng = &rng;
    Batch whole = batch();
    Outcome at_once =
        run_forward(task_of(whole), *model, whole, context,
                    {.label_smoothing = options.label_smoothing, .keep_output = true});
    REQUIRE(at_once.output.value().nbytes() == kBatchLogitBytes);
    backward(std::exchange(at_once.loss, {}), Tensor::full({}, 0.5));
    at_once.output = {};
    const auto wanted = gradients_of(*model);

    std::vector<Variable> parameters;
    for (const auto& p : model->parameters()) parameters.push_back(*p.parameter);
    options.norm = [&] { return optim::clip_grad_norm_there(parameters, 0); };
    begin_peak(kCpu);
    const BatchResult got =
        forward_backward(task_of(batch()), *model, batch(), context, nullptr, options);
    CHECK(got.norm == optim::grad_norm(parameters));
    StepMemory memory;
    end_peak(kCpu, memory);
    CHECK(got.loss == doctest::Approx(at_once.result.loss));
    CHECK(got.counted == 2 * kTokens / 5 * 4);
    CHECK(got.counted == at_once.result.counted);
    CHECK(got.correct == at_once.result.correct);
    check_close(gradients_of(*model), wanted);
    const int64_t table = kVocabulary * 16 * 4;
    CHECK(memory.peak - 2 * table < kBatchLogitBytes);
    // Its gradients wait, lossless; neither logits nor what they are made from.
    CHECK(got.memory.saved() < table);

    // No policy comes between the loss and its gradient.
    compress::FixedPolicyOptions keep;
    keep.bits = 2;
    keep.min_elements = 1 << 20;  // above all but logits
    compress::FixedPolicy policy(keep);
    forward_backward(task_of(batch()), *model, batch(), context, &policy, options);
    check_close(gradients_of(*model), wanted);
  }
}

TEST_CASE("logits in parts: larger parts for a GPU with more memory, and logits are not kept") {
  constexpr int64_t kMiB = int64_t{1} << 20;
  for (const auto& [memory, bytes] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{0, 64},
                                                          {8 << 10, 64},
                                                          {16 << 10, 128},
                                                          {31 << 10, 128},
                                                          {79 << 10, 512},
                                                          {1 << 20, 512}})
    CHECK(part_bytes_on_gpu(memory * kMiB) == bytes * kMiB);

  const auto model = gpt2();
  BatchSpec spec = task_of(batch()).spec();
  spec.target = BatchSpec::Target::class_of_token;
  const int64_t table = kVocabulary * 16 * 4;
  std::vector<std::vector<double>> gradients;
  std::vector<int64_t> peaks;
  // 512, 300 and all of 600 rows at a time.
  for (const int64_t bytes : {int64_t{1}, kBatchLogitBytes / 2, kBatchLogitBytes}) {
    Context context;
    begin_peak(kCpu);
    const BatchResult got = forward_backward(*make_task(spec, {.logit_bytes = bytes}), *model,
                                             batch(), context, nullptr, {});
    StepMemory memory;
    end_peak(kCpu, memory);
    peaks.push_back(memory.peak);
    CHECK(got.memory.saved() < table);
    const auto here = gradients_of(*model);
    if (!gradients.empty()) check_close(here, gradients);
    gradients = here;
  }
  CHECK(peaks[1] <= peaks[0]);
  // Half of the logits more, and a little less of what is made for each part.
  CHECK(peaks[2] - peaks[1] > kBatchLogitBytes / 2 - kBatchLogitBytes / 100);
}

TEST_CASE("logits in parts: the last batch of an epoch saves no more than a whole one") {
  const auto model = gpt2();
  BatchSpec spec = task_of(batch()).spec();
  spec.target = BatchSpec::Target::class_of_token;
  spec.sample = {kTokens};
  const auto saved_of = [&](int64_t samples) {
    Context context;
    const BatchResult got =
        forward_backward(*make_task(spec), *model, batch(samples), context, nullptr, {});
    gradients_of(*model);
    return got.memory.saved();
  };
  CHECK(saved_of(1) > kBatchLogitBytes / 2);  // 300 rows of logits are no more than a part
  spec.whole_batch = 2;
  CHECK(saved_of(1) < saved_of(2));
}

TEST_CASE("logits in parts: evaluated like all at once") {
  const auto model = gpt2();
  NoGrad no_grad;
  Context context;
  context.training = false;
  Batch whole = batch(), parts = batch();
  Outcome at_once = run_forward(task_of(whole), *model, whole, context);
  at_once.output = {};
  begin_peak(kCpu);
  const Outcome got = run_forward(task_of(parts), *model, parts, context, {});
  StepMemory memory;
  end_peak(kCpu, memory);
  CHECK_FALSE(got.output.defined());
  CHECK(got.result.loss == doctest::Approx(at_once.result.loss));
  CHECK(got.result.correct == at_once.result.correct);
  CHECK(got.result.counted == at_once.result.counted);
  CHECK(memory.peak < kBatchLogitBytes);

  BatchSpec spec;
  CHECK_FALSE(reads_outputs(*make_task(spec)));
  spec.target = BatchSpec::Target::class_of_token;
  spec.metric = "perplexity";
  CHECK_FALSE(reads_outputs(*make_task(spec)));
  spec.metric = "f1";
  CHECK(reads_outputs(*make_task(spec)));
}
