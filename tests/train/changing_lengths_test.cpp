// Steps whose sequences have other lengths each time.
#include <doctest/doctest.h>

#include <map>

#include "autograd/saved_tensor.h"
#include "compress/policies/fixed_policy.h"
#include "core/memory.h"
#include "models/zoo/decoder.h"
#include "tests/train/task_of.h"
#include "train/training_step.h"

namespace frugal::train {
namespace {

constexpr int64_t kWords = 61, kLengths = 40, kRounds = 3;

// 40 lengths from 1 to 300, in disorder.
int64_t length_of(int64_t step) { return (step % kLengths * 191 + 7) % 300 + 1; }

Batch batch_of(int64_t length) {
  const CategoryScope scope(Category::input);
  Batch batch{Tensor::empty({1, length}, DType::i64), Tensor::empty({1, length}, DType::i64)};
  for (int64_t i = 0; i < length; ++i) {
    batch.input.mut<int64_t>()[i] = i * i % kWords;
    batch.target.mut<int64_t>()[i] = (i + length) % kWords;
  }
  return batch;
}

}  // namespace

TEST_CASE("steps of changing lengths: each length takes its memory again, and nothing stays") {
  models::DecoderOptions options;
  options.layers = 2, options.hidden = 32, options.heads = 4, options.kv_heads = 2;
  options.inner = 64, options.vocab_size = kWords, options.context_length = 300;
  compress::FixedPolicyOptions few;
  few.bits = 4;
  few.min_elements = 0;
  compress::FixedPolicy packed(few);
  for (SavePolicy* policy :
       {static_cast<SavePolicy*>(nullptr), static_cast<SavePolicy*>(&packed)}) {
    CAPTURE(policy != nullptr);
    models::Init init;
    models::Decoder net(init, options);
    std::map<int64_t, int64_t> peaks;  // by length
    int64_t live = 0, distinct = 0;
    for (int64_t step = 0; step < kRounds * kLengths; ++step) {
      const int64_t length = length_of(step);
      CAPTURE(length);
      begin_step(static_cast<uint64_t>(step));
      begin_peak(kCpu);
      {
        Context context;
        const Batch batch = batch_of(length);
        forward_backward(task_of(batch), net, batch, context, policy, {});
      }
      StepMemory memory;
      end_peak(kCpu, memory);
      net.zero_grad();
      const auto [found, first] = peaks.emplace(length, memory.peak);
      distinct += first ? 1 : 0;
      CHECK(found->second == memory.peak);
      if (step == kLengths) live = allocator(kCpu).report().live_total;
      if (step >= kLengths) CHECK(allocator(kCpu).report().live_total == live);
    }
    CHECK(distinct == kLengths);
    CHECK(peaks.rbegin()->second > 2 * peaks.begin()->second);  // the lengths do matter
  }
}

}  // namespace frugal::train
